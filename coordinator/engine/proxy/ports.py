"""The ports at which a node stands for itself and for each broker: bound before the upstream was asked (KB-X6)."""

import asyncio
import socket
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from muster.coordinator.edge.transport.handshakes import Handshakes
from muster.coordinator.edge.transport.sockets import listening_socket
from muster.coordinator.edge.transport.tls import Tls
from muster.coordinator.engine.proxy.login.certified import CertifiedPassage
from muster.coordinator.engine.proxy.login.passage import AskingPassage
from muster.coordinator.engine.proxy.names import Arrival, Named
from muster.coordinator.engine.proxy.passage import Passage, Port
from muster.coordinator.kafka.connections.connection import Connection
from muster.coordinator.kafka.connections.listener import BACKLOG, KafkaListener, ListenerLimits
from muster.coordinator.kafka.dispatch import Dispatch

BROKERS_BACKLOG: Final = 256


class ProxyListener(KafkaListener):
    """One listener with many ports; what is let in counts for all of them together."""

    def __init__(self, limits: ListenerLimits) -> None:
        super().__init__(limits)
        self._for_brokers: dict[int, socket.socket] = {}
        self._servers: list[asyncio.Server | Handshakes] = []

    def bind_for(self, host: str, ports: Iterable[tuple[int, int]]) -> None:
        """Take the port of each broker, given as (broker, port). Raises OSError, which has the port in `filename`."""
        for broker, port in ports:
            try:
                self._for_brokers[broker] = listening_socket(host, port, BROKERS_BACKLOG)
            except OSError as error:
                error.filename = port
                raise

    def give_back(self) -> None:
        super().give_back()
        for each in self._for_brokers.values():
            each.close()

    async def serve(
        self,
        own: Port,
        dispatch: Dispatch,
        stands_for: Callable[[int], Port],
        elsewhere: Dispatch,
        tls: Tls | None,
        whom: Callable[[str | None], int | None] | None = None,
    ) -> None:
        """own, dispatch: of the node's own port; stands_for, elsewhere: of a broker's. whom: which broker a connection
        to the own port is for, by the name that is asked for in its handshake, where they are told apart by names."""

        def made(broker: int | None) -> Connection:
            return self._made(own, dispatch) if broker is None else self._made(stands_for(broker), elsewhere)

        making: Callable[..., asyncio.Protocol] = opened(own)
        if whom is not None:
            assert tls is not None, "names are asked for in handshakes"
            making = by_name(Named(tls, whom), made)
        await self.start(dispatch, making, tls)
        for broker, listening in self._for_brokers.items():
            await self._listen(listening, partial(self._made, stands_for(broker), elsewhere), tls)

    def _made(self, port: Port, dispatch: Dispatch) -> Connection:
        return opened(port)(dispatch, self._limits.connection, self._let_in, self._gone, self._shared)

    async def _listen(self, listening: socket.socket, make: Callable[[], Connection], tls: Tls | None) -> None:
        if tls is None:
            loop = asyncio.get_running_loop()
            self._servers.append(await loop.create_server(make, sock=listening, backlog=BACKLOG))
            return
        handshakes = Handshakes(tls, listening, make, self._admits)
        handshakes.start()
        self._servers.append(handshakes)

    def drain(self) -> None:
        for accepting in self._servers:
            accepting.close()
        super().drain()


def by_name(named: Named, made: Callable[[int | None], Connection]) -> Callable[..., asyncio.Protocol]:
    """Takes what a `Connection` takes."""
    return lambda *_: Arrival(lambda transport: made(named.broker(transport)))


def opened(port: Port) -> Callable[..., Connection]:
    """What makes a port's connections."""
    if port.login is not None:
        return partial(AskingPassage, port.login, port)
    return partial(CertifiedPassage if port.by_certificate else Passage, port)
