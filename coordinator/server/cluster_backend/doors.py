"""Where the other nodes' clients are told that this node's doors are."""

from muster.coordinator.config.addresses import WILDCARD_HOSTS, Address, format_address, is_loopback
from muster.coordinator.edge.cluster import HTTP
from muster.coordinator.edge.told import ClientAddresses
from muster.coordinator.replication.protocol.facts import NodeEndpoint
from muster.coordinator.zookeeper.layout import GRPC_ENDPOINT, PLAINTEXT


def client_endpoints(doors: ClientAddresses) -> tuple[NodeEndpoint, ...]:
    """All of them, Kafka's first, which tools of that era take for the only one."""
    kafka = None if doors.kafka is None else NodeEndpoint(PLAINTEXT, *doors.kafka)
    told = (kafka, NodeEndpoint(GRPC_ENDPOINT, *doors.grpc), http_address(doors.http, doors.grpc))
    return tuple(door for door in told if door is not None)


def http_address(bound: Address | None, advertised: Address) -> NodeEndpoint | None:
    """The page's, for a node that is advertised (gRPC's door) at this address; None where others cannot reach it.

    >>> http_address(Address("0.0.0.0", 9291), Address("node-1", 9290))
    NodeEndpoint(listener='HTTP', host='node-1', port=9291)
    >>> http_address(Address("10.0.0.1", 9291), Address("node-1", 9290)).host
    '10.0.0.1'
    >>> http_address(Address("127.0.0.1", 9291), Address("node-1", 9290)) is None
    True
    >>> http_address(Address("127.0.0.1", 9291), Address("127.0.0.1", 9290)).port
    9291
    """
    if bound is None or (is_loopback(bound.host) and not is_loopback(advertised.host)):
        return None
    anywhere = bound.host in WILDCARD_HOSTS or is_loopback(bound.host)
    return NodeEndpoint(HTTP, advertised.host if anywhere else bound.host, bound.port)


def addresses_by_listener(doors: ClientAddresses) -> dict[str, str]:
    """Where clients reach this node, HOST:PORT by door, for the map of nodes over somebody's Kafka."""
    http = http_address(doors.http, doors.grpc)
    found = {"grpc": doors.grpc, "kafka": doors.kafka, "http": None if http is None else (http.host, http.port)}
    return {door: format_address(*at) for door, at in found.items() if at is not None}
