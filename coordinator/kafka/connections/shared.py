"""What the connections of one node have in common: what their clients leave unread, and what is told of refusals."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from muster.coordinator.edge.memory import RefusedRequestMemory
from muster.coordinator.edge.seldom import LogThrottle
from muster.coordinator.security.identity import ANONYMOUS, UNAUTHENTICATED, Identity

if TYPE_CHECKING:
    from muster.coordinator.kafka.connections.charges import ConnectionCharges

REFUSAL_LOG_INTERVAL_S = 10.0
"""Of requests of one host that list too much, one in so many seconds is told."""

DEFAULT_UNREAD_BYTES = 256 << 20
"""The default of `kafka.max.unsent.bytes`."""

log = structlog.get_logger("muster.kafka")


UNKNOWN_IDENTITY = Identity(ANONYMOUS, "nobody")
"""Whom a certificate names that is nobody's by the rules of the node."""


class UnreadHolder(Protocol):
    """A connection with answers that its client has not read."""

    def unread(self) -> int:
        """Their bytes, as they are at this moment."""

    @property
    def moved_at(self) -> float:
        """When its client last read some of them, or they were made; by the event loop's clock."""

    def cut(self, why: str) -> None:
        """End it."""


class ListenerState:
    """One per listener, on its event loop. `max_unread` bounds the answers of all connections together, in bytes."""

    def __init__(self, max_unread: int = DEFAULT_UNREAD_BYTES) -> None:
        self.leftovers = RefusedRequestMemory()
        self.identity_of: Callable[[Any, str], Identity | None] | None = None
        """By a handshake and an address, where connections begin with one."""
        self._max_unread = max_unread
        self._held: dict[UnreadHolder, int] = {}
        self._unread = 0
        self._excesses = LogThrottle(REFUSAL_LOG_INTERVAL_S)
        self.charges: ConnectionCharges | None = None
        """Set where quotas are kept."""

    def who(self, transport: asyncio.BaseTransport, host: str) -> Identity:
        """Who speaks on a connection that was just made; `UNKNOWN_IDENTITY` is not let in, which has been told."""
        if self.identity_of is None:
            return UNAUTHENTICATED
        return self.identity_of(transport.get_extra_info("ssl_object"), host) or UNKNOWN_IDENTITY

    @property
    def unread(self) -> int:
        """Bytes of answers that have not left, as far as is known."""
        return self._unread

    def holds(self, holder: UnreadHolder, size: int) -> None:
        """Take note of what a connection's client has not read. Above the limit, the one that stands longest is cut."""
        self._note(holder, size)
        if self._unread <= self._max_unread:
            return
        for each in tuple(self._held):
            self._note(each, each.unread())
        while self._unread > self._max_unread and self._held:
            slowest = min(self._held, key=lambda one: one.moved_at)
            left, together = self._held[slowest], self._unread
            self._note(slowest, 0)
            slowest.cut(
                f"it leaves {left} bytes of answers unread, all clients together {together}, "
                f"of which {self._max_unread} are kept (kafka.max.unsent.bytes)"
            )

    def excess(self, host: str, why: str, size: int) -> None:
        """A request was refused for what it lists."""
        self.leftovers.refused(size)
        untold = self._excesses.due(host, asyncio.get_running_loop().time())
        if untold is not None:
            log.info("request refused", peer=host, why=why, untold=untold)

    def _note(self, holder: UnreadHolder, size: int) -> None:
        before = self._held.get(holder, 0)
        self._unread += size - before
        if size:
            self._held[holder] = size
        elif before:
            del self._held[holder]
