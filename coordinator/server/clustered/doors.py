"""Where the other nodes' clients are told that this node's doors are."""

from ipaddress import ip_address
from typing import Final

from muster.coordinator.cluster.facts import Endpoint
from muster.coordinator.config import Address
from muster.coordinator.edge.cluster import HTTP

ANYWHERE: Final = ("", "0.0.0.0", "::", "[::]")


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
    anywhere = bound.host in ANYWHERE or is_loopback(bound.host)
    return Endpoint(HTTP, advertised.host if anywhere else bound.host, bound.port)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
