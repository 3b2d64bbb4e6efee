"""Brokers told apart by the name that a client asks for in its TLS handshake (SNI), all on the node's one port."""

import asyncio
from collections.abc import Callable
from ssl import ALERT_DESCRIPTION_UNRECOGNIZED_NAME, SSLObject
from typing import Final
from weakref import WeakKeyDictionary

from muster.coordinator.edge.tls import ListenerTls
from muster.coordinator.kafka_backend.proxy.places import BrokerHosts

OWN_NAME: Final = None
"""Whom a connection is for that is for no broker: the node itself."""


class UnknownServerName(Exception):
    """Nobody here is called so."""


def broker_of_name(name: str | None, hosts: BrokerHosts, own: str, covers: Callable[[str], bool]) -> int | None:
    """The broker that a name stands for; OWN for the node's own name, for any other one that its certificate is for
    (such as that of all nodes together), and for none. Raises UnknownName."""
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
        tls.on_name(self._told)

    def broker(self, transport: asyncio.BaseTransport) -> int | None:
        """Of a connection whose handshake is over; OWN: none."""
        return self._found.get(transport.get_extra_info("ssl_object"), OWN_NAME)

    def _told(self, handshake: SSLObject, name: str | None) -> int | None:
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
