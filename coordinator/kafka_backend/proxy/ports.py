"""The ports at which a node stands for itself and for each broker: bound before the upstream was asked (KB-X6)."""

import asyncio
import socket
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from muster.coordinator.edge.handshakes import TlsHandshakes
from muster.coordinator.edge.sockets import open_listening_socket
from muster.coordinator.edge.tls import ListenerTls
from muster.coordinator.kafka.connections.connection import ServerConnection
from muster.coordinator.kafka.connections.listener import BACKLOG, ConnectionListener, ListenerLimits
from muster.coordinator.kafka.dispatch import Dispatcher
from muster.coordinator.kafka_backend.proxy.certified import CertificateProxyConnection
from muster.coordinator.kafka_backend.proxy.login_passage import LoginProxyConnection
from muster.coordinator.kafka_backend.proxy.names import HandshakeArrival, ServerNames
from muster.coordinator.kafka_backend.proxy.passage import ProxyConnection, ProxyPort

BROKERS_BACKLOG: Final = 256


class ProxyListener(ConnectionListener):
    """One listener with many ports; what is let in counts for all of them together."""

    def __init__(self, limits: ListenerLimits) -> None:
        super().__init__(limits)
        self._for_brokers: dict[int, socket.socket] = {}
        self._servers: list[asyncio.Server | TlsHandshakes] = []

    def bind_for(self, host: str, ports: Iterable[tuple[int, int]]) -> None:
        """Take the port of each broker, given as (broker, port). Raises OSError, which has the port in `filename`."""
        for broker, port in ports:
            try:
                self._for_brokers[broker] = open_listening_socket(host, port, BROKERS_BACKLOG)
            except OSError as error:
                error.filename = port
                raise

    def give_back(self) -> None:
        super().give_back()
        for each in self._for_brokers.values():
            each.close()

    async def serve(
        self,
        own: ProxyPort,
        dispatch: Dispatcher,
        stands_for: Callable[[int], ProxyPort],
        elsewhere: Dispatcher,
        tls: ListenerTls | None,
        whom: Callable[[str | None], int | None] | None = None,
    ) -> None:
        """own, dispatch: of the node's own port; stands_for, elsewhere: of a broker's. whom: which broker a connection
        to the own port is for, by the name that is asked for in its handshake, where they are told apart by names."""

        def made(broker: int | None) -> ServerConnection:
            return self._made(own, dispatch) if broker is None else self._made(stands_for(broker), elsewhere)

        making: Callable[..., asyncio.Protocol] = connections_of_port(own)
        if whom is not None:
            assert tls is not None, "names are asked for in handshakes"
            making = connections_by_name(ServerNames(tls, whom), made)
        await self.start(dispatch, making, tls)
        for broker, listening in self._for_brokers.items():
            await self._listen(listening, partial(self._made, stands_for(broker), elsewhere), tls)

    def _made(self, port: ProxyPort, dispatch: Dispatcher) -> ServerConnection:
        return connections_of_port(port)(dispatch, self._limits.connection, self._let_in, self._gone, self._shared)

    async def _listen(
        self, listening: socket.socket, make: Callable[[], ServerConnection], tls: ListenerTls | None
    ) -> None:
        if tls is None:
            loop = asyncio.get_running_loop()
            self._servers.append(await loop.create_server(make, sock=listening, backlog=BACKLOG))
            return
        handshakes = TlsHandshakes(tls, listening, make, self._admits)
        handshakes.start()
        self._servers.append(handshakes)

    def drain(self) -> None:
        for accepting in self._servers:
            accepting.close()
        super().drain()


def connections_by_name(
    named: ServerNames, made: Callable[[int | None], ServerConnection]
) -> Callable[..., asyncio.Protocol]:
    """Takes what a `ServerConnection` takes."""
    return lambda *_: HandshakeArrival(lambda transport: made(named.broker(transport)))


def connections_of_port(port: ProxyPort) -> Callable[..., ServerConnection]:
    """What makes a port's connections."""
    if port.login is not None:
        return partial(LoginProxyConnection, port.login, port)
    return partial(CertificateProxyConnection if port.by_certificate else ProxyConnection, port)
