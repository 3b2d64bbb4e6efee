"""What each connection has under way that lasts, and what clients leave unread: both bounded, and refused aloud.

HTTP/2 limits the calls of a connection, and a client's library keeps a call above the limit to itself until another one
ends: without an error, and for ever where all places belong to streams. So streams are refused, with the reason, before
they take the last places; calls that end by themselves always find one in the end.

An answer is on this side until its client has room for it, and gRPC cuts nobody off for reading slowly. Fetches get
less the more is unread, down to one batch, so that everybody goes on. Above the limit whoever has not taken an answer
for long is cut off, and those who leave some unread are refused large answers; far above it, everybody is.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import structlog

from muster.coordinator.edge.seldom import LogThrottle
from muster.coordinator.errors import Overloaded
from muster.coordinator.server.grpc.cutting import cut_connection

PATIENCE_S = 5.0
"""Who has not taken an answer after so long may be cut off, longest first, while too much is unread."""

TELL_EVERY_S = 10.0
"""Of the refusals of one connection, one in so many seconds is told."""

LARGE_ANSWER = 1 << 16
"""Answers below this size are not counted: a connection has few calls, and a call itself takes memory, too."""

DEFAULT_UNSENT_BYTES = 128 << 20

log = structlog.get_logger("muster.grpc")


@dataclass(frozen=True, slots=True)
class ConnectionLoadLimits:
    """What one connection, and all of them, may put on a node."""

    max_calls: int = 1 << 30
    """Of one connection at once, as HTTP/2 has been told (`grpc.max.streams.per.connection`)."""
    max_unsent_bytes: int = DEFAULT_UNSENT_BYTES
    """Of answers that clients have not taken; twice as many for connections on which nothing is unread."""

    @property
    def max_lasting(self) -> int:
        """Of these calls, those that may last: a quarter is left to the others."""
        return self.max_calls - self.max_calls // 4


@dataclass(slots=True)
class LargeAnswer:
    """A large one on its way."""

    peer: str
    size: int
    since_s: float
    """By the event loop's clock."""
    cut: bool = False


class ConnectionLoad:
    """One per server, on its event loop. A connection is known by gRPC's name of its peer."""

    def __init__(self, limits: ConnectionLoadLimits, cut: Callable[[str], object] = cut_connection) -> None:
        """`cut_connection` ends a connection, in a thread."""
        self._limits = limits
        self._cut = cut
        self._answers: dict[int, LargeAnswer] = {}
        """Large ones that are being sent, oldest first."""
        self._numbers = count()
        self._lasting: dict[str, int] = {}
        self._unsent: dict[str, int] = {}
        self._total_unsent = 0
        self._told = LogThrottle(TELL_EVERY_S)

    @property
    def unsent(self) -> int:
        """Bytes of large answers that clients have not taken."""
        return self._total_unsent

    def begin(self, peer: str) -> None:
        """A call that may last begins; `end` follows. Raises Overloaded."""
        count, most = self._lasting.get(peer, 0), self._limits.max_lasting
        if count >= most:
            raise self._refusal(
                peer,
                f"this connection has {count} calls under way that last (sessions, watches), as many "
                f"as it may have: {most} of its {self._limits.max_calls} calls (grpc.max.streams.per.connection). "
                "Open another connection for more: a further channel, with a subchannel pool of its own",
            )
        self._lasting[peer] = count + 1

    def end(self, peer: str) -> None:
        subtract_count(self._lasting, peer, 1)

    def room(self, peer: str) -> int:
        """Bytes that the connection's next answer should have at most, if it can be cut; at least 1."""
        most = self._limits.max_unsent_bytes
        return max(1, min(most - self._total_unsent, most // 2 - self._unsent.get(peer, 0)))

    def keep(self, peer: str, size: int) -> int:
        """A large answer is there to be sent; returns its number, for `sent`. Raises Overloaded.

        Who reads what he asks for has nothing unread, and room where those who do not read have none any more.
        """
        most, own = self._limits.max_unsent_bytes, self._unsent.get(peer, 0)
        if self._total_unsent + size > most:
            self._cut_slowest(self._total_unsent + size - most)
        allowed = most if own else 2 * most
        if self._total_unsent and self._total_unsent + size > allowed:
            raise self._refusal(
                peer,
                f"{own} bytes of answers are unread on this connection, {self._total_unsent} on all of them: no room "
                f"for {size} more (grpc.max.unsent.bytes is {most}). Read what was asked for, then ask again",
            )
        self._unsent[peer] = own + size
        self._total_unsent += size
        number = next(self._numbers)
        self._answers[number] = LargeAnswer(peer, size, asyncio.get_running_loop().time())
        return number

    def sent(self, number: int) -> None:
        """The client took it, or is gone."""
        answer = self._answers.pop(number)
        self._total_unsent -= answer.size
        subtract_count(self._unsent, answer.peer, answer.size)

    def _cut_slowest(self, excess: int) -> None:
        """Cut off who has waited longest, and too long, until so many bytes will be free."""
        loop, going = asyncio.get_running_loop(), set[str]()
        for answer in self._answers.values():
            if excess <= 0 or loop.time() - answer.since_s < PATIENCE_S:
                return
            if answer.peer not in going:
                going.add(answer.peer)
                excess -= self._unsent[answer.peer]
                if not answer.cut:
                    self._end(answer, loop)

    def _end(self, answer: "LargeAnswer", loop: asyncio.AbstractEventLoop) -> None:
        answer.cut = True
        loop.run_in_executor(None, self._cut, answer.peer)
        log.warning(
            "slow reader cut off",
            peer=answer.peer,
            unread=self._unsent[answer.peer],
            together=self._total_unsent,
            why=f"an answer was not taken in {loop.time() - answer.since_s:.0f} s, and grpc.max.unsent.bytes is full",
        )

    def _refusal(self, peer: str, why: str) -> Overloaded:
        untold = self._told.due(peer, asyncio.get_running_loop().time())
        if untold is not None:
            log.warning("calls refused", peer=peer, why=why, untold=untold)
        return Overloaded(why)


def subtract_count(counts: dict[str, int], peer: str, amount: int) -> None:
    counts[peer] -= amount
    if not counts[peer]:
        del counts[peer]
