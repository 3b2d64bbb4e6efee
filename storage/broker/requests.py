"""What every edge asks of the log, in no transport's words: produce with group commit, fetch with a long poll.

Refusals are values here, one per partition, so that one bad partition does not hurt the others.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias, TypeVar

from muster.storage.broker.broker import Broker
from muster.storage.broker.group_commit import GroupCommit
from muster.storage.broker.in_turns import AT_ONCE
from muster.storage.broker.parking import Parking
from muster.storage.broker.topic_requests import TopicRequests
from muster.storage.disk.files import Buffer
from muster.storage.errors import InvalidRequiredAcks, RequestTimedOut, StorageError
from muster.storage.types import Appended, Fetched, TopicPartition

Item = TypeVar("Item")

Batches: TypeAlias = tuple[str, int, Buffer]
"""Topic, partition, and the batches for it."""

Place: TypeAlias = tuple[str, int, int, int]
"""Topic, partition, the offset to read from, and at most how many bytes (0: no limit of its own)."""

SWEEP_S = 1.0
"""How often produces are looked for that have waited too long for their flush."""

FULL_HOUSE_S = 0.1
"""How long a fetch waits that finds no place among those that wait for records."""

READERS = 2
"""Threads for reads that may wait for the disk or check what they find."""

AT_ONCE_BYTES = 8 << 20
"""A fetch that finds more than this is read in a thread, however near it is: to copy it takes its time."""

ACKS_NONE = 0
_KNOWN_ACKS = (-1, ACKS_NONE, 1)


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class LogRequests:
    """One per node, shared by its edges: they wake each other's fetches and share each other's flushes."""

    def __init__(
        self, broker: Broker, *, commit: GroupCommit | None = None, clock_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self.broker = broker
        self.commit = commit or GroupCommit(broker, clock_ms)
        self.parking = Parking(broker, broker.settings.max_parked_fetches)
        self.topics = TopicRequests(broker, self.parking.wake_all)
        self._watched: list[tuple[float, int, asyncio.Future[Appended]]] = []
        self._sweep_due = False
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="read")

    async def close(self) -> None:
        """Answer the parked fetches with what there is; finish the flushes and the change of topics under way."""
        self.parking.close()
        await self.topics.close()
        await self.commit.close()
        self._readers.shutdown(wait=False)

    # -- produce ------------------------------------------------------------------------------------------

    async def produce(self, parts: Sequence[Batches], acks: int, timeout_ms: int) -> list[Appended | StorageError]:
        """Append all, then wait for durability together (see `begin_produce`).

        Of very many others have their turn in between: whoever sends two such requests waits for the first one.
        """
        begun: list[asyncio.Future[Appended]] = []
        results: list[Appended | StorageError] = []
        try:
            for some in portions(parts):
                if begun:
                    await asyncio.sleep(0)
                begun += self.begin_produce(some, acks, timeout_ms)
            for waiting in portions(begun):
                await asyncio.wait(waiting)
                results += map(outcome, waiting)
        finally:
            for part in begun[len(results) :]:
                part.cancel()
        return results

    def begin_produce(self, parts: Sequence[Batches], acks: int, timeout_ms: int) -> "list[asyncio.Future[Appended]]":
        """Take batches in, in the order of the calls; one write and one flush serve many produces.

        Each part is done once it is as durable as its topic promises, with acks 0 once it is in the log, or it fails
        with a StorageError: RequestTimedOut where the flush took longer than `timeout_ms` (0: as long as it takes),
        told up to SWEEP_S late.
        """
        if acks not in _KNOWN_ACKS:
            return [failed(InvalidRequiredAcks(f"acks is {acks}; expected -1 (all), 0 or 1.")) for _ in parts]
        append, durable = self.commit.append, acks != ACKS_NONE
        begun = [append((topic, partition), batches, durable=durable) for topic, partition, batches in parts]
        if timeout_ms:
            self._watch(begun, timeout_ms)
        return begun

    def _watch(self, begun: "Sequence[asyncio.Future[Appended]]", timeout_ms: int) -> None:
        """No timer for each of them: nearly all are done long before their time."""
        loop = self.commit.loop
        deadline = loop.time() + timeout_ms / 1000
        self._watched += [(deadline, timeout_ms, part) for part in begun]
        if not self._sweep_due:
            self._sweep_due = True
            loop.call_later(min(SWEEP_S, timeout_ms / 1000), self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        left = [each for each in self._watched if not each[2].done()]
        for deadline, timeout_ms, part in left:
            if deadline <= now:
                part.set_exception(_too_slow(timeout_ms))
        self._watched = [each for each in left if not each[2].done()]
        self._sweep_due = bool(self._watched)
        if self._sweep_due:
            nearest = min(deadline for deadline, _, _ in self._watched)
            loop.call_later(min(SWEEP_S, max(nearest - now, 0)), self._sweep, loop)

    # -- fetch --------------------------------------------------------------------------------------------

    async def fetch(
        self, places: Sequence[Place], *, max_wait_ms: int, min_bytes: int, max_bytes: int, committed: bool
    ) -> list[Fetched | StorageError]:
        """Read all the places; with fewer than `min_bytes` found, wait for more up to `max_wait_ms`.

        A refusal is answered at once: it is news as good as records. `max_bytes` 0 asks for what the node allows.
        """
        results, enough = await self._read(places, min_bytes, max_bytes, committed)
        if enough or max_wait_ms <= 0 or not places:
            return results
        return await self.wait(
            places, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, committed=committed
        )

    async def wait(
        self, places: Sequence[Place], *, max_wait_ms: int, min_bytes: int, max_bytes: int, committed: bool
    ) -> list[Fetched | StorageError]:
        """As `fetch`, when a `read` has just found too little."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max_wait_ms / 1000
        partitions: list[TopicPartition] = [place[:2] for place in places]
        with self.parking.place(partitions) as parked:
            if not parked.granted:
                # Not at once: whoever is answered at once asks again at once.
                await parked.woken(min(deadline - loop.time(), FULL_HOUSE_S))
            while True:
                parked.clear()
                results, enough = await self._read(places, min_bytes, max_bytes, committed)
                if enough or not parked.granted or not await parked.woken(deadline - loop.time()):
                    return results

    async def _read(
        self, places: Sequence[Place], min_bytes: int, max_bytes: int, committed: bool
    ) -> tuple[list[Fetched | StorageError], bool]:
        """`read`, in a thread if it takes its time."""
        found = self.read(places, min_bytes=min_bytes, max_bytes=max_bytes, committed=committed, hurry=True)
        if found is None:
            read = partial(self.read, places, min_bytes=min_bytes, max_bytes=max_bytes, committed=committed)
            found = await asyncio.get_running_loop().run_in_executor(self._readers, read)
            assert found is not None, "a read that may take its time comes to its end"
        return found

    def read(
        self, places: Sequence[Place], *, min_bytes: int, max_bytes: int, committed: bool, hurry: bool = False
    ) -> tuple[list[Fetched | StorageError], bool] | None:
        """What can be read now, and whether it is time to answer. From any thread.

        In a `hurry`, as the event loop always is, None where the disk may have to be waited for or much be copied.

        Each partition gets an equal share of what is left, and what one leaves the next may have. The first partition
        with records yields a whole batch even if it is larger than the budget.
        """
        allowed = self.broker.settings.fetch_max_bytes
        budget = min(max_bytes or allowed, allowed)
        count = len(places)
        results: list[Fetched | StorageError] = [_NOTHING] * count
        total, failed = 0, False
        for done, turn in enumerate(self.parking.turns(count)):
            topic, partition, offset, most = places[turn]
            share = max(0, budget - total) // (count - done)
            limit = min(share, most) if most > 0 else share
            try:
                log = self.broker.log(topic, partition)
                if hurry and (total > AT_ONCE_BYTES or not log.near.holds(offset)):
                    return None
                found = log.fetch(offset, limit, min_one=total == 0, committed=committed)
                results[turn] = found
                total += len(found.records)
            except StorageError as error:
                failed = True
                results[turn] = error
        return results, failed or total >= min_bytes


_NOTHING = Fetched(b"", -1, -1)


def portions(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """What is done of a long request before others have their turn."""
    return (items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE))


def outcome(part: "asyncio.Future[Appended]") -> Appended | StorageError:
    """What came of a part that is done. A bug in the log is raised."""
    error = part.exception()
    if error is None:
        return part.result()
    if isinstance(error, StorageError):
        return error
    raise error


def failed(error: StorageError) -> "asyncio.Future[Appended]":
    """A part that is refused before the log is asked."""
    part: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
    part.set_exception(error)
    return part


def _too_slow(timeout_ms: int) -> RequestTimedOut:
    return RequestTimedOut(
        f"The records were not flushed within {timeout_ms} ms, or not even looked at. They may yet survive; "
        "an idempotent producer can safely send them again."
    )
