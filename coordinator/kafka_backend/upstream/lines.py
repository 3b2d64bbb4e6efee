"""Connections to the brokers of the upstream, made when they are wanted and kept while they hold.

A fetch that waits, and a JoinGroup, hold up what is asked behind them: each purpose has connections of its own.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from muster.coordinator.config import Address
from muster.coordinator.kafka_backend.upstream.errors import Unreached, UpstreamError
from muster.coordinator.kafka_backend.upstream.greeting import open_connection
from muster.coordinator.kafka_backend.upstream.line import UpstreamConnection
from muster.coordinator.kafka_backend.upstream.reach import UpstreamAddress

ASK: Final = "ask"
WRITE: Final = "write"
READ: Final = "read"
MEMBER: Final = "member"
BEAT: Final = "beat"
LOOK_PURPOSE: Final = "look"
FOLLOW: Final = "follow"
CLIENTS: Final = tuple(f"clients-{number}" for number in range(4))
"""Purposes. What is written in clients' names has several: each is a request of its own, and a broker begins with the
next one of a connection when it has answered the one before."""

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0


@dataclass(slots=True)
class PooledConnection:
    """One broker's connection of one purpose."""

    line: UpstreamConnection | None = None
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    failures: int = 0
    """In a row: it could not be made."""
    silent: int = 0
    """In a row: nothing was answered, be it that it could be made."""
    not_before_s: float = 0.0


def pause_s(failures: int) -> float:
    """How long an address is left alone after so many failures in a row.

    >>> pause_s(1), pause_s(2), pause_s(100)
    (0.1, 0.2, 5.0)
    """
    return min(FIRST_PAUSE_S * (1 << min(failures - 1, 16)), LONGEST_PAUSE_S)


class ConnectionPool:
    def __init__(self, reach: UpstreamAddress) -> None:
        self._reach = reach
        self._places: dict[tuple[Address, str], PooledConnection] = {}
        self._closed = False

    async def to(self, address: Address, purpose: str = ASK) -> UpstreamConnection:
        """A connection that holds, once the address may be tried again. Raises UpstreamError."""
        line = self.standing(address, purpose)
        if line is not None:
            return line
        place = self._places.setdefault((address, purpose), PooledConnection())
        async with place.making:
            line = self._standing(place)
            if line is not None:
                return line
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(place.not_before_s - loop.time(), 0))
            if self._closed:
                raise Unreached("this node stops")
            try:
                line = await open_connection(address, self._reach)
            except UpstreamError:
                place.failures += 1
                place.not_before_s = loop.time() + pause_s(place.failures)
                raise
            if self._closed:
                line.close()
                raise Unreached("this node stops")
            place.line, place.failures = line, 0
            return line

    def standing(self, address: Address, purpose: str) -> UpstreamConnection | None:
        """The connection, where there is one that holds."""
        place = self._places.get((address, purpose))
        return None if place is None else self._standing(place)

    def failures(self, address: Address) -> int:
        """How often in a row it could not be reached, or did not answer, for whatever purpose."""
        places = (place for (at, _), place in self._places.items() if at == address)
        return max((max(place.failures, place.silent) for place in places), default=0)

    def failed(self, address: Address, purpose: str) -> None:
        """It let us in, or not, and did not answer: others are asked first, until it does."""
        place = self._places.get((address, purpose))
        if place is not None:
            place.silent += 1

    def answered(self, address: Address, purpose: str) -> None:
        place = self._places.get((address, purpose))
        if place is not None:
            place.silent = 0

    def hang_up(self, purpose: str) -> None:
        """End all connections of a purpose: what is asked on one waits behind what nobody wants to know any more."""
        for (_, made_for), place in self._places.items():
            if made_for == purpose and place.line is not None:
                place.line.close()

    def forget(self, keep: set[Address]) -> None:
        """Close what leads to addresses that nobody has any more."""
        for (address, purpose), place in list(self._places.items()):
            if address not in keep and not place.making.locked():
                if place.line is not None:
                    place.line.close_when_idle()
                del self._places[address, purpose]

    def close(self) -> None:
        self._closed = True
        for place in self._places.values():
            if place.line is not None:
                place.line.close()
        self._places.clear()

    def _standing(self, place: PooledConnection) -> UpstreamConnection | None:
        line = place.line
        if line is None or (line.open and not line.stale):
            return line
        line.close_when_idle()
        place.line = None
        return None
