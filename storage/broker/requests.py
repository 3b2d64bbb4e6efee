"""What every edge asks of the log, in no transport's words: produce with group commit, fetch with a long poll.

Refusals are values here, one per partition, so that one bad partition does not hurt the others.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias, TypeVar

from muster.storage.broker.broker import Broker
from muster.storage.broker.group_commit import GroupCommit
from muster.storage.broker.in_turns import AT_ONCE, map_off_loop
from muster.storage.broker.parking import FetchParking
from muster.storage.broker.reads import TURN_BYTES, FetchLimits, FetchPosition, FetchRead, ReadBudget
from muster.storage.broker.topic_requests import TopicRequests
from muster.storage.errors import InvalidRequiredAcks, RequestTimedOut, StorageError
from muster.storage.files import Buffer
from muster.storage.logs.segment_list import LATEST
from muster.storage.types import Appended, Fetched, TopicPartition

Item = TypeVar("Item")

Batches: TypeAlias = tuple[str, int, Buffer]
"""Topic, partition, and the batches for it."""

GivenUp: TypeAlias = tuple[str, int, int]
"""Topic, partition, and the offset before which its records are given up (-1: all that can be read)."""

Found: TypeAlias = list[Fetched | StorageError]
"""The answers of a fetch in the order of its places."""

SWEEP_S = 1.0
"""How often produces are looked for that have waited too long for their flush."""

FULL_HOUSE_S = 0.1
"""How long a fetch waits that finds no place among those that wait for records."""

READERS = 2
"""Threads for reads that may wait for the disk or check what they find."""

ACKS_NONE = 0
KNOWN_ACKS = (-1, ACKS_NONE, 1)


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class OffsetByTime(NamedTuple):
    """An offset by time, and the leader epoch of the record there, or of the next one; -1 each where there is none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class LogRequests:
    """One per node, shared by its edges: they wake each other's fetches and share each other's flushes."""

    def __init__(
        self, broker: Broker, *, commit: GroupCommit | None = None, clock_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self.broker = broker
        self.commit = commit or GroupCommit(broker, clock_ms)
        self.parking = FetchParking(broker, broker.settings.max_parked_fetches)
        self.topics = TopicRequests(broker, self.parking.wake_all)
        self._watched: list[tuple[float, int, asyncio.Future[Appended]]] = []
        self._sweep_due = False
        self._turn = ReadBudget()
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
            for some in split_into_portions(parts):
                if begun:
                    await asyncio.sleep(0)
                begun += self.begin_produce(some, acks, timeout_ms)
            for waiting in split_into_portions(begun):
                await asyncio.wait(waiting)
                results += map(partition_outcome, waiting)
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
        if acks not in KNOWN_ACKS:
            return [
                refused_partition(InvalidRequiredAcks(f"acks is {acks}; expected -1 (all), 0 or 1.")) for _ in parts
            ]
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
        self, places: Sequence[FetchPosition], bounds: FetchLimits, max_wait_ms: int, begun: FetchRead | None = None
    ) -> Found:
        """Read all the places; with less than is asked for, wait for more up to `max_wait_ms`.

        A refusal is answered at once: it is news as good as records.
        `begun` is what `begin_fetch` has come to for the same request, just now.
        """
        reading = begun if begun is not None and begun.answers(places, bounds) else self.begin_fetch(places, bounds)
        await self._read_on(reading)
        if reading.enough or max_wait_ms <= 0 or not places:
            return reading.results
        return await self._wait(places, bounds, max_wait_ms)

    def begin_fetch(self, places: Sequence[FetchPosition], bounds: FetchLimits) -> FetchRead:
        """Read what can be read at once, on the event loop. Unless that is `done`, and `enough`, `fetch` goes on."""
        reading = FetchRead(self.broker, self.parking.turns(len(places)), places, bounds)
        self._read_some(reading)
        return reading

    def _read_some(self, reading: FetchRead) -> None:
        turn = self._turn
        turn.spend(reading.go_on(TURN_BYTES - turn.spent))

    async def _read_on(self, reading: FetchRead) -> None:
        """To its end."""
        while not reading.done:
            if reading.waits:
                await asyncio.get_running_loop().run_in_executor(self._readers, reading.go_on)
            else:
                await asyncio.sleep(0)
                self._read_some(reading)

    async def _wait(self, places: Sequence[FetchPosition], bounds: FetchLimits, max_wait_ms: int) -> Found:
        """As `fetch`, when too little has just been found."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max_wait_ms / 1000
        partitions: list[TopicPartition] = [place[:2] for place in places]
        with self.parking.place(partitions) as parked:
            if not parked.granted:
                # Not at once: whoever is answered at once asks again at once.
                await parked.woken(min(deadline - loop.time(), FULL_HOUSE_S))
            while True:
                parked.clear()
                reading = self.begin_fetch(places, bounds)
                await self._read_on(reading)
                if reading.enough or not parked.granted or not await parked.woken(deadline - loop.time()):
                    return reading.results

    # -- offsets ------------------------------------------------------------------------------------------

    def list_offset(self, topic: str, partition: int, timestamp: int, *, committed: bool = False) -> OffsetByTime:
        """See `Log.list_offset`. In any thread; it may have to search."""
        log = self.broker.log(topic, partition)
        offset, timestamp_ms = log.list_offset(timestamp, committed=committed)
        if offset < 0:
            return OffsetByTime(offset, timestamp_ms, -1)
        epoch = -1 if timestamp == LATEST else log.epochs.at(offset)
        return OffsetByTime(offset, timestamp_ms, log.leader_epoch if epoch < 0 else epoch)

    async def delete_records(self, asked: Sequence[GivenUp], timeout_ms: int) -> list[int | StorageError]:
        """Give up the records before these offsets (see `Broker.delete_records`): the first offset that is left, of
        each. `timeout_ms` is for nodes that wait for others."""
        return await map_off_loop(lambda one: self._give_up(*one), asked)

    def _give_up(self, topic: str, partition: int, before: int) -> int | StorageError:
        try:
            self.broker.check_writable(topic)
            return self.broker.delete_records(topic, partition, before)
        except StorageError as error:
            return error


def split_into_portions(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """What is done of a long request before others have their turn."""
    return (items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE))


def partition_outcome(part: "asyncio.Future[Appended]") -> Appended | StorageError:
    """What came of a part that is done. A bug in the log is raised."""
    error = part.exception()
    if error is None:
        return part.result()
    if isinstance(error, StorageError):
        return error
    raise error


def refused_partition(error: StorageError) -> "asyncio.Future[Appended]":
    """A part that is refused before the log is asked."""
    part: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
    part.set_exception(error)
    return part


def _too_slow(timeout_ms: int) -> RequestTimedOut:
    return RequestTimedOut(
        f"The records were not flushed within {timeout_ms} ms (in a cluster: on all replicas in sync), or not even "
        "looked at. They may yet survive; an idempotent producer can safely send them again."
    )
