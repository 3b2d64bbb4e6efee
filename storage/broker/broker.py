"""The facade: topics and records of one node. Synchronous.

One thread changes topics and appends; `fetch`, `list_offset` and `flush` may be called from others meanwhile.
Listeners check a reader's leader epoch, and the epoch of what it has read, against the log before they read (KIP-320,
KIP-595); -1, not given, is not checked.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from muster.storage.broker.record_log import RecordLog
from muster.storage.errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetOutsideLog,
    PolicyViolation,
    StorageError,
    UnknownLeaderEpoch,
)
from muster.storage.files import Buffer
from muster.storage.logs.log import Log
from muster.storage.logs.producer_state import MarkerToWrite, OnRecord
from muster.storage.logs.transactions import TransactionGuard
from muster.storage.settings_text import os_error_remedy
from muster.storage.topics.catalog import CatalogEntry, TopicConfigChange, describe_topics, plan_topic_change
from muster.storage.topics.hosting import HostedTopics
from muster.storage.types import Appended, AppendOrigin, Fetched, TopicPartition


class Broker(HostedTopics):
    """The topics of one node (see `Topics`) and what is done with their records."""

    ahead: Callable[[Sequence[TopicPartition]], Awaitable[None]] | None = None
    """Waits until `ends` are known, where others are to say; None: they always are."""

    def append(
        self,
        topic: str,
        partition: int,
        batches: Buffer,
        now_ms: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: TransactionGuard | None = None,
    ) -> Appended:
        """Append whole batches to a partition, all or none (see `Log.append`).

        COORDINATOR is for the node's own writers: internal topics, control batches. Not yet durable on return:
        see `flush` and `muster.storage.broker.group_commit`.
        """
        log = self._logs.get((topic, partition))
        if log is None:
            raise self._no_log(topic, partition)
        if origin is AppendOrigin.CLIENT:
            facts = self._topics.get(topic)  # None while the topic is on its way in or out.
            if facts is None or facts.internal:
                self.check_writable(topic)
        return log.append(batches, now_ms, origin=origin, guard=guard)

    def append_own(self, topic: str, partition: int, batches: Sequence[Buffer], now_ms: int) -> None:
        """Append batches of the node's own, in their order and in few writes. Raises at the first that is refused;
        those before it may be in the log."""
        log, done = self.log(topic, partition), 0
        while done < len(batches):
            done += len(log.append_each(batches[done:], now_ms, True, origin=AppendOrigin.COORDINATOR))
            if done < len(batches):
                log.append(batches[done], now_ms, origin=AppendOrigin.COORDINATOR)
                done += 1

    def append_marker(self, topic: str, partition: int, marker: MarkerToWrite, now_ms: int) -> Appended:
        """End what a producer has open in this partition (see `Log.append_marker`)."""
        return self.log(topic, partition).append_marker(marker, now_ms)

    def append_markers(
        self, topic: str, partition: int, markers: Sequence[MarkerToWrite], now_ms: int
    ) -> list[Appended | StorageError | OSError]:
        """The same for several producers (see `Log.append_markers`)."""
        return self.log(topic, partition).append_markers(markers, now_ms)

    def fetch(self, topic: str, partition: int, offset: int, max_bytes: int, min_one: bool = True) -> Fetched:
        """Batches from `offset` on, up to the high watermark (see `Log.fetch`)."""
        return self.log(topic, partition).fetch(offset, max_bytes, min_one=min_one)

    def list_offset(self, topic: str, partition: int, timestamp: int) -> tuple[int, int]:
        """(offset, timestamp) by time: -1 latest, -2 earliest, -3 largest timestamp (see `Log.list_offset`)."""
        return self.log(topic, partition).list_offset(timestamp)

    def leader_of(self, topic: str, partition: int) -> tuple[int, int]:
        """Node id and leader epoch of who leads a partition by now, for who knows another one; (-1, -1) where there is
        nobody else."""
        return -1, -1

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset that the next record gets, whether or not all before it is readable yet."""
        return self.log(topic, partition).end_offset

    def start_offset(self, topic: str, partition: int) -> int:
        return self.log(topic, partition).start_offset

    def ends(self, places: Iterable[TopicPartition]) -> list[int]:
        """The high watermark of each, -1 where there is no log or it cannot be read. Nothing is opened or raised."""
        logs = self._logs
        return [-1 if (log := logs.get(place)) is None else log.high_watermark for place in places]

    def starts(self, places: Iterable[TopicPartition]) -> list[int]:
        """The first offset of each, -1 where there is no log."""
        logs = self._logs
        return [-1 if (log := logs.get(place)) is None else log.start_offset for place in places]

    def sizes(self, places: Iterable[TopicPartition]) -> list[int]:
        """Bytes of each one's segments, 0 where there is no log."""
        logs = self._logs
        return [0 if (log := logs.get(place)) is None else log.size for place in places]

    def high_watermark(self, topic: str, partition: int) -> int:
        """Fetches end here."""
        return self.log(topic, partition).high_watermark

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Give up the records below `before` (-1: all up to the high watermark); the new log start."""
        log = self.log(topic, partition)
        if log.settings.cleanup_policy == "compact":
            raise PolicyViolation(
                f"Records of {topic}-{partition} cannot be deleted: its cleanup.policy is compact. "
                "Write a tombstone for each key, or set compact,delete."
            )
        until = log.high_watermark
        target = until if before == -1 else before
        if not 0 <= target <= until:
            raise OffsetOutsideLog(
                f"Records of {topic}-{partition} cannot be deleted up to {before}; expected -1, or 0 to {until}."
            )
        if log.move_start(target):
            self._write_checkpoint("log starts")
        return log.start_offset

    def empty_private(self, topic: str, partition: int) -> None:
        """Give up all records of a private log. StorageError where it is damaged: that is mended first."""
        log = self.private_log(topic, partition)
        if log is None:
            return
        if log.failure:
            raise log.failure
        with log.reshaping:
            log.start_offset = log.end_offset
        self._write_checkpoint("log starts")

    def flush(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Make what was appended to these partitions (None: all) durable. Safe beside appends in another thread."""
        wanted = self.logs() if partitions is None else (self.log(*place) for place in partitions)
        for log in wanted:
            log.flush()

    def next_producer_id(self, known: int = -1, epoch: int = -1) -> tuple[int, int]:
        """(id, epoch) for an idempotent producer: the next epoch of the one it has, or an id never given before."""
        try:
            return self._producer_ids.next(known, epoch)
        except OSError as error:
            raise StorageError(
                f"Could not reserve producer ids in {self.data_dir}: {error.strerror or error}. Try again."
            ) from error

    def next_fence_id(self) -> int:
        """A producer id that was never given before, for a fence."""
        try:
            return self._producer_ids.next_fence()
        except OSError as error:
            raise StorageError(
                f"Could not reserve producer ids in {self.data_dir}: {error.strerror or error}. Try again."
            ) from error

    def keep_fences(self, on_record: OnRecord) -> None:
        """Fences are forgotten, once they are idle for long enough, only where this says that nobody needs them."""
        self._upkeep.on_record = on_record

    # -- settings of topics -------------------------------------------------------------------------------

    def plan_change(self, name: str, changes: Mapping[str, str | None]) -> TopicConfigChange:
        """What `change` is to write down, if nothing speaks against it: None stands for the node's default."""
        return plan_topic_change(self.topic(name), self.settings, changes)

    def change(self, changes: Sequence[TopicConfigChange]) -> None:
        """Write the settings of topics down; they survive a crash once this returns, and hold from `use` on.

        In any thread, but one change of topics at a time.
        """
        topics = {change.topic.name: change.topic for change in changes}
        try:
            self._save({**self._catalog, **{name: CatalogEntry.of(topic) for name, topic in topics.items()}})
        except OSError as error:
            raise StorageError(
                f"The settings of {describe_topics(list(topics))} could not be written: "
                f"{error.strerror or error}. What to do: "
                f"{os_error_remedy(error)}, then try again."
            ) from error
        self._know({**self._topics, **topics})

    def use(self, change: TopicConfigChange, partition: int) -> None:
        """From here on these settings hold for one partition. By the thread that appends."""
        log = self._logs.get((change.topic.name, partition))
        if log is not None:
            log.use(change.settings)

    # -- upkeep -------------------------------------------------------------------------------------------

    def tick(self, now_ms: int, *, compacting: bool = True, aged: list[Log] | None = None) -> list[str]:
        """The periodic work: flushes by age, checkpoints, retention, one compaction.

        To be called about once a second by the thread that appends. What fails is logged, tried again, and
        told in one sentence each. With `compacting` off somebody else calls `compact`, from a thread where it holds up
        nobody. With `aged` this may be called in another thread, and the appending one calls `roll_aged` for each log
        that it gets.
        """
        return self._upkeep.tick(list(self.logs()), now_ms, compacting=compacting, aged=aged)

    def roll_aged(self, log: Log, now_ms: int) -> None:
        """Begin a new segment, so that the next `tick` can remove the one before."""
        if log.failure is None:
            log.roll(now_ms)
            self._upkeep.retain_soon(now_ms)

    def compact(self, now_ms: int) -> TopicPartition | None:
        """Compact the log that needs it most; which one that was. On any thread.

        `close` and `delete_topic` make it stop within a batch, with the log as it was.
        """
        return self._upkeep.compact(list(self.logs()), now_ms)


# What a reader knows of the leader (KIP-320, KIP-595)
# ----------------------------------------------------

NOT_TOLD = -1


class Divergence(NamedTuple):
    """The reader has records that this log has not: where the last epoch that both know ends (KIP-595)."""

    epoch: int
    end_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


def check_epoch(broker: RecordLog, topic: str, partition: int, epoch: int) -> StorageError | None:
    """The refusal of a client that knows an older or a newer leader epoch than the log; -1 knows none."""
    if epoch < 0:
        return None
    otherwise: StorageError | None = None
    try:
        ours = broker.log(topic, partition).leader_epoch
    except NotLeaderOrFollower as error:
        if error.leader_epoch < 0:
            return error
        # As in Kafka: who is behind, the client or this node, counts before who leads.
        ours, otherwise = error.leader_epoch, error
    except StorageError as error:
        return error
    where = f"{topic}-{partition} has leader epoch {ours}, the request says {epoch}"
    if epoch < ours:
        return FencedLeaderEpoch(f"{where}. Look the leader up again.", *broker.leader_of(topic, partition))
    if epoch > ours:
        return UnknownLeaderEpoch(f"{where}. Try again later.")
    return otherwise


def check_history(
    broker: RecordLog, topic: str, partition: int, fetch_offset: int, last_epoch: int
) -> StorageError | Divergence | None:
    """Where the reader's log parts from this one, by the epoch of the last record that it has; None if nowhere."""
    try:
        log = broker.log(topic, partition)
    except StorageError as error:
        return error
    common, end = end_of_epoch(log, last_epoch)
    if common < 0:
        return OffsetOutsideLog(
            f"{topic}-{partition} does not know leader epoch {last_epoch}; its own is {log.leader_epoch}. Begin anew."
        )
    if common == last_epoch and end >= fetch_offset:
        return None
    return Divergence(common, end, log.high_watermark, log.last_stable_offset, log.start_offset)


def end_of_epoch(log: Log, epoch: int) -> tuple[int, int]:
    """(epoch, end offset) of the largest leader epoch of a log that is not above this one; (-1, -1) if unknown."""
    if not log.epochs.entries and epoch == log.leader_epoch:  # nothing was written yet
        return epoch, log.end_offset
    return log.epochs.end_offset(epoch, log.end_offset)
