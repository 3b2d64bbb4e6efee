"""One partition: its segments, append, fetch and look-up by time.

One thread appends, rolls and removes; any thread may fetch, flush or compact meanwhile. The list of segments is
replaced, never changed, and a reader keeps the files it has begun to read. Whoever changes which segments the log
consists of holds `log.reshaping`.

What a crash could undo is not handed out: fetches end at the high watermark, which follows the flushes where the topic
promises a flush before the answer, and the log's end where it does not.

Nearly every append takes the fast path (append_fast_path.py). What is done to files is in log_files.py, and what
readers get in log_reads.py.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.storage.config import TopicSettings
from muster.storage.errors import (
    InvalidFetchSize,
    LogDamaged,
    RecordListTooLarge,
    RecordsCut,
    StorageError,
    StorageTroubles,
    UnknownTopicOrPartition,
)
from muster.storage.files import Buffer, Files
from muster.storage.logs.append_fast_path import NO_GUARDS, AppendFastPath
from muster.storage.logs.log_files import (
    check_active_file,
    fence_log,
    finish_roll,
    is_segment_full,
    open_active,
    roll_segment,
    save_begun_epochs,
    seal_last_segment,
    undo_failed_write,
)
from muster.storage.logs.log_metadata import LeaderEpochs, Summary
from muster.storage.logs.log_reads import (
    MemoryTail,
    TruncationGuard,
    fetch_below_watermark,
    report_damage,
    search_timestamp,
    stable_offset,
)
from muster.storage.logs.producer_state import (
    DescribedProducer,
    KnownBatch,
    MarkerToWrite,
    OnRecord,
    ProducerState,
    transactional_head,
)
from muster.storage.logs.segment import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    AbortedEntry,
    OpenSegments,
    Segment,
    SegmentList,
)
from muster.storage.logs.stamp import Stamped, stamp_batches
from muster.storage.logs.transactions import (
    NO_TIME,
    NOTHING_UNSTABLE,
    OpenTransaction,
    StableHold,
    StableHolds,
    TransactionGuard,
)
from muster.storage.records.batch import TRANSACTIONAL_BIT
from muster.storage.records.markers import TransactionMarker, encode_marker
from muster.storage.records.scan import BatchHead
from muster.storage.records.validation import check_records, check_timestamps, split_batches, validates_records
from muster.storage.types import Appended, AppendOrigin, Fetched, TopicPartition

# What opening a directory hands to its log
# -----------------------------------------


@dataclass(slots=True)
class LogRecovery:
    """What opening a log found: bytes cut off its tail, or damage that makes it refuse appends."""

    truncated_bytes: int = 0
    end_offset: int = 0
    why: str = ""
    damage: LogDamaged | None = None
    loss: RecordsCut | None = None
    """Records that were cut off though they could be read."""
    unflushed: bool = False
    """What was found may not be on disk yet."""


@dataclass(slots=True)
class LogState:
    """What `muster.storage.logs.loader` gives a log to start from."""

    segments: list[Segment]
    summaries: dict[int, Summary]
    start_offset: int
    producers: ProducerState = field(default_factory=ProducerState)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    recovered: LogRecovery = field(default_factory=LogRecovery)


# The log
# -------

PRODUCERS_AT_ONCE = 500
"""So many producers are told of while an append may have to wait."""

# To ask an enumeration for a member takes longer than to compare.
_CLIENT, _REPLICATION = AppendOrigin.CLIENT, AppendOrigin.REPLICATION


class Log:
    """The records of one partition."""

    # Of more than thirty attributes without slots CPython 3.11 finds each by a search, which appends and fetches feel.
    __slots__ = ("__weakref__", "_flush_messages", "_own_short_way", "_short_way", "_tells_at_once",
                 "_told_high_watermark", "cleaned_to", "cuts", "directory", "doomed", "durable_offset", "end_offset",
                 "epochs", "failure", "files", "following", "holds", "holes", "kept_epochs", "leader_epoch",
                 "let_go", "listeners", "lock", "looks", "most_entries", "near", "opened", "owed", "partition",
                 "producers", "recovered", "reshaping", "retired", "segment_list", "settings", "start_offset",
                 "summaries", "topic_id", "troubles", "uncleanable", "unflushed_since_ms")  # fmt: skip

    def __init__(
        self,
        files: Files,
        directory: str,
        partition: TopicPartition,
        settings: TopicSettings,
        opened: OpenSegments,
        state: LogState,
        topic_id: str = "",
    ) -> None:
        self.files = files
        self.directory = directory
        self.partition = partition
        self.settings = settings
        self.opened = opened
        self.recovered = state.recovered
        self.summaries = state.summaries
        self.start_offset = state.start_offset
        self.leader_epoch = max(state.epochs.latest, 0)
        self.producers = state.producers
        self.epochs = state.epochs
        # What is written down of them: the same, but for one that has begun and of which no record is flushed yet.
        self.kept_epochs = state.epochs
        self.segment_list = SegmentList(state.segments)
        self.end_offset = self.segment_list.active.next_offset
        # Opening flushes what it found, so all of it is durable.
        self.durable_offset = self.end_offset
        self.unflushed_since_ms: int | None = None
        self.failure: StorageError | None = state.recovered.damage
        # Whose log it is: a topic that is made anew under the same name has another id.
        self.topic_id = topic_id
        # How far it has been compacted; whether damage keeps it from going on; whether its topic has been removed.
        self.cleaned_to = 0
        self.uncleanable = False
        self.retired = False
        # The node's, once it is among its logs.
        self.troubles = StorageTroubles()
        # The node's, too: how long transactions held readers back.
        self.holds: StableHolds | None = None
        # Of a cluster: how far records are committed. None: this node alone decides that, by flushing.
        self._told_high_watermark: int | None = None
        # Of a cluster: whether another node leads, and whether offsets may be missing in what it sends.
        self.following = False
        self.holes = False
        self._settle(settings)
        self.doomed: list[tuple[int, str]] = []
        # Files beside the last sealed segment that a flush has yet to flush, with the directory; see `finish_roll`.
        self.owed: list[str] | None = None
        # Of what follows from the records: producers, transactions, how far they are durable. Held for a moment.
        self.lock = threading.Lock()
        # Held while the list of segments and what is written down of it change: by the appending thread for rolls
        # and removals, by whoever compacts for the swap.
        self.reshaping = threading.RLock()
        # Whoever compacts is to stop: the log is about to be closed or removed.
        self.let_go = False
        # Called when more can be read; possibly from the thread that flushes.
        self.listeners: list[Callable[[str, int], None]] = []
        self.cuts = TruncationGuard(self.lock, self.reshaping)
        self.near = MemoryTail(self)

    def _settle(self, settings: TopicSettings) -> None:
        """What follows from the settings, worked out once."""
        self.settings = settings
        self.looks = validates_records(settings)
        # Records of clients need a key in a compacted log. A coordinator's always have one.
        self._own_short_way = AppendFastPath(self) if settings.message_timestamp_type == "CreateTime" else None
        self._short_way = None if settings.compacted else self._own_short_way
        self.most_entries = min(settings.index_room // 8, settings.index_room // 12 - 1)
        self._flush_messages = settings.flush_messages
        self._tells_at_once = settings.flush_messages != 1
        self._settle_holes()

    def _settle_holes(self) -> None:
        if self._told_high_watermark is not None and self.settings.compacted:
            self.holes = self.segment_list.active.gaps = True

    def use(self, settings: TopicSettings) -> None:
        """From here on these settings hold. By the thread that appends."""
        if self._tells_at_once and settings.flush_messages == 1:
            self.flush()  # what readers have seen stays seen
        self._settle(settings)

    # -- what a reader may know ---------------------------------------------------------------------------

    @property
    def segments(self) -> Sequence[Segment]:
        return self.segment_list.all

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segment_list.all)

    @property
    def unflushed(self) -> int:
        """Records that a power cut could still take."""
        return self.end_offset - self.durable_offset

    @property
    def waits_for_flush(self) -> bool:
        """Whether an append must not be acknowledged before the next flush."""
        return self.end_offset - self.durable_offset >= self._flush_messages

    @property
    def recovery_point(self) -> int:
        """Up to here records were durable once. Those that damage took away still count: a start that finds fewer must
        say so, each time, and cut nothing off.
        """
        damage = self.recovered.damage
        if damage is not None:
            return max(self.durable_offset, damage.last_offset)
        # Without a byte in it there is nothing to miss; the name of its file says where it goes on.
        return self.durable_offset if self.segment_list.active.size or len(self.segments) > 1 else 0

    @property
    def kept_end(self) -> int:
        """Up to here the log counts as kept: flushed, where the topic promises that, else written."""
        return self.end_offset if self._tells_at_once else self.durable_offset

    @property
    def high_watermark(self) -> int:
        """Readers see what lies below. A node on its own decides it by flushing, one of a cluster is told."""
        if self._told_high_watermark is not None:
            return min(self._told_high_watermark, self.end_offset)
        return self.end_offset if self._tells_at_once else self.durable_offset

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, or the start of the oldest transaction that is still open below it."""
        high = self.high_watermark
        return high if self.producers.unstable.first >= high else stable_offset(self, high)

    @property
    def is_replicated(self) -> bool:
        """Whether it is a log of a cluster, which is told its high watermark."""
        return self._told_high_watermark is not None

    @property
    def told_high_watermark(self) -> int | None:
        """Of a log of a cluster the high watermark as it was told."""
        return self._told_high_watermark

    def follow(self, high_watermark: int) -> None:
        """Be told the high watermark from now on, beginning with this one, as far as the log has it."""
        self._told_high_watermark = max(self.start_offset, min(high_watermark, self.end_offset))
        self._settle_holes()

    def tell_high_watermark(self, offset: int) -> None:
        """Learn how far the records are committed. It never falls by being told, and never lies past the end."""
        told = self._told_high_watermark
        high = max(self.start_offset, min(offset, self.end_offset))
        if told is None or high > told:
            self._told_high_watermark = high
            self._notify_listeners()

    def move_start(self, offset: int) -> bool:
        """Give up what lies before `offset`; whether that is more than was given up before. In any thread."""
        with self.reshaping:  # Retention, DeleteRecords and a leader move it.
            if offset <= self.start_offset:
                return False
            self.start_offset = offset
        self._notify_listeners()  # The last stable offset may have moved along.
        return True

    def lower_high_watermark(self, offset: int) -> None:
        """The log has been cut to this offset: what comes there is not committed, whatever was told."""
        if self._told_high_watermark is not None:
            self._told_high_watermark = min(self._told_high_watermark, offset)

    # -- append -------------------------------------------------------------------------------------------

    def append(
        self,
        batches: Buffer,
        now_ms: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        guard: TransactionGuard | None = None,
        marker_level: int = 0,
        looked: bool = False,
    ) -> Appended:
        """Give offsets to one or more whole batches and write them with one call, all or none.

        `origin` is CLIENT or COORDINATOR (see `AppendOrigin`); `looked` says that `look_into` has been content with
        the batches. The first batch of a transaction needs a `guard` (see `make_guard`); `marker_level` is that of
        markers (see `append_marker`). Refuses by raising; nothing is written then. A batch that an idempotent producer
        sent before is answered with its old offsets. Durable after the next `flush`.
        """
        if self.failure:
            raise self.failure
        # Kept here, for the log may be retired meanwhile.
        short_way = self._short_way if origin is _CLIENT else self._own_short_way
        if short_way is not None:
            done = short_way.append(batches, now_ms, looked or origin is not _CLIENT, guard)
            if done is not None:
                return done
        settings = self.settings
        split_up = split_batches(memoryview(batches), settings, origin)
        if origin is _CLIENT:
            check_timestamps(split_up, settings, now_ms)
            if self.looks and not looked:
                check_records(split_up, settings, now_ms)
        append_time = now_ms if settings.message_timestamp_type == "LogAppendTime" else -1
        stamped = stamp_batches(split_up, self.end_offset, self.leader_epoch, append_time)
        known = self.write(stamped, now_ms, origin=origin, guard=guard, marker_level=marker_level)
        if known:
            return Appended(known.first_offset, known.last_offset, append_time, self.start_offset)
        return Appended(stamped.heads[0].base_offset, stamped.next_offset - 1, append_time, self.start_offset)

    def append_marker(self, marker: MarkerToWrite, now_ms: int) -> Appended:
        """End what the producer has open in this log; where nothing is open, the marker changes nothing (TX-L5).

        InvalidProducerEpoch, TransactionCoordinatorFenced, or another StorageError. Durable after the next `flush`.
        """
        if self.failure:
            raise self.failure
        if (fast := self._own_short_way) is not None and (done := fast.append_markers((marker,), now_ms)):
            return done[0]
        batch = encode_marker(
            commit=marker.commit,
            producer_id=marker.producer_id,
            producer_epoch=marker.epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=now_ms,
        )
        return self.append(batch, now_ms, origin=AppendOrigin.COORDINATOR, marker_level=marker.level)

    def append_markers(self, markers: Sequence[MarkerToWrite], now_ms: int) -> list[Appended | StorageError | OSError]:
        """The same for each of these, in their order and in few writes. A refusal of one does not affect the others."""
        done: list[Appended | StorageError | OSError] = []
        while len(done) < len(markers):
            fast = None if self.failure else self._own_short_way
            try:
                done += () if fast is None else fast.append_markers(markers[len(done) :], now_ms)
                if len(done) < len(markers):
                    done.append(self.append_marker(markers[len(done)], now_ms))
            except (StorageError, OSError) as error:
                done.append(error)
        return done

    def make_guard(
        self, producer_id: int, epoch: int, *, sequence: int = -1, level: int = 0
    ) -> TransactionGuard | None:
        """To be made before the coordinator is asked whether the producer's transaction has this partition, and given
        to `append` when it agrees; None where nobody has to be asked, as the transaction is open here (TX-L3).

        sequence: of the first record that waits for the answer; -1 without sequences. level: of the client. Whoever
        does not append in the end calls `drop_guard`. NotEnoughReplicas where too many are waiting.
        """
        with self.lock:
            return self.producers.make_guard(producer_id, epoch, sequence, level)

    def measure_holds(self, holds: StableHolds) -> None:
        """From here on it is measured how long transactions hold readers back."""
        with self.lock:
            self.holds = holds
            self.producers.unstable.measure(holds.clock_ms())

    def current_hold(self) -> StableHold | None:
        """The oldest open transaction, at which readers of committed records have to stop."""
        if self.producers.unstable.first == NOTHING_UNSTABLE:
            return None
        with self.lock:
            return self.producers.current_hold()

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer's transaction is open here, so that no guard is needed."""
        producer = self.producers.producers.get(producer_id)
        return producer is not None and producer.txn_first_offset >= 0 and producer.epoch == epoch

    def drop_guard(self, guard: TransactionGuard) -> None:
        """The append that the guard was made for does not come. Safe to call for one that is used or void."""
        with self.lock:
            self.producers.guards.drop(guard)

    def check_transaction(self, producer_id: int, epoch: int, guard: TransactionGuard | None = None) -> None:
        """Raise what `append` would of a coordinator's records in this producer's transaction (TX-L3):
        InvalidProducerEpoch or InvalidTxnState. Nothing is written."""
        with self.lock:
            self.producers.check([transactional_head(producer_id, epoch)], guard)

    def check_marker(self, marker: MarkerToWrite) -> None:
        """Raise what `append_marker` would for its producer (TX-L5). Nothing is written."""
        with self.lock:
            self.producers.check_marker(
                transactional_head(marker.producer_id, marker.epoch),
                TransactionMarker(not marker.commit, marker.coordinator_epoch),
                marker.level,
            )

    def look_into(self, batches: Buffer, now_ms: int) -> None:
        """Refuse what `append` would refuse of the batches themselves. From any thread; it may take its time."""
        split_up = split_batches(memoryview(batches), self.settings)
        check_timestamps(split_up, self.settings, now_ms)
        if self.looks:
            check_records(split_up, self.settings, now_ms)

    def append_each(
        self,
        arrived: Sequence[Buffer],
        now_ms: int,
        looked: bool = False,
        guards: Mapping[int, TransactionGuard] = NO_GUARDS,
        *,
        origin: AppendOrigin = _CLIENT,
    ) -> list[Appended]:
        """Do what `append` would for the first few of these, with one write; the rest, maybe all, is left. guards: by
        their place, those of first batches of transactions."""
        if self.failure:
            raise self.failure
        short_way = self._short_way if origin is _CLIENT else self._own_short_way
        return [] if short_way is None else short_way.append_each(arrived, now_ms, looked, guards)

    def write(
        self,
        stamped: Stamped,
        now_ms: int,
        *,
        origin: AppendOrigin,
        guard: TransactionGuard | None = None,
        marker_level: int = 0,
    ) -> KnownBatch | None:
        """Put numbered batches at the end; a batch known from its producer is returned and not written again.

        With REPLICATION nothing is checked; a follower sees to it that they fit into a segment as far as they can.
        """
        check = origin is not _REPLICATION
        if stamped.size > self.settings.segment_bytes and check:
            raise RecordListTooLarge(
                f"An append of {stamped.size} bytes does not fit into a segment of {self.settings.segment_bytes} "
                "(segment.bytes). Send smaller batches, or raise the setting."
            )
        markers = stamped.markers()
        if check and stamped.produced:
            with self.lock:
                known = self.producers.check(stamped.heads, guard)
                for head, marker in markers.items():
                    self.producers.check_marker(head, marker, marker_level)
            if known:
                return known
        active = self.segment_list.active
        if is_segment_full(self, stamped, now_ms):
            self.roll(now_ms)
            active = self.segment_list.active
        file = open_active(active)
        try:
            file.write(stamped.buffers, stamped.size, active.size)
        except OSError as error:
            raise undo_failed_write(self, active, error, stamped.size) from error
        self._note(active, stamped, markers, marker_level)
        self.note_end(stamped.next_offset, now_ms)
        return None

    def note_end(self, offset: int, now_ms: int) -> None:
        """The log ends at `offset` now, all of it written."""
        self.end_offset = offset
        if self.unflushed_since_ms is None:
            self.unflushed_since_ms = now_ms
        if self._tells_at_once and self.listeners:
            self._notify_listeners()

    def _note(
        self, active: Segment, stamped: Stamped, markers: dict[BatchHead, TransactionMarker], marker_level: int
    ) -> None:
        for head in stamped.heads:
            active.note(head.last_offset, head.max_timestamp, head.size)
            if head.leader_epoch > self.epochs.latest:
                # Whoever begins an epoch above 0 has said so before: see `logs.replica`.
                self.epochs.assign(head.leader_epoch, head.base_offset)
            if head.producer_id >= 0:
                self.note_producer(active, head, markers.get(head), marker_level)

    def note_producer(
        self, active: Segment, head: BatchHead, marker: TransactionMarker | None = None, marker_level: int = 0
    ) -> None:
        """The batch is in the log: its producer goes on from there, and what a marker ends is over."""
        active.producers = True
        with self.lock:
            holds = self.holds if head.attributes & TRANSACTIONAL_BIT else None
            now_ms = NO_TIME if holds is None else holds.clock_ms()
            done = self.producers.note(head, marker, marker_level, now_ms)
            if done:
                self.producers.unstable.settle(self.high_watermark)
                if done.hold and holds:
                    holds.note(self.partition, done.hold)
            if done and done.aborted:
                active.aborted.append(AbortedEntry(*done[:3], self.producers.stable_after(done)))

    def roll(self, now_ms: int, base_offset: int | None = None) -> None:
        """Seal the active segment and begin the next one; everything so far is durable then."""
        with self.reshaping:
            roll_segment(self, self.end_offset if base_offset is None else base_offset, now_ms)

    # -- durability ---------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make everything appended before this call survive a power cut. From any thread.

        After a failed fsync the system may drop what it could not write and call the rest clean, so nothing
        more is believed: the log takes no appends until it is opened again.
        """
        if self.failure:
            raise self.failure
        cuts = self.cuts.seen
        end = self.end_offset
        if end <= self.durable_offset:
            return
        if self.epochs is not self.kept_epochs:
            save_begun_epochs(self)
        # Read after `end`: a roll in between has flushed the segment before.
        active = self.segment_list.active
        finish_roll(self)
        file = open_active(active)
        try:
            file.sync()
        except OSError as error:
            raise self.fence(f"Could not flush {active.path()}: {error.strerror or error}") from error
        self.check_place()
        if self.failure:
            raise self.failure
        self._became_durable(end, cuts)

    def _became_durable(self, end: int, cuts: int) -> None:
        with self.lock:
            grew = end > self.durable_offset and self.cuts.none_since(cuts)
            if grew:
                self.durable_offset = end
                self.unflushed_since_ms = None if end >= self.end_offset else self.unflushed_since_ms
        if grew and not self._tells_at_once:
            self._notify_listeners()

    def _notify_listeners(self) -> None:
        for listener in self.listeners:
            listener(*self.partition)

    def fence(self, why: str) -> StorageError:
        """Take no more appends, and say why to everybody who asks from now on."""
        return fence_log(self, why)

    def check_place(self) -> None:
        """Fence the log if its file has been removed or replaced: what is written to it would be gone at a restart."""
        check_active_file(self)

    def close(self, *, sync: bool = True) -> None:
        """Flush and write down what makes the next start quick. Safe to call on a failed log.

        Without `sync` the caller sees to `Files.sync_all` before it counts on what was written down beside the records.
        """
        try:
            if self.failure is None:
                self.flush()
                with self.reshaping:
                    finish_roll(self)
                    active = self.segment_list.active
                    if active.size and not active.as_summarised:
                        seal_last_segment(self, active, sync=sync)
                        if sync:
                            self.files.sync_dir(self.directory)
        finally:
            self._close_files()

    def _close_files(self) -> None:
        """All of them, also when one cannot be closed: then the records are safe, yet the disk is not to be trusted."""
        failed: OSError | None = None
        for segment in self.segments:
            try:
                segment.close()
            except OSError as error:
                failed = failed or error
        if failed:
            why = failed.strerror or failed
            raise self.fence(f"Could not close the files of {self.directory}: {why}") from failed

    def last_of_producers(self) -> dict[int, tuple[int | None, int]]:
        """Of each producer the last offset with data, None without any, and its epoch."""
        with self.lock:
            return {
                number: (producer.last.last_offset if producer.last else None, producer.epoch)
                for number, producer in self.producers.producers.items()
            }

    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions without a marker in this log, oldest first."""
        with self.lock:
            return self.producers.open_transactions()

    def list_producers(self) -> list[DescribedProducer]:
        """All producers that the log knows, by id. It takes its time, and appends have turns in between; not on the
        event loop."""
        state = self.producers
        numbers = sorted(state.producers)
        found: list[DescribedProducer] = []
        for start in range(0, len(numbers), PRODUCERS_AT_ONCE):
            with self.lock:
                found += state.describe(numbers[start : start + PRODUCERS_AT_ONCE])
        return found

    def forget_producers(self, now_ms: int, idle_ms: int, on_record: OnRecord) -> None:
        """Forget producers that were idle for longer than `idle_ms`, but for fences that are on record."""
        if self.producers.producers:
            with self.lock:
                self.producers.expire(now_ms, idle_ms, on_record)

    def retire(self) -> None:
        """The partition is being removed: refuse everything from now on."""
        topic, partition = self.partition
        self.retired = True
        self.troubles.forget(self.partition)
        self.failure = UnknownTopicOrPartition(f"Partition {topic}-{partition} has been removed.")
        # The two know each other: without this each log that goes would wait for the collector of garbage.
        self._short_way = self._own_short_way = None
        for segment in self.segments:
            segment.abandon()

    # -- fetch --------------------------------------------------------------------------------------------

    def fetch(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool = True,
        committed: bool = False,
        at_hand: int | None = None,
    ) -> Fetched:
        """Batches from the one that holds `offset`, at most `max_bytes` of them, up to the high watermark.

        The last one may be cut off. With `min_one` the first comes whole even if it is larger. Records before
        `offset` in the first batch come too. With `committed` nothing of an open transaction comes, and the
        aborted ones are named. OffsetOutOfRange outside [start, end]. `at_hand` is for event loops: NotAtHand where
        more than so many bytes would be read, or any that has to be waited for or looked at.
        """
        if max_bytes < 0:
            raise InvalidFetchSize(f"A fetch asked for {max_bytes} bytes; expected 0 or more.")
        return report_damage(fetch_below_watermark, self, offset, max_bytes, min_one, committed, at_hand)

    # -- look-up ------------------------------------------------------------------------------------------

    def list_offset(self, timestamp: int, *, committed: bool = False) -> tuple[int, int]:
        """(offset, timestamp) of the first record at least as young; (-1, -1) when there is none.

        With `committed` nothing at or past the last stable offset is found. -1 asks for the high watermark
        (`committed`: the last stable offset), -2 for the log's start, -3 for the record with the largest timestamp,
        -4 for the start on this disk, -5 for the end of what is elsewhere: nothing.
        """
        if timestamp == LATEST:
            return self.last_stable_offset if committed else self.high_watermark, -1
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return self.start_offset, -1
        if timestamp == LATEST_TIERED:
            return -1, -1
        return report_damage(search_timestamp, self, timestamp, committed)
