"""Where the other nodes' clients are told that this node's doors are."""

from muster.coordinator.cluster.facts import Endpoint
from muster.coordinator.config.addresses import WILDCARD_HOSTS, Address, host_and_port, is_loopback
from muster.coordinator.edge.cluster import HTTP
from muster.coordinator.server.doors.told import Doors
from muster.coordinator.zookeeper.paths import GRPC, PLAINTEXT


def client_doors(doors: Doors) -> tuple[Endpoint, ...]:
    """All of them, Kafka's first, which tools of that era take for the only one."""
    kafka = None if doors.kafka is None else Endpoint(PLAINTEXT, *doors.kafka)
    told = (kafka, Endpoint(GRPC, *doors.grpc), http_door(doors.http, doors.grpc))
    return tuple(door for door in told if door is not None)


def http_door(bound: Address | None, advertised: Address) -> Endpoint | None:
    """The page's, for a node that is advertised (gRPC's door) at this address; None where others cannot reach it.

    >>> http_door(Address("0.0.0.0", 9291), Address("node-1", 9290))
    Endpoint(listener='HTTP', host='node-1', port=9291)
    >>> http_door(Address("10.0.0.1", 9291), Address("node-1", 9290)).host
    '10.0.0.1'
    >>> http_door(Address("127.0.0.1", 9291), Address("node-1", 9290)) is None
    True
    >>> http_door(Address("127.0.0.1", 9291), Address("127.0.0.1", 9290)).port
    9291
    """
    if bound is None or (is_loopback(bound.host) and not is_loopback(advertised.host)):
        return None
    anywhere = bound.host in WILDCARD_HOSTS or is_loopback(bound.host)
    return Endpoint(HTTP, advertised.host if anywhere else bound.host, bound.port)


def addresses_of(doors: Doors) -> dict[str, str]:
    """Where clients reach this node, HOST:PORT by door, for the map of nodes over somebody's Kafka."""
    http = http_door(doors.http, doors.grpc)
    found = {"grpc": doors.grpc, "kafka": doors.kafka, "http": None if http is None else (http.host, http.port)}
    return {door: host_and_port(*at) for door, at in found.items() if at is not None}
