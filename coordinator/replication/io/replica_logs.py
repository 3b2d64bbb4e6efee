"""A node's logs as its replicas need them (`ReplicaLog`), over the storage engine, and how they are flushed.

The thread that changes topics and appends is the loop's; only `flush` may be called from others. A flush round
covers everything that arrived by the time it begins (CL-D2); the next one begins when it is back.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, NamedTuple, TypeAlias

import structlog

from muster.coordinator.edge.background_tasks import TaskFailed
from muster.coordinator.replication.protocol.cluster_metadata import (
    INTERNAL,
    ClusterImage,
    ImageChanges,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.replica_fetch import DamagedBatches, LogBroken, LogCorrupt, Records
from muster.storage.broker.broker import Broker
from muster.storage.config import TopicSettings
from muster.storage.errors import CorruptMessage, LogDamaged, LogFenced, StorageError, UnexpectedAppendOffset
from muster.storage.files import Buffer
from muster.storage.logs import replica
from muster.storage.logs.log import Log
from muster.storage.records.batch import read_batches
from muster.storage.topics.catalog import PRIVATE_TOPICS
from muster.storage.types import Topic

# Logs of the storage engine as replicas see them
# -----------------------------------------------

logger = structlog.get_logger("muster.replication")

ReportHighWatermark: TypeAlias = Callable[[str], TopicView | None]
"""A topic as the image has it."""

LOOK_BYTES: Final = 1 << 20

OF_THE_LOG: Final = frozenset(field.alias or name for name, field in TopicSettings.model_fields.items())
"""Settings of a topic that its logs go by. Others are the cluster's."""


def log_settings(configs: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in configs.items() if key in OF_THE_LOG}


@contextmanager
def storage_failures(place: tuple[str, int] | None = None) -> Iterator[None]:
    """What the storage engine cannot do, the replica stops for (CL-F9). place: whose records it cannot read, if that is
    the matter."""
    try:
        yield
    except LogDamaged as error:
        raise (LogBroken(str(error)) if place is None else LogCorrupt(str(error), TopicPartition(*place))) from error
    except StorageError as error:
        raise LogBroken(str(error)) from error


class LastReadCache:
    """What was read last of all logs: the followers of one partition ask for the same within a moment."""

    __slots__ = ("_asked", "_records")

    def __init__(self) -> None:
        self._asked: tuple[object, ...] = ()
        self._records: Records = b""

    def read(self, log: Log, offset: int, max_bytes: int) -> Records:
        asked = log, offset, max_bytes, log.end_offset, log.leader_epoch
        if asked != self._asked:
            self._records = replica.fetch_as_replica(log, offset, max_bytes).records
            self._asked = asked
        return self._records

    def forget(self) -> None:
        """A log has other records than it had at some offsets."""
        self._asked, self._records = (), b""


class StoredLog:
    """See `ReplicaLog`."""

    __slots__ = ("_broker", "_clock_ms", "_last", "log", "topic_id")

    def __init__(
        self, broker: Broker, log: Log, topic_id: bytes, clock_ms: Callable[[], int], last: LastReadCache
    ) -> None:
        """clock_ms: the wall clock, by which segments age. last: of all logs."""
        self._last = last
        self._broker = broker
        self._clock_ms = clock_ms
        self.log = log
        self.topic_id = topic_id

    @property
    def start(self) -> int:
        return self.log.start_offset

    @property
    def end(self) -> int:
        return self.log.end_offset

    @property
    def kept(self) -> int:
        return self.log.kept_end

    @property
    def waits_for_flush(self) -> bool:
        """Whether as much of it is not flushed yet as its topic's settings allow."""
        return self.log.waits_for_flush

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def last_epoch(self) -> int:
        return replica.last_leader_epoch(self.log)

    def lead(self, epoch: int) -> None:
        try:  # not `storage_failures`, which would take as long as the rest of it: a node leads thousands at once
            replica.start_leading(self.log, epoch)
        except StorageError as error:
            raise LogBroken(str(error)) from error

    def rest(self) -> None:
        """This node leads it no more: retention is another's work (CL-F8)."""
        replica.start_following(self.log)

    def end_for_epoch(self, epoch: int) -> tuple[int, int]:
        return replica.end_offset_for_epoch(self.log, epoch)

    def epoch_at(self, offset: int) -> int:
        log = self.log
        return log.epochs.at(offset) if log.start_offset <= offset < log.end_offset else -1

    def read(self, offset: int, max_bytes: int) -> Records:
        with storage_failures(self.log.partition):
            return self._last.read(self.log, offset, max_bytes)

    def append_as_follower(self, records: Records) -> None:
        assert isinstance(records, Buffer)
        self._check_failure()
        replica.start_following(self.log)
        try:
            replica.append_as_follower(self.log, records, self._clock_ms())
        except LogDamaged as error:  # what lies here
            raise LogBroken(str(error)) from error
        except (CorruptMessage, UnexpectedAppendOffset) as error:  # what came
            raise DamagedBatches(str(error)) from error
        except StorageError as error:
            raise LogBroken(str(error)) from error

    def cut(self, to: int) -> None:
        self._check_failure()
        self._last.forget()
        with storage_failures():
            self._broker.truncate(*self.log.partition, to)

    def restart_at(self, at: int) -> None:
        self._last.forget()
        with storage_failures():
            self._broker.begin_anew(*self.log.partition, at)

    def advance_start(self, to: int) -> None:
        with storage_failures():
            replica.advance_start(self.log, to)

    def tell_high_watermark(self, offset: int) -> None:
        self.log.tell_high_watermark(offset)

    def flush(self) -> None:
        """From any thread."""
        with storage_failures():
            self.log.flush()

    def _check_failure(self) -> None:
        if self.log.failure is not None:
            raise LogBroken(str(self.log.failure))


class PrivateLog(StoredLog):
    """Of a topic that only nodes know of: a start that finds less than was flushed takes it for damage, not for the
    torn end of a write that nobody was promised."""

    __slots__ = ()

    def flush(self) -> None:
        super().flush()
        try:
            self._broker.private_written()
        except OSError as error:  # it is durable without that
            logger.warning("the end of the log could not be saved", partition=str(self.log.partition), why=str(error))


def verify_log(log: Log) -> None:
    """Whether all of it can be read: of logs that are small. Raises LogBroken."""
    offset, end = log.start_offset, log.end_offset
    with storage_failures():
        while offset < end:
            following = offset
            for batch in read_batches(replica.fetch_as_replica(log, offset, LOOK_BYTES).records):
                if not batch.crc_ok or batch.lost:
                    raise LogFenced(f"{log.directory} at offset {batch.base_offset}: its bytes are damaged")
                following = batch.next_offset
            if following <= offset:
                raise LogFenced(f"{log.directory} at offset {offset}: nothing can be read, but it ends at {end}")
            offset = following


class StoredLogs:
    """See `Logs`."""

    def __init__(self, broker: Broker, told: ReportHighWatermark, clock_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._told = told
        self._clock_ms = clock_ms
        self._open: dict[TopicPartition, StoredLog] = {}
        self._last = LastReadCache()
        self._left = False

    def get(self, place: TopicPartition) -> StoredLog | None:
        """A log that was opened here before."""
        return self._open.get(place)

    def held(self) -> Iterable[tuple[TopicPartition, bytes]]:
        for name, topic in list(self._broker.held_topics().items()):
            for number in topic.here:
                yield TopicPartition(name, number), topic.id

    def topic_id(self, place: TopicPartition) -> bytes | None:
        topic = self._broker.held_topics().get(place.topic)
        if topic is None:
            return None
        here = topic.here
        at = bisect_left(here, place.partition)  # it is asked for each of thousands
        return topic.id if at < len(here) and here[at] == place.partition else None

    def prepare(self, me: int, image: ClusterImage, changes: ImageChanges) -> None:
        """Take in at once what the image newly assigns to this node: a write or two instead of one for each, where
        there are many. What cannot be done says so when it is opened."""
        wanted: dict[str, list[int]] = {}
        for moved in changes.partitions:
            topic = image.topics[moved.place.topic]
            if me in moved.after.replicas and self.topic_id(moved.place) != topic.topic_id:
                wanted.setdefault(moved.place.topic, []).append(moved.place.partition)
        topics = []
        for name, numbers in wanted.items():
            topic_id = image.topics[name].topic_id
            with suppress(StorageError):
                self._set_aside_former(name, topic_id)
                topics.append(self._topic(name, topic_id, numbers))
        if topics:
            with suppress(StorageError):
                self._broker.host(topics)

    def use_settings(self, image: ClusterImage, names: Iterable[str]) -> None:
        """What is set for these topics, or not any more, holds for their logs from now on. Words that a log of this
        version does not understand leave its settings as they are."""
        for name in names:
            topic, held = image.topics[name], self._broker.held_topics().get(name)
            if held is None or held.id != topic.topic_id:
                continue
            wanted = log_settings(topic.configs)
            changes = {**dict.fromkeys(held.configs), **wanted}
            if wanted == held.configs:
                continue
            try:
                change = self._broker.plan_change(name, changes)
                self._broker.change([change])
                for number in held.here:
                    self._broker.use(change, number)
            except StorageError as error:
                logger.warning("topic settings not taken over", topic=name, error=str(error))

    def open(self, place: TopicPartition, topic_id: bytes) -> StoredLog:
        known = self._open.get(place)
        if known is not None and known.topic_id == topic_id and known.log.failure is None:
            return known
        with storage_failures(place):
            if self.topic_id(place) != topic_id:
                self._set_aside_former(place.topic, topic_id)
                for failure in self._broker.host([self._topic(place.topic, topic_id, [place.partition])]).values():
                    raise failure
            log = self._broker.held_log(*place)
            if log.failure is not None:
                raise log.failure
        private = place.topic in PRIVATE_TOPICS
        if private:
            verify_log(log)
        made = PrivateLog if private else StoredLog
        opened = self._open[place] = made(self._broker, log, topic_id, self._clock_ms, self._last)
        return opened

    def reopen(self, place: TopicPartition, topic_id: bytes) -> StoredLog:
        if self.topic_id(place) == topic_id:
            with storage_failures(place):
                self._broker.reopen(*place)
        return self.open(place, topic_id)

    def no_room(self, wanted: int) -> str:
        """See `Logs.no_room`."""
        return self._broker.no_room(wanted)

    def is_gone(self, place: TopicPartition) -> bool:
        """Whether nothing is left of a copy that is to be here. Raises LogBroken where that cannot be told."""
        with storage_failures():
            return self._broker.is_gone(*place)

    def give_up(self, place: TopicPartition) -> None:
        """Have no copy of it any more. Raises LogBroken."""
        self._open.pop(place, None)
        with storage_failures():
            self._broker.drop(place.topic, [place.partition])

    def delete(self, place: TopicPartition, topic_id: bytes) -> None:
        """One that cannot be deleted stays, and is told of as deleted again after the next start."""
        if self.topic_id(place) != topic_id:
            return
        self._open.pop(place, None)
        try:
            self._broker.drop(place.topic, [place.partition])
            self._left = True
        except StorageError as error:
            logger.warning("replica not deleted", partition=str(place), error=str(error))

    @property
    def left_files(self) -> bool:
        """Whether copies were deleted of which the files are there, since it was asked last."""
        left, self._left = self._left, False
        return left

    def clear_away(self) -> None:
        """Remove the files of copies that were deleted. In any thread."""
        try:
            self._broker.clear_away()
        except StorageError as error:
            logger.warning("files of deleted replicas not removed", error=str(error))

    def _set_aside_former(self, name: str, topic_id: bytes) -> None:
        """What is held of a former topic of the name becomes stray: another topic's records are never mixed with it."""
        former = self._broker.held_topics().get(name)
        if former is not None and former.id != topic_id:
            for number in former.here:
                self._open.pop(TopicPartition(name, number), None)
            self._broker.set_aside(name, list(former.here))

    def _topic(self, name: str, topic_id: bytes, numbers: Sequence[int]) -> Topic:
        view = self._told(name)
        if view is None or view.topic_id != topic_id:
            return Topic(name, topic_id, max(numbers) + 1, {}, name in INTERNAL, tuple(sorted(numbers)))
        partitions = max([*view.partitions, *numbers]) + 1
        return Topic(name, topic_id, partitions, log_settings(view.configs), view.internal, tuple(sorted(numbers)))


# Flushes, one round at a time
# ----------------------------

WORKERS: Final = 4


class FlushRound(NamedTuple):
    done: list[TopicPartition]
    broken: list[tuple[TopicPartition, str]]


class FlushThreads:
    """Threads that take calls from one queue. An executor would make a future with a lock of its own for each call,
    and nothing is asked of it here: what a call raises, it has to report by itself."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[Thread] = []

    def start(self, calls: Sequence[Callable[[], None]]) -> None:
        """Make these calls, each in a thread of its own where those before have ended."""
        while len(self._threads) < len(calls):
            thread = Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        for call in calls:
            self._calls.put(call)

    def stop(self) -> None:
        """The threads end after the call that they are in; what waits in the queue is dropped."""
        with suppress(Empty):
            while True:
                self._calls.get_nowait()
        for _ in self._threads:
            self._calls.put(None)
        self._threads.clear()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


class ReplicaFlusher:
    """`told` hears of each round in the loop."""

    def __init__(
        self,
        log_of: Callable[[TopicPartition], StoredLog | None],
        told: Callable[[FlushRound], None],
        failed: TaskFailed,
    ) -> None:
        self._log_of = log_of
        self._told = told
        self._threads = FlushThreads("replica-fsync")
        self._wanted: dict[TopicPartition, None] = {}
        self._ends: dict[TopicPartition, int] = {}
        """What the round under way flushes, and where it ended then."""
        self._failed = failed
        self._begins: asyncio.Handle | None = None
        """The next round, where the loop is to begin it."""
        self._under_way = 0
        """Shares of the round that are not back yet."""
        self._results: list[FlushRound] = []
        self._abandoned = False
        self._quiet: asyncio.Future[None] | None = None

    def soon(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Flush these, as far as their settings ask for it. Who comes in this turn joins; what is being flushed as it
        is takes no other round. Returned: those that count as kept already, of which nothing is told later (CL-D2:
        topics with `flush.messages` above 1)."""
        kept = []
        for place in places:
            log = self._log_of(place)
            if log is None:
                continue
            if log.kept >= log.end:
                kept.append(place)
            if log.waits_for_flush and self._ends.get(place) != log.end:
                self._wanted[place] = None
        self._begin_soon()
        return kept

    async def quiet(self) -> None:
        """When nothing is to be flushed any more."""
        while (self._under_way or self._begins) and not self._abandoned:
            self._quiet = self._quiet or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._quiet)

    def abandon(self) -> None:
        """Begin no other round, and tell nobody of this one."""
        self._abandoned = True
        self._threads.stop()
        self._grow_quiet()

    def _begin_soon(self) -> None:
        """Whoever is ready to run now comes first, and joins."""
        if self._wanted and not self._under_way and self._begins is None:
            self._begins = asyncio.get_running_loop().call_soon(self._begin_round)

    def _begin_round(self) -> None:
        """Each round is one call of a thread and one of the loop: a task, and futures that wait for each other, cost as
        much as all else that is done for a batch that is copied."""
        self._begins = None
        logs = [(place, log) for place in self._wanted if (log := self._log_of(place)) is not None]
        self._wanted.clear()
        if not logs or self._abandoned:
            self._grow_quiet()
            return
        self._ends = {place: log.end for place, log in logs}
        self._under_way = min(WORKERS, len(logs))
        loop = asyncio.get_running_loop()
        shares = [logs[number::WORKERS] for number in range(self._under_way)]
        self._threads.start([partial(self._flush, loop, share) for share in shares])

    def _flush(self, loop: asyncio.AbstractEventLoop, share: list[tuple[TopicPartition, StoredLog]]) -> None:
        """In a thread."""
        try:
            result: FlushRound | Exception = flush_logs(share)
        except Exception as error:
            result = error
        with suppress(RuntimeError):  # the loop is closed: this node has stopped
            loop.call_soon_threadsafe(self._came_back, result)

    def _came_back(self, result: FlushRound | Exception) -> None:
        """All of a round are told together, once the last is back."""
        if self._abandoned:
            return
        if isinstance(result, Exception):
            self._failed(result)
        else:
            self._results.append(result)
        self._under_way -= 1
        if self._under_way:
            return
        self._ends = {}
        results, self._results = self._results, []
        try:
            for each in results:
                self._told(each)
        except Exception as error:
            self._failed(error)
        self._begin_soon()
        if self._begins is None:
            self._grow_quiet()

    def _grow_quiet(self) -> None:
        quiet, self._quiet = self._quiet, None
        if quiet is not None and not quiet.done():
            quiet.set_result(None)


def flush_logs(logs: list[tuple[TopicPartition, StoredLog]]) -> FlushRound:
    """In a thread."""
    flushed = FlushRound([], [])
    for place, log in logs:
        try:
            log.flush()
        except LogBroken as error:
            flushed.broken.append((place, str(error)))
        else:
            flushed.done.append(place)
    return flushed
