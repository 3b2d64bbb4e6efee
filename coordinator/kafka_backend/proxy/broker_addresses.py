"""Where clients find the upstream's brokers through this node, and where Muster's nodes are (KB-X3, KB-X4).

A broker has a port of the node, or with TLS a host name on the node's one port: then the name in the client's
handshake (SNI) tells which broker a connection is for.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ssl import ALERT_DESCRIPTION_UNRECOGNIZED_NAME, SSLObject
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary

from muster.coordinator.config import Address
from muster.coordinator.edge.cluster_view import KAFKA, NodeAddress
from muster.coordinator.edge.listener_base import ListenerTls
from muster.coordinator.runtime.shards import partition_for

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster_view import ClusterView


# Ports, host names, and the nodes of Muster
# ------------------------------------------

MOST_DIGITS: Final = 12
"""Of a node's id."""


class AdvertisedAddress(Protocol):
    """Where this node's own clients are told to connect."""

    def __call__(self) -> Address: ...


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """Brokers told apart by port: the one of id `first_id` is at the first port."""

    host: Callable[[], str]
    ports: range
    first_id: int

    def __call__(self, broker: int) -> Address | None:
        """None: there is no port for it."""
        number = broker - self.first_id
        return Address(self.host(), self.ports[number]) if 0 <= number < len(self.ports) else None


@dataclass(frozen=True, slots=True)
class BrokerHosts:
    """Brokers told apart by the name that a client asks for in its handshake. pattern: has `$(id)` in it."""

    pattern: str
    port: Callable[[], int]

    def __call__(self, broker: int) -> Address | None:
        return Address(self.pattern.replace("$(id)", str(broker)), self.port()) if broker >= 0 else None

    def broker(self, name: str) -> int | None:
        """The broker that a name stands for.

        >>> BrokerHosts("broker-$(id).example", lambda: 9092).broker("broker-12.EXAMPLE")
        12
        """
        before, _, behind = self.pattern.lower().partition("$(id)")
        number = name.lower().removeprefix(before).removesuffix(behind)
        told = number.isascii() and number.isdigit() and f"{before}{number}{behind}" == name.lower()
        return int(number) if told and str(int(number)) == number else None


class ProxyAddresses:
    """`brokers` tells where this node stands for a broker; `cluster` knows the nodes of many, by their own ids, which
    clients see behind `id_base`."""

    def __init__(
        self,
        node_id: int,
        id_base: int,
        own: AdvertisedAddress,
        brokers: Callable[[int], Address | None],
        shards: int,
        cluster: "ClusterView | None" = None,
    ) -> None:
        self._me = node_id
        self._base = id_base
        self._own = own
        self._brokers = brokers
        self._shards = shards
        self._cluster = cluster

    def broker(self, broker: int) -> Address | None:
        """Where this node stands for it; None: nowhere, so nobody may be told of it."""
        return self._brokers(broker) if broker < self._base else None

    def nodes(self) -> list[NodeAddress]:
        """All Muster nodes, this one at any rate."""
        found = {} if self._cluster is None else {node.node_id: node for node in self._cluster.nodes(KAFKA)}
        found.setdefault(self._me, NodeAddress(self._me, *self._own()))
        return [node._replace(node_id=self._base + each) for each, node in sorted(found.items())]

    def coordinator(self, group: str) -> NodeAddress | None:
        """Whose the group's shard is; None while it is nobody's."""
        if self._cluster is None:
            return NodeAddress(self._base + self._me, *self._own())
        node = self._cluster.coordinator(partition_for(group, self._shards), KAFKA)
        return None if node is None else node._replace(node_id=self._base + node.node_id)

    @property
    def node_id(self) -> int:
        """This node, as clients see it."""
        return self._base + self._me

    def is_node(self, name: str) -> bool:
        """Whether a client names a node of Muster by its id, as a resource."""
        return name.isascii() and name.isdigit() and int(name[:MOST_DIGITS]) >= self._base

    def everyone(self, brokers: Sequence[tuple[int, str | None]]) -> list[NodeAddress]:
        """Whom clients are told of: brokers, given with their racks, and all nodes of Muster."""
        places = [(broker, self.broker(broker), rack) for broker, rack in brokers]
        told = [NodeAddress(broker, *place, rack) for broker, place, rack in places if place is not None]
        return [*told, *self.nodes()]


# By the name in the TLS handshake (SNI)
# --------------------------------------

OWN_NAME: Final = None
"""Whom a connection is for that is for no broker: the node itself."""


class UnknownServerName(Exception):
    """Nobody here is called so."""


def broker_of_name(name: str | None, hosts: BrokerHosts, own: str, covers: Callable[[str], bool]) -> int | None:
    """The broker that a name stands for; OWN for the node's own name, for any other one that its certificate is for
    (such as that of all nodes together), and for none. Raises UnknownServerName."""
    if name is None or name.lower() == own.lower():
        return OWN_NAME
    broker = hosts.broker(name)
    if broker is None and not covers(name):
        raise UnknownServerName(name)
    return broker


class ServerNames:
    """Remembers of each handshake whom it was for. It lives on the event loop that `tls` is used on."""

    def __init__(self, tls: ListenerTls, whom: Callable[[str | None], int | None]) -> None:
        self._whom = whom
        self._found: WeakKeyDictionary[SSLObject, int | None] = WeakKeyDictionary()
        tls.on_name(self._choose_server)

    def broker(self, transport: asyncio.BaseTransport) -> int | None:
        """Of a connection whose handshake is over; OWN: none."""
        return self._found.get(transport.get_extra_info("ssl_object"), OWN_NAME)

    def _choose_server(self, handshake: SSLObject, name: str | None) -> int | None:
        try:
            self._found[handshake] = self._whom(name)
        except UnknownServerName:
            return ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        return None


class HandshakeArrival(asyncio.Protocol):
    """The first to be given a connection, once its handshake is over: it hands it on to whom that was for."""

    def __init__(self, made: Callable[[asyncio.BaseTransport], asyncio.Protocol]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        taker = self._made(transport)
        transport.set_protocol(taker)
        taker.connection_made(transport)
