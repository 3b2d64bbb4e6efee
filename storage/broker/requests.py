"""What every listener asks of the log, in no transport's words: produce with group commit, fetch with a long poll,
topics.

Refusals are values here, one per partition or topic, so that one bad item does not hurt the others. Changes of topics
run off the event loop, one after the other, and are finished once they have begun. Long requests are handled a portion
at a time, so that other requests of the node have turns in between.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from muster.long_work import AT_ONCE, map_in_turns, map_off_loop
from muster.storage.broker.fetches import TURN_BYTES, FetchLimits, FetchParking, FetchPosition, FetchRead, ReadBudget
from muster.storage.broker.group_commit import GroupCommit
from muster.storage.broker.record_log import AppendableLog, EditableTopics, RecordLog, StandaloneLog
from muster.storage.errors import (
    InvalidReplicationFactor,
    InvalidRequiredAcks,
    RequestTimedOut,
    StorageError,
    UnknownTopicOrPartition,
)
from muster.storage.files import Buffer
from muster.storage.logs.segment import LATEST
from muster.storage.logs.transactions import TransactionGuard
from muster.storage.topics.catalog import TopicConfigChange, TopicPlan, TopicPlans
from muster.storage.types import Appended, Fetched, Topic, TopicPartition

Item = TypeVar("Item")
Result = TypeVar("Result")

# Changes of topics
# -----------------

Wanted = TypeVar("Wanted")

DEFAULT = -1
"""As many copies as the settings say."""

COPIES = 1
"""One node has one of each partition."""


Changes: TypeAlias = Mapping[str, str | None] | Callable[[], Mapping[str, str | None]]
"""Settings and their new values (see `Topics.plan_change`), or what makes them of those that are there by then."""


class NewTopic(NamedTuple):
    """A topic that is asked for. Of many nodes: how many copies of each partition (-1: the default), or on which nodes,
    by partition; a node on its own keeps the only one. internal: one that the node itself asks for."""

    name: str
    partitions: int
    configs: Mapping[str, str] = {}
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] | None = None
    internal: bool = False


class MorePartitions(NamedTuple):
    """A topic that is to grow to so many partitions. assignments: of many nodes, those of each new one, in order."""

    name: str
    total: int
    assignments: Sequence[Sequence[int]] | None = None


class TopicChanges(Protocol):
    """Requests that change topics. Refusals are values, one per topic: one that is refused hurts no other."""

    def check_new(self, wanted: NewTopic) -> None:
        """Refuse what `create` would refuse. Raises StorageError."""

    def check_growth(self, wanted: MorePartitions) -> None:
        """Refuse what `grow` would refuse. Raises StorageError."""

    async def create(self, wanted: Sequence[NewTopic]) -> list[Topic | StorageError]: ...

    async def grow(self, wanted: Sequence[MorePartitions | tuple[str, int]]) -> list[Topic | StorageError]: ...

    async def change(self, wanted: Sequence[tuple[str, Changes]]) -> list[Topic | StorageError]: ...

    async def delete(self, topics: Sequence[Topic]) -> list[StorageError | None]: ...

    async def close(self) -> None:
        """Begin nothing more; what is under way has ended on return."""


class TopicRequests:
    """Refusals are values, one per topic: one that is refused hurts no other.

    A topic is there whole or not at all, for whoever looks in between as after a crash. Whoever asked may go: what was
    begun goes on. `on_gone` is called on the loop when topics are gone for everybody, their files not yet.
    """

    def __init__(self, broker: EditableTopics, on_gone: Callable[[], None]) -> None:
        self._broker = broker
        self._on_gone = on_gone
        self._one_by_one = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="topics")
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closed = False

    def check_new(self, wanted: NewTopic) -> None:
        """Refuse what `create` would refuse. Raises StorageError."""
        check_single_node(wanted)
        self._broker.check_new_topic(wanted.name, wanted.partitions, wanted.configs)

    def check_growth(self, wanted: MorePartitions) -> None:
        """Refuse what `grow` would refuse. Raises StorageError."""
        self._broker.check_more_partitions(wanted.name, wanted.total)

    async def create(self, wanted: Sequence[NewTopic]) -> list[Topic | StorageError]:
        """Make these topics; see `Topics.create_topic`."""
        return await self._whole(self._make(self._new, wanted))

    async def grow(self, wanted: Sequence[MorePartitions | tuple[str, int]]) -> list[Topic | StorageError]:
        """Raise these topics' partition counts; see `Topics.add_partitions`."""
        return await self._whole(self._make(self._more, wanted))

    async def change(self, wanted: Sequence[tuple[str, Changes]]) -> list[Topic | StorageError]:
        """Give these topics other settings; see `Topics.plan_change`."""
        return await self._whole(self._change(wanted))

    async def delete(self, topics: Sequence[Topic]) -> list[StorageError | None]:
        """Remove these topics, and none of the same name that came after them; see `Topics.delete_topic`."""
        return await self._whole(self._delete(topics))

    async def close(self) -> None:
        """Begin nothing more; what is under way has ended on return."""
        self._closed = True
        async with self._one_by_one:
            self._thread.shutdown(wait=False)

    def _new(self, wanted: NewTopic, plans: TopicPlans) -> TopicPlan:
        check_single_node(wanted)
        return self._broker.plan_topic(wanted.name, wanted.partitions, wanted.configs, wanted.internal, plans)

    def _more(self, wanted: MorePartitions | tuple[str, int], plans: TopicPlans) -> TopicPlan:
        return self._broker.plan_growth(wanted[0], wanted[1], beside=plans)

    async def _whole(self, change: Coroutine[Any, Any, Result]) -> Result:
        task = asyncio.create_task(change)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def _make(
        self, plan: Callable[[Wanted, TopicPlans], TopicPlan], wanted: Sequence[Wanted]
    ) -> list[Topic | StorageError]:
        def planned(each: Wanted) -> TopicPlan | StorageError:
            try:
                self._still_open()
                return plan(each, plans)
            except StorageError as refusal:
                return refusal

        async with self._one_by_one:
            plans = TopicPlans()
            looked_at = await map_in_turns(planned, wanted)
            good = [each for each in looked_at if isinstance(each, TopicPlan)]
            made = iter(await self._off_loop(self._broker.make, good) if good else [])
            if good:
                self._broker.tell_topics()
        return [next(made) if isinstance(each, TopicPlan) else each for each in looked_at]

    async def _change(self, wanted: Sequence[tuple[str, Changes]]) -> list[Topic | StorageError]:
        def planned(each: tuple[str, Changes]) -> TopicConfigChange | StorageError:
            name, changes = each
            try:
                self._still_open()
                return self._broker.plan_change(name, changes() if callable(changes) else changes)
            except StorageError as refusal:
                return refusal

        async with self._one_by_one:
            looked_at = await map_in_turns(planned, wanted)
            good = [each for each in looked_at if isinstance(each, TopicConfigChange)]
            try:
                if good:
                    await self._off_loop(self._broker.change, good)
            except StorageError as failed:
                return [failed if isinstance(each, TopicConfigChange) else each for each in looked_at]
            concerned = [(each, number) for each in good for number in range(each.topic.partitions)]
            await map_in_turns(lambda one: self._broker.use(*one), concerned)
        return [each.topic if isinstance(each, TopicConfigChange) else each for each in looked_at]

    async def _delete(self, topics: Sequence[Topic]) -> list[StorageError | None]:
        def looked_at(topic: Topic) -> StorageError | None:
            try:
                self._still_open()
                if self._broker.topic(topic.name).id != topic.id:
                    raise UnknownTopicOrPartition(f"Topic '{topic.name}' has gone; another one has its name now.")
            except StorageError as refusal:
                return refusal
            return None

        async with self._one_by_one:
            refusals = await map_in_turns(looked_at, topics)
            good = list(dict.fromkeys(topic.name for topic, no in zip(topics, refusals, strict=True) if no is None))
            failed = await self._remove(good) if good else None
        return [no or failed for no in refusals]

    async def _remove(self, names: list[str]) -> StorageError | None:
        try:
            await self._off_loop(self._broker.hide, names)
            self._broker.tell_topics()
            self._on_gone()
            await self._off_loop(self._broker.clear_away)
        except StorageError as error:
            return error
        return None

    def _still_open(self) -> None:
        if self._closed:
            raise StorageError("The node is shutting down and changes no topics any more. Try again when it is back.")

    async def _off_loop(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


def check_single_node(wanted: NewTopic) -> None:
    """InvalidReplicationFactor for more copies than a node on its own can keep."""
    if wanted.replication_factor not in (DEFAULT, COPIES):
        raise InvalidReplicationFactor(
            f"Topic '{wanted.name}' cannot have replication factor {wanted.replication_factor} on one node; "
            f"expected {COPIES}, or {DEFAULT} for the default."
        )


# Produce and fetch
# -----------------

Batches: TypeAlias = tuple[str, int, Buffer]
"""Topic, partition, and the batches for it."""

Guards: TypeAlias = Mapping[TopicPartition, TransactionGuard]
"""Those of a request's parts that begin a transaction in their partition (see `Log.make_guard`)."""

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


class RecordRequests(Protocol):
    """What services and handlers ask of records and topics, one answer or refusal per partition or topic."""

    @property
    def broker(self) -> RecordLog: ...

    @property
    def topics(self) -> TopicChanges: ...

    @property
    def parked(self) -> int:
        """Fetches that wait for records."""

    async def produce(self, parts: Sequence[Batches], acks: int, timeout_ms: int) -> list[Appended | StorageError]: ...

    async def fetch(
        self, places: Sequence[FetchPosition], bounds: FetchLimits, max_wait_ms: int, begun: FetchRead | None = None
    ) -> Found: ...

    def list_offset(self, topic: str, partition: int, timestamp: int, *, committed: bool = False) -> OffsetByTime: ...

    async def delete_records(self, asked: Sequence[GivenUp], timeout_ms: int) -> list[int | StorageError]: ...

    async def close(self) -> None: ...


class LogRequests:
    """One per node, shared by its edges: they wake each other's fetches and share each other's flushes."""

    def __init__(
        self, broker: AppendableLog, commit: GroupCommit, topics: TopicChanges, parking: FetchParking | None = None
    ) -> None:
        self.broker = broker
        self.commit = commit
        self.topics = topics
        self.parking = parking or FetchParking(broker, broker.settings.max_parked_fetches)
        self._watched: list[tuple[float, int, asyncio.Future[Appended]]] = []
        self._sweep_due = False
        self._turn = ReadBudget()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="read")

    @classmethod
    def standalone(cls, broker: StandaloneLog, *, clock_ms: Callable[[], int] = wall_clock_ms) -> Self:
        """Of a node that appends and changes topics alone."""
        parking = FetchParking(broker, broker.settings.max_parked_fetches)
        return cls(broker, GroupCommit(broker, clock_ms), TopicRequests(broker, parking.wake_all), parking)

    @property
    def parked(self) -> int:
        """Fetches that wait for records."""
        return self.parking.parked

    async def close(self) -> None:
        """Answer the parked fetches with what there is; finish the flushes and the change of topics under way."""
        self.parking.close()
        await self.topics.close()
        await self.commit.close()
        self._readers.shutdown(wait=False)

    # -- produce ------------------------------------------------------------------------------------------

    async def produce(
        self, parts: Sequence[Batches], acks: int, timeout_ms: int, guards: Guards | None = None
    ) -> list[Appended | StorageError]:
        """Append all, then wait for durability together (see `begin_produce`).

        Of very many others have their turn in between: whoever sends two such requests waits for the first one.
        """
        begun: list[asyncio.Future[Appended]] = []
        results: list[Appended | StorageError] = []
        try:
            for some in split_into_portions(parts):
                if begun:
                    await asyncio.sleep(0)
                begun += self.begin_produce(some, acks, timeout_ms, guards)
            for waiting in split_into_portions(begun):
                await asyncio.wait(waiting)
                results += map(partition_outcome, waiting)
        finally:
            for part in begun[len(results) :]:
                part.cancel()
        return results

    def begin_produce(
        self, parts: Sequence[Batches], acks: int, timeout_ms: int, guards: Guards | None = None
    ) -> "list[asyncio.Future[Appended]]":
        """Take batches in, in the order of the calls; one write and one flush serve many produces.

        Each part is done once it is as durable as its topic promises, with acks 0 once it is in the log, or it fails
        with a StorageError: RequestTimedOut where the flush took longer than `timeout_ms` (0: as long as it takes),
        told up to SWEEP_S late. guards: of those that begin a transaction.
        """
        if acks not in KNOWN_ACKS:
            return [
                refused_partition(InvalidRequiredAcks(f"acks is {acks}; expected -1 (all), 0 or 1.")) for _ in parts
            ]
        append, durable = self.commit.append, acks != ACKS_NONE
        if guards:
            begun = [append(part[:2], part[2], durable=durable, guard=guards.get(part[:2])) for part in parts]
        else:
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
        turn.spend(reading.read_more(TURN_BYTES - turn.spent))

    async def _read_on(self, reading: FetchRead) -> None:
        """To its end."""
        while not reading.done:
            if reading.waits:
                await asyncio.get_running_loop().run_in_executor(self._readers, reading.read_more)
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
