"""Fetches in progress: what can be read without blocking the event loop, and fetches that wait for records.

Bytes in the system's memory cost a copy, which is done sooner than a thread is asked. What may wait for the disk, is
read for the first time, or is very much goes to a thread. Waiting fetches are woken by appends, bounded in number, and
leave nothing behind when they are cancelled.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from muster.storage.broker.record_log import RecordLog
from muster.storage.errors import StorageError
from muster.storage.files import NotAtHand
from muster.storage.types import Fetched, TopicPartition

# Fetches that wait
# -----------------


class ParkedFetch:
    """One waiting fetch. `granted` is False when the house is full: nobody wakes it, it is to be answered soon."""

    def __init__(self, granted: bool) -> None:
        self.granted = granted
        self._event = asyncio.Event()

    def clear(self) -> None:
        self._event.clear()

    def wake(self) -> None:
        self._event.set()

    async def woken(self, timeout_s: float) -> bool:
        """True when something happened, False when the time is up."""
        if timeout_s <= 0:
            return False
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            return False
        return True


class FetchParking:
    """Who waits for which partition."""

    def __init__(self, broker: RecordLog, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._turn = 0
        self._waiting: dict[TopicPartition, set[ParkedFetch]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        broker.on_append(self._appended)

    @property
    def parked(self) -> int:
        return self._count

    def turns(self, count: int) -> Sequence[int]:
        """The places 0 to count-1, beginning one further each time, so that nobody is always first."""
        self._turn += 1
        if count <= 1:
            return range(count)
        first = self._turn % count
        return [*range(first, count), *range(first)]

    @contextmanager
    def place(self, partitions: Sequence[TopicPartition]) -> Iterator[ParkedFetch]:
        """Be woken by these partitions while inside."""
        self._loop = asyncio.get_running_loop()
        place = ParkedFetch(self._count < self._limit and not self._closed)
        if not place.granted:
            yield place
            return
        self._count += 1
        for partition in partitions:
            self._waiting.setdefault(partition, set()).add(place)
        try:
            yield place
        finally:
            self._count -= 1
            for partition in partitions:
                others = self._waiting.get(partition)
                if others is not None:
                    others.discard(place)
                    if not others:
                        del self._waiting[partition]

    def _appended(self, topic: str, partition: int) -> None:
        # May come from a flushing thread; nobody waits before a loop has been seen.
        if (topic, partition) not in self._waiting or self._loop is None or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._wake, (topic, partition))

    def _wake(self, partition: TopicPartition) -> None:
        for place in self._waiting.get(partition, ()):
            place.wake()

    def wake_all(self) -> None:
        """Let everybody look again."""
        for partition in list(self._waiting):
            self._wake(partition)

    def close(self) -> None:
        """Answer everybody with what there is."""
        self._closed = True
        for places in self._waiting.values():
            for place in places:
                place.granted = False
                place.wake()


# Fetches that read
# -----------------

FetchPosition: TypeAlias = tuple[str, int, int, int]
"""Topic, partition, the offset to read from, and at most how many bytes (0: no limit of its own)."""


class FetchLimits(NamedTuple):
    """How much a fetch asks for."""

    min_bytes: int
    """Less than this is waited for."""
    max_bytes: int
    """0: what the node allows."""
    committed: bool
    """Nothing of a transaction that is open."""


AT_ONCE_BYTES = 8 << 20
"""The most that is read of one partition at once. A gigabyte that lies in memory takes 0.1 to 0.2 s to copy."""

TURN_BYTES = 4 << 20
"""Once so much has been read, all other work of the loop has its turn before anything else is read."""

_SMALL_BYTES = 256 << 10

_NOTHING = Fetched(b"", -1, -1)


class ReadBudget:
    """What all fetches together have read since the loop last looked at its sockets."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = 0

    def spend(self, size: int) -> None:
        if size < _SMALL_BYTES:
            return  # To keep accounts would cost as much as the copy.
        if not self.spent:
            asyncio.get_running_loop().call_soon(self._over)
        self.spent += size

    def _over(self) -> None:
        self.spent = 0


class FetchRead:
    """Each partition gets an equal share of what is left of `max_bytes`, and what one leaves the next may have.

    The first partition with records yields a whole batch even if it is larger than that. `order` is the one in which
    the places have their turn. Once it is `done`, `results` has something for each of them.
    """

    # fmt: off
    __slots__ = (
        "_bounds", "_broker", "_next", "_order", "_places", "_refused", "_total", "done", "enough", "results", "waits",
    )
    # fmt: on

    def __init__(
        self, broker: RecordLog, order: Sequence[int], places: Sequence[FetchPosition], bounds: FetchLimits
    ) -> None:
        self._broker = broker
        self._order, self._places, self._bounds = order, places, bounds
        self._next = self._total = 0
        self._refused = False
        self.results: list[Fetched | StorageError] = [_NOTHING] * len(places)
        self.done = False
        self.enough = False
        """Whether it is time to answer: enough was found, or a refusal, which is news as good as records."""
        self.waits = False
        """Whether it has come to what may have to be waited for."""

    def answers(self, places: Sequence[FetchPosition], bounds: FetchLimits) -> bool:
        """Whether it is about the same."""
        return self._bounds == bounds and self._places == places

    def read_more(self, room: int | None = None) -> int:
        """Read on, to the end or to where `room` bytes or more have been read; how many were.

        With `room`, on the event loop, it ends as well where it `waits`; with 0 or less it reads nothing. Without, in
        any thread.
        """
        places, order, results, broker = self._places, self._order, self.results, self._broker
        min_bytes, max_bytes, committed = self._bounds
        allowed = broker.settings.fetch_max_bytes
        budget = min(max_bytes, allowed) if max_bytes else allowed
        before = total = self._total
        at, count, self.waits = self._next, len(order), False
        while at < count and (room is None or total - before < room):
            turn = order[at]
            topic, partition, offset, most = places[turn]
            limit = (budget - total) // (count - at) if total < budget else 0
            if 0 < most < limit:
                limit = most
            try:
                log = broker.log(topic, partition)
                at_hand = None if room is None or log.near.has_offset(offset) else AT_ONCE_BYTES
                found = log.fetch(offset, limit, min_one=total == 0, committed=committed, at_hand=at_hand)
            except NotAtHand:
                self.waits = True
                break
            except StorageError as error:
                self._refused = True
                results[turn] = error
            else:
                results[turn] = found
                total += len(found.records)
            at += 1
        self._next, self._total = at, total
        self.done, self.enough = at == count, self._refused or total >= min_bytes
        return total - before
