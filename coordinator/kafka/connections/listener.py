"""The port on which Kafka's protocol is served, and its connections: admission, limits per host, idle sweep,
draining.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.edge.listener_base import ListenerTls, open_listening_socket
from muster.coordinator.edge.overload import LogThrottle
from muster.coordinator.kafka.connections.connection import (
    DEFAULT_UNREAD_BYTES,
    UNKNOWN_IDENTITY,
    ListenerState,
    ServerConnection,
)
from muster.coordinator.kafka.connections.received_requests import ConnectionLimits
from muster.coordinator.kafka.dispatch import Dispatcher

if TYPE_CHECKING:
    from muster.coordinator.edge.tls_flow_control import TlsHandshakes
    from muster.coordinator.kafka.connections.quota_enforcement import ConnectionCharges

BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted."""

SWEEP_S = 1.0
"""How often idle connections are looked for."""

TELL_EVERY_S = 10.0
"""Of connections that one limit refuses, or one host is cut off from, one in so many seconds is told."""

LONGEST_WAIT_S = 5.0
"""Connections that would have to wait for longer until they are read from are refused."""

log = structlog.get_logger("muster.kafka")


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """How many connections are let in, altogether and from one host, and what each may take."""

    max_connections: int
    max_connections_per_host: int
    connection: ConnectionLimits
    max_unread_bytes: int = DEFAULT_UNREAD_BYTES
    """Of answers that have not left, on all connections together."""
    max_creation_rate: int = 2**31 - 1
    """Connections a second; who comes faster is not read from for a while."""


class AdmissionRate:
    """When the next of those may go on that come; a second's worth of them at once."""

    def __init__(self, per_s: int) -> None:
        self._step_s = 1 / per_s
        self._due_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """For one more; one that would wait too long takes no place."""
        due_s = max(self._due_s + self._step_s, now_s - 1 + self._step_s)
        if due_s - now_s <= LONGEST_WAIT_S:
            self._due_s = due_s
        return due_s - now_s


class ConnectionListener:
    """A bound port, then a running server. It lives on the event loop that starts it."""

    def __init__(self, limits: ListenerLimits) -> None:
        self._limits = limits
        self._shared = ListenerState(limits.max_unread_bytes)
        self._pace = AdmissionRate(limits.max_creation_rate)
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._handshakes: TlsHandshakes | None = None
        self._sweeping = RestartedTask("idle connections", self._sweep)
        self._connections: set[ServerConnection] = set()
        self._hosts: Counter[str] = Counter()
        self._refusals = LogThrottle(TELL_EVERY_S)
        self._faults = LogThrottle(TELL_EVERY_S)
        self._all_gone = asyncio.Event()
        self._all_gone.set()

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def in_flight(self) -> int:
        """Requests without an answer, on all connections."""
        return sum(connection.in_flight for connection in self._connections)

    @property
    def unread(self) -> int:
        """Bytes of answers that have not left, on all connections."""
        return self._shared.unread

    @property
    def choked(self) -> int:
        """Connections whose clients leave too much unread."""
        return sum(connection.choked for connection in self._connections)

    def bind(self, host: str, port: int) -> int:
        """Take the port (0: any free one) and return it; nobody is answered yet. Raises OSError."""
        self._socket = open_listening_socket(host, port, BACKLOG)
        return int(self._socket.getsockname()[1])

    def give_back(self) -> None:
        """Free a port that was bound but never served."""
        if self._socket is not None:
            self._socket.close()

    def charged_by(self, charges: "ConnectionCharges") -> None:
        """Quotas are kept from now on; call `charge` whenever they change."""
        self._shared.charges = charges

    def charge(self) -> None:
        """Quotas were set, or are gone."""
        for connection in self._connections:
            connection.charge()

    async def start(
        self,
        dispatch: Dispatcher,
        opened: Callable[..., asyncio.Protocol] | None = None,
        tls: ListenerTls | None = None,
    ) -> None:
        """Answer clients, with `tls` after a handshake; `opened` makes their connections, where not by
        `ServerConnection`.
        """
        assert self._socket is not None, "bind() comes before start()"
        loop, made = asyncio.get_running_loop(), opened or ServerConnection

        def make() -> asyncio.Protocol:
            return made(dispatch, self._limits.connection, self._let_in, self._gone, self._shared)

        if tls is None:
            self._server = await loop.create_server(make, sock=self._socket, backlog=BACKLOG)
        else:
            from muster.coordinator.edge.tls_flow_control import TlsHandshakes

            self._shared.identity_of = tls.identity_of
            self._handshakes = TlsHandshakes(tls, self._socket, make, self._admits)
            self._handshakes.start()
        self._sweeping.start()

    def drain(self) -> None:
        """Let nobody in any more; connections close as soon as what they asked is answered."""
        for accepting in (self._server, self._handshakes):
            if accepting is not None:
                accepting.close()
        for connection in tuple(self._connections):
            connection.drain()

    async def close(self, grace_s: float) -> None:
        """Drain, wait until everyone is gone, and cut off who is not after the grace."""
        self.drain()
        self._sweeping.cancel()
        try:
            async with asyncio.timeout(grace_s):
                await self._all_gone.wait()
        except TimeoutError:
            for connection in tuple(self._connections):
                connection.abort()

    def reap(self, now_s: float, late_s: float = 0.0) -> None:
        """Close the connections on which nothing moved for too long; `now_s` by the event loop's clock.

        `late_s`: for how long of the time since the last look the node itself stood still.
        """
        for connection in tuple(self._connections):
            connection.reap(now_s, late_s)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + SWEEP_S
            await asyncio.sleep(SWEEP_S)
            self.reap(loop.time(), max(0.0, loop.time() - due_s))

    def _let_in(self, connection: ServerConnection) -> bool:
        host = connection.peer.host
        if connection.peer.identity is UNKNOWN_IDENTITY:
            return False
        if (charges := self._shared.charges) is not None and charges.quotas.connections:
            closes_later = charges.turned_away(host, connection.abort)
            if closes_later is not None:
                if closes_later:
                    connection.hold_back()
                self._tell_refused(host, host, "it opens connections faster than its quota (connection_creation_rate)")
                return False
        if not self._has_room(host, len(self._connections), self._hosts[host]):
            return False
        if self._handshakes is None:
            if (wait_s := self._wait_s(host)) is None:
                return False
            if wait_s > 0:
                connection.hold(wait_s)
        self._hosts[host] += 1
        self._connections.add(connection)
        self._all_gone.clear()
        return True

    def _admits(self, host: str) -> float | None:
        """In how many seconds a handshake may begin, if at all: those under way count as connections."""
        assert self._handshakes is not None, "asked by them"
        greeted = self._handshakes.under_way, self._handshakes.of(host)
        if not self._has_room(host, len(self._connections) + greeted[0], self._hosts[host] + greeted[1]):
            return None
        return self._wait_s(host)

    def _wait_s(self, host: str) -> float | None:
        """For how long one more is not read from, lest too many come at once; None: it would be too long."""
        wait_s = self._pace.wait_s(asyncio.get_running_loop().time())
        if wait_s <= LONGEST_WAIT_S:
            return max(0.0, wait_s)
        self._tell_refused("rate", host, "too many come at once (max.connection.creation.rate)")
        return None

    def _has_room(self, host: str, connections: int, of_host: int) -> bool:
        if connections >= self._limits.max_connections:
            self._tell_refused("all", host, f"{connections} are open (max.connections)")
            return False
        if of_host >= self._limits.max_connections_per_host:
            self._tell_refused(host, host, f"{of_host} are open from it (max.connections.per.ip)")
            return False
        return True

    def _tell_refused(self, limit: str, host: str, why: str) -> None:
        untold = self._refusals.count_suppressed(limit, asyncio.get_running_loop().time())
        if untold is not None:
            log.warning("connection refused", peer=host, why=why, untold=untold)

    def _gone(self, connection: ServerConnection) -> None:
        self._connections.discard(connection)
        host = connection.peer.host
        if connection.fault:
            self._tell_fault(host, connection.fault)
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        if not self._connections:
            self._all_gone.set()

    def _tell_fault(self, host: str, why: str) -> None:
        untold = self._faults.count_suppressed(host, asyncio.get_running_loop().time())
        if untold is not None:
            log.info("connection closed", peer=host, why=why, untold=untold)
