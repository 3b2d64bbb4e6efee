"""One partition: its segments, append, fetch and look-up by time.

One thread appends, rolls and removes; any thread may fetch, flush or compact meanwhile. The list of segments is
replaced, never changed, and a reader keeps the files it has begun to read.

What a crash could undo is not handed out: fetches end at the high watermark, which follows the flushes where the
topic promises a flush before the answer, and the log's end where it does not.
"""

import threading
from collections.abc import Callable, Sequence

from muster.storage.config import TopicSettings
from muster.storage.errors import InvalidFetchSize, RecordListTooLarge, StorageError, UnknownTopicOrPartition
from muster.storage.files import Buffer, Files
from muster.storage.logs import fencing, fetching, reshape
from muster.storage.logs.cuts import TruncationGuard
from muster.storage.logs.nearness import MemoryTail
from muster.storage.logs.open_files import OpenSegments
from muster.storage.logs.producers_state import KnownBatch, OnRecord, TransactionMarker
from muster.storage.logs.segment import Segment
from muster.storage.logs.segment_list import EARLIEST, LATEST, SegmentList
from muster.storage.logs.short_way import AppendFastPath
from muster.storage.logs.stamp import Stamped, stamp_batches
from muster.storage.logs.state import LogState
from muster.storage.logs.txn_index import AbortedEntry
from muster.storage.records.look import check_records, validates_records
from muster.storage.records.scan import BatchHead
from muster.storage.records.validation import check_timestamps, split_batches
from muster.storage.troubles import StorageTroubles
from muster.storage.types import Appended, Fetched, TopicPartition


class Log:
    """The records of one partition."""

    # Of more than thirty attributes without slots CPython 3.11 finds each by a search, which appends and fetches feel.
    __slots__ = ("__weakref__", "_flush_messages", "_lock", "_short_way", "_tells_at_once", "_told_high_watermark",
                 "cleaned_to", "cuts", "directory", "doomed", "durable_offset", "end_offset", "epochs", "failure",
                 "files", "following", "holes", "kept_epochs", "leader_epoch", "let_go", "listeners", "looks",
                 "most_entries", "near", "opened", "owed", "partition", "producers", "recovered", "reshaping",
                 "retired", "segment_list", "settings", "start_offset", "summaries", "topic_id", "troubles",
                 "uncleanable", "unflushed_since_ms")  # fmt: skip

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
        # Of a cluster: how far records are committed. None: this node alone decides that, by flushing.
        self._told_high_watermark: int | None = None
        # Of a cluster: whether another node leads, and whether offsets may be missing in what it sends.
        self.following = False
        self.holes = False
        self._settle(settings)
        self.doomed: list[tuple[int, str]] = []
        # Files beside the last sealed segment that a flush has yet to flush, with the directory; see `reshape.settle`.
        self.owed: list[str] | None = None
        self._lock = threading.Lock()
        # Held while the list of segments and what is written down of it change: by the appending thread for rolls
        # and removals, by whoever compacts for the swap.
        self.reshaping = threading.RLock()
        # Whoever compacts is to stop: the log is about to be closed or removed.
        self.let_go = False
        # Called when more can be read; possibly from the thread that flushes.
        self.listeners: list[Callable[[str, int], None]] = []
        self.cuts = TruncationGuard(self._lock, self.reshaping)
        self.near = MemoryTail(self)

    def _settle(self, settings: TopicSettings) -> None:
        """What follows from the settings, worked out once."""
        self.settings = settings
        self.looks = validates_records(settings)
        plain = settings.message_timestamp_type == "CreateTime" and not settings.compacted
        self._short_way = AppendFastPath(self) if plain else None
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
        if not self.producers.producers:
            return high
        with self._lock:
            unstable = self.producers.first_unstable(high)
        return high if unstable is None else min(high, unstable)

    @property
    def told(self) -> bool:
        """Whether it is a log of a cluster, which is told its high watermark."""
        return self._told_high_watermark is not None

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
            self._tell()

    def lower_high_watermark(self, offset: int) -> None:
        """The log has been cut to this offset: what comes there is not committed, whatever was told."""
        if self._told_high_watermark is not None:
            self._told_high_watermark = min(self._told_high_watermark, offset)

    # -- append -------------------------------------------------------------------------------------------

    def append(self, batches: Buffer, now_ms: int, *, trusted: bool = False, looked: bool = False) -> Appended:
        """Give offsets to one or more whole batches and write them with one call, all or none.

        `looked` says that `look_into` has been content with them, `trusted` that they are the node's own. Refuses by
        raising; nothing is written then. A batch that an idempotent producer sent before is answered with its old
        offsets. Durable after the next `flush`.
        """
        if self.failure:
            raise self.failure
        short_way = self._short_way  # kept here, for the log may be retired meanwhile
        if short_way is not None:
            done = short_way.append(batches, now_ms, looked or trusted)
            if done is not None:
                return done
        settings = self.settings
        split_up = split_batches(memoryview(batches), settings, trusted=trusted)
        if not trusted:
            check_timestamps(split_up, settings, now_ms)
            if self.looks and not looked:
                check_records(split_up, settings, now_ms)
        append_time = now_ms if settings.message_timestamp_type == "LogAppendTime" else -1
        stamped = stamp_batches(split_up, self.end_offset, self.leader_epoch, append_time)
        known = self.write(stamped, now_ms)
        if known:
            return Appended(known.first_offset, known.last_offset, append_time, self.start_offset)
        return Appended(stamped.heads[0].base_offset, stamped.next_offset - 1, append_time, self.start_offset)

    def look_into(self, batches: Buffer, now_ms: int) -> None:
        """Refuse what `append` would refuse of the batches themselves. From any thread; it may take its time."""
        split_up = split_batches(memoryview(batches), self.settings, trusted=False)
        check_timestamps(split_up, self.settings, now_ms)
        if self.looks:
            check_records(split_up, self.settings, now_ms)

    def append_each(self, arrived: Sequence[Buffer], now_ms: int, looked: bool = False) -> list[Appended]:
        """Do what `append` would for the first few of these, with one write; the rest, maybe all, is left."""
        if self.failure:
            raise self.failure
        short_way = self._short_way
        return [] if short_way is None else short_way.append_each(arrived, now_ms, looked)

    def write(self, stamped: Stamped, now_ms: int, *, check: bool = True) -> KnownBatch | None:
        """Put numbered batches at the end; a batch known from its producer is returned and not written again.

        `check` is off for a follower, whose leader has checked; it sees to it that they fit into a segment as far as
        they can.
        """
        if stamped.size > self.settings.segment_bytes and check:
            raise RecordListTooLarge(
                f"An append of {stamped.size} bytes does not fit into a segment of {self.settings.segment_bytes} "
                "(segment.bytes). Send less at once."
            )
        markers = stamped.markers()
        if check and stamped.produced:
            with self._lock:
                known = self.producers.check(stamped.heads)
                for head, marker in markers.items():
                    self.producers.check_marker(head.producer_id, marker)
            if known:
                return known
        active = self.segment_list.active
        if reshape.is_segment_full(self, stamped, now_ms):
            self.roll(now_ms)
            active = self.segment_list.active
        file = reshape.open_active(active)
        try:
            file.write(stamped.buffers, stamped.size, active.size)
        except OSError as error:
            raise reshape.undo_failed_write(self, active, error, stamped.size) from error
        self._note(active, stamped, markers)
        self.note_end(stamped.next_offset, now_ms)
        return None

    def note_end(self, offset: int, now_ms: int) -> None:
        """The log ends at `offset` now, all of it written."""
        self.end_offset = offset
        if self.unflushed_since_ms is None:
            self.unflushed_since_ms = now_ms
        if self._tells_at_once and self.listeners:
            self._tell()

    def _note(self, active: Segment, stamped: Stamped, markers: dict[BatchHead, TransactionMarker]) -> None:
        for head in stamped.heads:
            active.note(head.last_offset, head.max_timestamp, head.size)
            if head.leader_epoch > self.epochs.latest:
                # Whoever begins an epoch above 0 has said so before: see `logs.replica`.
                self.epochs.assign(head.leader_epoch, head.base_offset)
            if head.producer_id >= 0:
                self._note_producer(active, head, markers.get(head))

    def _note_producer(self, active: Segment, head: BatchHead, marker: TransactionMarker | None) -> None:
        active.producers = True
        with self._lock:
            done = self.producers.note(head, marker)
            if done and done.aborted:
                active.aborted.append(AbortedEntry(*done[:3], self.producers.stable_after(done)))

    def roll(self, now_ms: int, base_offset: int | None = None) -> None:
        """Seal the active segment and begin the next one; everything so far is durable then."""
        with self.reshaping:
            reshape.roll_segment(self, self.end_offset if base_offset is None else base_offset, now_ms)

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
            reshape.save_begun_epochs(self)
        # Read after `end`: a roll in between has flushed the segment before.
        active = self.segment_list.active
        reshape.finish_roll(self)
        file = reshape.open_active(active)
        try:
            file.sync()
        except OSError as error:
            raise self.fence(f"Could not flush {active.path()}: {error.strerror or error}") from error
        self.check_place()
        if self.failure:
            raise self.failure
        self._became_durable(end, cuts)

    def _became_durable(self, end: int, cuts: int) -> None:
        with self._lock:
            grew = end > self.durable_offset and self.cuts.none_since(cuts)
            if grew:
                self.durable_offset = end
                self.unflushed_since_ms = None if end >= self.end_offset else self.unflushed_since_ms
        if grew and not self._tells_at_once:
            self._tell()

    def _tell(self) -> None:
        for listener in self.listeners:
            listener(*self.partition)

    def fence(self, why: str) -> StorageError:
        """Take no more appends, and say why to everybody who asks from now on."""
        return fencing.fence_log(self, why)

    def check_place(self) -> None:
        """Fence the log if its file has been removed or replaced: what is written to it would be gone at a restart."""
        fencing.check_active_file(self)

    def close(self, *, sync: bool = True) -> None:
        """Flush and write down what makes the next start quick. Safe to call on a failed log.

        Without `sync` the caller sees to `Files.sync_all` before it counts on what was written down beside the records.
        """
        try:
            if self.failure is None:
                self.flush()
                with self.reshaping:
                    reshape.finish_roll(self)
                    active = self.segment_list.active
                    if active.size and not active.as_summarised:
                        reshape.seal_last_segment(self, active, sync=sync)
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
        with self._lock:
            return {
                number: (producer.last.last_offset if producer.last else None, producer.epoch)
                for number, producer in self.producers.producers.items()
            }

    def forget_producers(self, now_ms: int, idle_ms: int, on_record: OnRecord) -> None:
        """Forget producers that were idle for longer than `idle_ms`, but for fences that are on record."""
        if self.producers.producers:
            with self._lock:
                self.producers.expire(now_ms, idle_ms, on_record)

    def retire(self) -> None:
        """The partition is being removed: refuse everything from now on."""
        topic, partition = self.partition
        self.retired = True
        self.troubles.forget(self.partition)
        self.failure = UnknownTopicOrPartition(f"Partition {topic}-{partition} has been removed.")
        # The two know each other: without this each log that goes would wait for the collector of garbage.
        self._short_way = None
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
        return fetching.report_damage(
            self, lambda: fetching.fetch_below_watermark(self, offset, max_bytes, min_one, committed, at_hand)
        )

    # -- look-up ------------------------------------------------------------------------------------------

    def list_offset(self, timestamp: int, *, committed: bool = False) -> tuple[int, int]:
        """(offset, timestamp) of the first record at least as young; (-1, -1) when there is none.

        -1 asks for the high watermark (`committed`: the last stable offset), -2 for the log's start, -3 for the
        record with the largest timestamp.
        """
        if timestamp == LATEST:
            return self.last_stable_offset if committed else self.high_watermark, -1
        if timestamp == EARLIEST:
            return self.start_offset, -1
        return fetching.report_damage(self, lambda: fetching.search_timestamp(self, timestamp))
