"""Fetches that wait for records: woken by appends, bounded in number, gone without a trace when cancelled."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from muster.storage.broker.broker import Broker
from muster.storage.types import TopicPartition


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

    def __init__(self, broker: Broker, limit: int) -> None:
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
