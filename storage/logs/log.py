"""One partition: its segments, append, fetch and look-up by time.

One thread appends, rolls and removes; any thread may fetch, flush or compact meanwhile. The list of segments is
replaced, never changed, and a reader keeps the files it has begun to read. A reader that overlaps with a truncation
reads again. Whoever changes which segments the log consists of holds `log.reshaping`.

What a crash could undo is not handed out: fetches end at the high watermark, which follows the flushes where the topic
promises a flush before the answer, and the log's end where it does not.

`AppendFastPath` takes nearly every append: one good batch without a producer behind a segment with room. It checks what
validation, stamping and `is_segment_full` check, with each answer that does not change from batch to batch worked out
before. Each call saved there shows in the throughput; tests hold the fast and the long path to the same bytes.

A log that is not to be trusted (a failed flush, a file that is gone, a write that could not be undone) is fenced: one
sentence, which producers, readers and health checks get alike.

A read is done on the event loop only if its bytes are in memory and known to be good (`MemoryTail`: the last 4 MiB that
were written), or if there is nothing to read. All else may wait for the disk, verifies checksums or opens files, and is
for a thread.
"""

import logging
import struct
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from crc32c import crc32c

from muster.storage.compression import CODECS
from muster.storage.config import TopicSettings
from muster.storage.errors import (
    InvalidFetchSize,
    LogDamaged,
    LogFenced,
    OffsetOutsideLog,
    RecordListTooLarge,
    RecordsCut,
    StorageError,
    StorageTroubles,
    UnknownTopicOrPartition,
)
from muster.storage.files import Buffer, File, Files
from muster.storage.logs.log_metadata import LeaderEpochs, Summary, save_epochs, save_summaries
from muster.storage.logs.producer_state import (
    DescribedProducer,
    KnownBatch,
    MarkerToWrite,
    OnRecord,
    ProducerState,
    load_producers,
    transactional_head,
)
from muster.storage.logs.segment import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    AbortedEntry,
    OpenSegments,
    Segment,
    SegmentList,
    segment_path,
)
from muster.storage.logs.stamp import OUTSIDE_CRC, Stamped, stamp_batches
from muster.storage.logs.transactions import (
    NO_TIME,
    NOTHING_UNSTABLE,
    OpenTransaction,
    StableHold,
    StableHolds,
    TransactionGuard,
)
from muster.storage.records.batch import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MAX_SEQUENCE,
    TRANSACTIONAL_BIT,
)
from muster.storage.records.markers import TransactionMarker, encode_marker
from muster.storage.records.scan import BatchFault, BatchHead, Order, walk_checked
from muster.storage.records.validation import (
    AT_ONCE_BYTES,
    AT_ONCE_RECORDS,
    Framings,
    check_records,
    check_timestamps,
    split_batches,
    validates_records,
)
from muster.storage.settings_text import os_error_remedy
from muster.storage.types import Appended, AppendOrigin, Fetched, TopicPartition

# Reads during a truncation
# -------------------------

T = TypeVar("T")


class TruncationGuard:
    """Counts the cuts of one log. Readers are not held up unless a cut is under way."""

    __slots__ = ("_lock", "_reshaping", "seen")

    def __init__(self, lock: threading.Lock, reshaping: "threading.RLock") -> None:
        self._lock = lock
        self._reshaping = reshaping
        # Odd while a cut is under way.
        self.seen = 0

    @contextmanager
    def cutting(self) -> Iterator[None]:
        """Cut within; nothing that was read or flushed meanwhile counts."""
        with self._reshaping:
            if self.seen & 1:  # It is us: part of a larger cut.
                yield
                return
            with self._lock:
                self.seen += 1
            try:
                yield
            finally:
                with self._lock:
                    self.seen += 1

    def none_since(self, seen: int) -> bool:
        """Whether the log's end is where it was when `seen` was asked for, or further on."""
        return seen == self.seen and not seen & 1

    def outside(self, read: Callable[[], T]) -> T:
        """What `read` finds or raises while no cut is under way."""
        while True:
            seen = self.seen
            try:
                found = read()
            except StorageError:
                if self.none_since(seen):
                    raise
            else:
                if self.none_since(seen):
                    return found
            with self._reshaping:
                pass  # Whoever cuts holds it until the log is whole again.


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


# What may be read on the event loop
# ----------------------------------

MEMORY_TAIL_BYTES = 4 << 20
"""So far from its end a log is read on the event loop; what a node has just written lies in the system's memory."""

_SLACK = MEMORY_TAIL_BYTES // 4


class MemoryTail:
    """Of one log: from which offset on it is near. Worked out anew when the log has grown by a quarter."""

    __slots__ = ("_active", "_from", "_log", "_until_size")

    def __init__(self, log: "Log") -> None:
        # Not to keep it: a log that goes would wait for the collector of garbage.
        self._log = weakref.ref(log)
        self._active: Segment | None = None
        self._from = 0
        self._until_size = -1

    def has_offset(self, offset: int) -> bool:
        """Whether a fetch from `offset` takes no time. From any thread."""
        log = self._log()
        assert log is not None, "it is the log that asks"
        active = log.segment_list.active
        if active is not self._active or active.size > self._until_size:
            self._measure(active)
        # Outside the log nothing is read, nor where a follower or a flush has to come first.
        return offset >= self._from or offset < log.start_offset or offset >= log.high_watermark

    def _measure(self, active: "Segment") -> None:
        size = active.size
        position = max(size - MEMORY_TAIL_BYTES, active.own_from)
        index = active._index
        if position <= 0:
            self._from = active.base_offset
        elif index is None or position >= size:
            self._from = active.next_offset
        else:
            place = bisect_right(index.positions, position)
            entries = index.offsets
            self._from = active.base_offset + entries[place] if place < len(entries) else active.next_offset
        self._active, self._until_size = active, size + _SLACK


# Segments: roll, cut, seal
# -------------------------

logger = logging.getLogger("muster.storage")


def roll_segment(log: "Log", base: int, now_ms: int) -> None:
    """Seal the active segment and begin the next one at `base`; all records so far are durable then.

    That the next segment's file stays in the directory, and what is written down of the last one, is left to
    `finish_roll`, which the next flush does first: nothing in the new segment counts before. A crash without it costs
    the next start a scan of the last segment.
    """
    finish_roll(log)
    log.flush()
    log.check_place()
    sealed = log.segment_list.active
    fresh = Segment(log.files, log.directory, base, log.opened, log.settings.index_interval_bytes)
    fresh.gaps = log.holes
    try:
        owed = write_side_files(log, sealed, sync=False)
        fresh.start(now_ms)
    except OSError as error:
        refusal = StorageError(
            f"Could not begin a new segment in {log.directory}: {error.strerror or error}. The records are not "
            f"in the log; {os_error_remedy(error)}, then send them again."
        )
        log.troubles.refused(log.partition, refusal, error)
        raise refusal from error
    log.owed = owed  # before the new segment can be seen, and flushed
    log.segment_list = SegmentList((*log.segment_list.all, fresh))
    sealed.active = False
    sealed.gaps = log.settings.compacted or base != log.end_offset
    if base != log.end_offset:
        finish_roll(log)  # a follower's log ends where its files say so
    log.end_offset = base
    log.durable_offset = max(log.durable_offset, base)


def finish_roll(log: "Log") -> None:
    """Flush what the last roll wrote besides records: the directory, files beside the sealed segment. Any thread.

    Without the directory nothing in the new segment counts; the files are known by their checksums, and only save time.
    """
    if log.owed is None:
        return
    with log.reshaping:
        owed = log.owed
        if owed is None or log.retired:
            return
        try:
            log.files.sync_dir(log.directory)
        except OSError as error:
            # A second try may be told that all is well, although the entry was lost.
            raise log.fence(f"Could not flush {log.directory}: {error.strerror or error}") from error
        log.owed = None
        try:
            for path in owed:
                sync_if_there(log.files, path)
            save_summaries(log.files, log.directory, log.summaries.values())
        except OSError as error:
            why = StorageError(
                f"Could not flush what is kept beside the segments of {log.directory}: {error.strerror or error}. "
                f"Nothing is lost; {os_error_remedy(error)}, or the next start may have to scan them."
            )
            logger.warning("%s", why)
            log.troubles.refused(log.partition, why, error)


def truncate_active(log: "Log", active: Segment, position: int) -> None:
    """Make `active` the last segment and end it at a batch's start; producers are as they were there.

    A segment of its own takes the place of `active`: who reads that one finds it as it was.
    """
    active.file().truncate(position)
    active.file().sync()
    log.files.sync_dir(log.directory)
    shorter = Segment(log.files, log.directory, active.base_offset, log.opened, log.settings.index_interval_bytes)
    shorter.created_ms, shorter.gaps, shorter.active = active.created_ms, active.gaps, True
    rescan_segment(shorter, position)
    log.opened.forget(active)
    kept = [segment for segment in log.segments if segment.base_offset < active.base_offset]
    kept.append(shorter)
    log.producers = load_producers(kept, log.told_high_watermark)
    log.segment_list = SegmentList(kept)
    log.end_offset = log.durable_offset = shorter.next_offset


def restart_empty_at(log: "Log", offset: int) -> None:
    """Give up every segment and go on with an empty one at `offset`."""
    old = log.segments
    fresh = Segment(log.files, log.directory, offset, log.opened, log.settings.index_interval_bytes)
    fresh.gaps = log.holes
    remove_newest_first(log, old)
    fresh.start(old[-1].created_ms)
    log.files.sync_dir(log.directory)
    log.summaries.clear()
    log.producers = ProducerState()
    log.segment_list = SegmentList([fresh])
    log.end_offset = log.durable_offset = offset


def remove_newest_first(log: "Log", segments: Sequence[Segment]) -> None:
    """Remove the files of segments that readers may still be at, so that a crash leaves no hole in the log."""
    for segment in reversed(segments):
        segment.file()
        segment.pinned = True
        log.files.remove(segment.path())
        log.files.sync_dir(log.directory)
        log.summaries.pop(segment.base_offset, None)
        log.opened.forget(segment)


def save_begun_epochs(log: "Log") -> None:
    """Write down what has begun since the epochs were written last, before records of it count as flushed. Any thread.

    Nobody waits for that to lead or to follow: whoever led an epoch that left no record begins another one at the
    same offset. Where records of it survive a crash that this has not, they say themselves whose they are.
    """
    with log.reshaping:
        if not log.retired and log.epochs is not log.kept_epochs:
            replace_epochs(log, log.epochs)


def replace_epochs(log: "Log", epochs: LeaderEpochs) -> None:
    """Write leader epochs down that are to be the log's; before it is as they say."""
    try:
        save_epochs(log.files, log.directory, epochs)
    except OSError as error:
        refusal = StorageError(
            f"Could not write the leader epochs of {log.directory} down: {error.strerror or error}. Nothing in the "
            f"log was changed; {os_error_remedy(error)}, then try again."
        )
        log.troubles.refused(log.partition, refusal, error)
        raise refusal from error
    log.kept_epochs = epochs


def seal_last_segment(log: "Log", segment: Segment, *, sync: bool = True) -> None:
    """Write down what a restart needs to know of the last segment, all of it flushed.

    Each file is known by its checksum, so without `sync` a crash costs the next start a scan and nothing else.
    """
    write_side_files(log, segment, sync=sync)
    save_summaries(log.files, log.directory, log.summaries.values(), sync=sync)


def write_side_files(log: "Log", segment: Segment, *, sync: bool) -> list[str]:
    """Write the files beside a segment, and note what they are; their paths, some of which may have no file."""
    snapshot = log.producers.snapshot() if log.producers.producers else b""
    if snapshot:
        segment.write_side(".snapshot", snapshot, segment.next_offset, sync=sync)
    log.summaries[segment.base_offset] = segment.seal(crc32c(snapshot) if snapshot else 0, sync=sync)
    beside = [segment.path(suffix) for suffix in (".index", ".timeindex", ".txnindex")]
    return [*beside, segment_path(log.directory, segment.next_offset, ".snapshot")]


def sync_if_there(files: Files, path: str) -> None:
    """Flush a file that retention, a compaction or a truncation may have taken away."""
    try:
        file = files.open(path, writable=False)
    except FileNotFoundError:
        return
    try:
        file.sync()
    finally:
        file.close()


def is_segment_full(log: "Log", stamped: Stamped, now_ms: int) -> bool:
    """Whether the batches belong into a new segment, by size, offsets, age or index."""
    active = log.segment_list.active
    if not active.size:
        return False
    if active.size + stamped.size > log.settings.segment_bytes:
        return True
    if stamped.next_offset - active.base_offset > 0x7FFFFFFF:
        return True
    since = active.first_timestamp
    age = stamped.heads[0].max_timestamp - since if since >= 0 else now_ms - active.created_ms
    if age > log.settings.segment_ms:
        return True
    # Room for an entry per batch of this append, so that the index is never full half-way.
    return active.entries + len(stamped.heads) > log.most_entries


def open_active(active: Segment) -> File:
    """The segment's open file. Without a descriptor for it nothing was tried, so the log is as sound as before."""
    try:
        return active.file()
    except OSError as error:
        raise StorageError(
            f"Could not open {active.path()}: {error.strerror or error}. Nothing was written or flushed; where the "
            "system is out of descriptors, raise its limit (ulimit -n) or lower log.max.open.files, then send again."
        ) from error


def undo_failed_write(log: "Log", active: Segment, error: OSError, size: int) -> StorageError:
    """Cut off what may have been written in part of `size` bytes; if even that fails, take no more appends."""
    refusal = StorageError(
        f"Could not write to {active.path()}: {error.strerror or error}. The records are not in the log; "
        f"{os_error_remedy(error)}, then send them again."
    )
    log.troubles.refused(log.partition, refusal, error, size)
    try:
        active.file().truncate(active.size)
    except OSError as again:
        why = again.strerror or again
        log.fence(f"Could not cut what was written in part off {active.path()}: {why}")
    return refusal


def rescan_segment(segment: Segment, size: int, order: Order | None = None) -> BatchFault | None:
    """Note every intact batch of the segment; the fault that ended the walk, if one did.

    Who brings the `order` finds in it what the last batch left there.
    """
    segment.restart()
    order = order or Order(segment.base_offset, segment.base_offset, segment.gaps)
    try:
        for head in walk_checked(segment.file(), 0, size, order):
            segment.note(head.last_offset, head.max_timestamp, head.size)
            segment.producers |= head.producer_id >= 0
    except BatchFault as fault:
        return fault
    return None


# The fast path of append
# -----------------------

# Of `batch.HEADER` what is asked for: length, magic, crc, attributes, last offset delta, both timestamps, producer id,
# count.
_unpack = struct.Struct(">8xi4xbIHiqqq6xi").unpack_from
# And of a numbered batch its producer epoch and base sequence.
_unpack_numbers = struct.Struct(">51xhi").unpack_from
_pack = OUTSIDE_CRC.pack
# What a NamedTuple's own constructor does, without its argument names.
_made = tuple.__new__
MOST_AT_ONCE = 256
"""Appends in one write: two buffers each, and a system call takes no more than 1,024."""

_LAST_CODEC = len(CODECS) - 1
# All logs share what is known of how producers frame their batches: one thread appends to them.
framings = Framings()
_sound = framings.sound
_LARGEST_DELTA = 0x7FFFFFFE
_NEVER = -(1 << 63)


class AppendFastPath:
    """Appends what needs no closer look, and leaves the rest to `Log.append`, which is the general way.

    tests/property/storage/test_append_fast_path.py holds the two together.
    """

    # fmt: off
    __slots__ = (
        "_ahead_ms", "_behind_ms", "_last_offset", "_log", "_looks", "_max_bytes", "_room", "_segments", "_youngest",
    )
    # fmt: on

    def __init__(self, log: "Log") -> None:
        settings = log.settings
        self._log = log
        self._looks = log.looks
        self._max_bytes = min(settings.max_message_bytes, settings.segment_bytes)
        self._ahead_ms = settings.message_timestamp_after_max_ms
        self._behind_ms = settings.message_timestamp_before_max_ms
        self._segments: SegmentList | None = None
        # Of the active segment: bytes that it may hold, the last offset and the youngest timestamp that fit into it.
        self._room = 0
        self._last_offset = 0
        self._youngest = _NEVER

    def append(self, batches: Buffer, now_ms: int, looked: bool = False) -> Appended | None:
        """What the append came to; None, with nothing done, for all that has to be looked at more closely."""
        log = self._log
        segments = log.segment_list
        if segments is not self._segments:
            self._meet(segments)
        active = segments.active
        position = active.size
        size = len(batches)
        if size < HEADER_SIZE or size > self._max_bytes or position + size > self._room or not position:
            return None
        view = memoryview(batches)
        length, magic, crc, attributes, delta, base, timestamp, producer, count = _unpack(view)
        first = log.end_offset
        last = first + delta
        epoch = log.leader_epoch
        looks = self._looks and not looked
        if (
            length != size - LENGTH_OVERHEAD
            or magic != MAGIC
            or attributes > _LAST_CODEC
            or (producer >= 0 and not self._continues(view, producer, delta))
            or count != delta + 1
            or count <= 0
            or timestamp > self._youngest
            or timestamp > now_ms + self._ahead_ms
            or timestamp < now_ms - self._behind_ms
            or last > self._last_offset
            or log.epochs.latest != epoch
            or active.entries >= log.most_entries
            or crc32c(view[ATTRIBUTES_AT:]) != crc
            or (
                looks
                and (
                    attributes  # Unpacking takes a closer look.
                    or not _sound(view, count, base - now_ms + self._behind_ms, now_ms + self._ahead_ms - base)
                )
            )
        ):
            return None
        file = active._file or open_active(active)
        try:
            file.write((_pack(first, length, epoch), view[MAGIC_AT:]), size, position)
        except OSError as error:
            raise undo_failed_write(log, active, error, size) from error
        active.note(last, timestamp, size)
        if producer >= 0:
            own, sequence = _unpack_numbers(view)
            log.note_producer(
                active,
                BatchHead(position, size, first, last, timestamp, epoch, producer, own, sequence, count, attributes),
            )
        log.note_end(last + 1, now_ms)
        return _made(Appended, (first, last, -1, log.start_offset))

    def _continues(self, view: memoryview, number: int, delta: int) -> bool:
        """Whether a batch outside of transactions has the sequence that comes next for its producer."""
        producers = self._log.producers
        producer = producers.producers.get(number)
        if producer is None or not producer.batches or producer.txn_first_offset >= 0 or producers.guards.count:
            return False
        epoch, sequence = _unpack_numbers(view)
        last = producer.batches[-1].last_sequence
        return bool(epoch == producer.epoch and sequence == last + 1 > 0 and sequence + delta <= MAX_SEQUENCE)

    def append_each(self, arrived: Sequence[Buffer], now_ms: int, looked: bool = False) -> list[Appended]:
        """What the first of these came to, each with offsets of its own, all written with one call.

        Ends before the one that has to be looked at more closely, or takes time to look into; nothing is done for it
        and those after it.
        """
        log = self._log
        segments = log.segment_list
        if segments is not self._segments:
            self._meet(segments)
        active = segments.active
        start = end = active.size
        epoch, first, log_start = log.leader_epoch, log.end_offset, log.start_offset
        if not start or log.epochs.latest != epoch or active.entries >= log.most_entries:
            return []
        latest, earliest = min(self._youngest, now_ms + self._ahead_ms), now_ms - self._behind_ms
        top, top_offset = _NEVER, first
        looks = self._looks and not looked
        most_bytes, most_records = self._max_bytes, _LARGEST_DELTA
        if looks:
            most_bytes, most_records = min(most_bytes, AT_ONCE_BYTES), AT_ONCE_RECORDS
        buffers: list[Buffer] = []
        done: list[Appended] = []
        marks: list[tuple[int, int]] = []
        due, interval, most_marks = active.index_due, active.interval, log.most_entries - active.entries
        for batches in arrived[:MOST_AT_ONCE]:
            size = len(batches)
            if size < HEADER_SIZE or size > most_bytes or end + size > self._room:
                break
            view = memoryview(batches)
            length, magic, crc, attributes, delta, base, timestamp, producer, count = _unpack(view)
            last = first + delta
            if (
                length != size - LENGTH_OVERHEAD
                or magic != MAGIC
                or attributes > _LAST_CODEC
                or producer >= 0
                or count != delta + 1
                or not 0 < count <= most_records
                or not earliest <= timestamp <= latest
                or last > self._last_offset
                or crc32c(view[ATTRIBUTES_AT:]) != crc
                or (
                    looks
                    and (
                        attributes  # Unpacking takes a closer look.
                        or not _sound(view, count, base - now_ms + self._behind_ms, now_ms + self._ahead_ms - base)
                    )
                )
            ):
                break
            buffers += (_pack(first, length, epoch), view[MAGIC_AT:])
            done.append(_made(Appended, (first, last, -1, log_start)))
            if timestamp > top:
                top, top_offset = timestamp, last
            if end > due and len(marks) < most_marks:
                marks.append((last, end))
                due = end + interval
            end += size
            first = last + 1
        if done:
            file = open_active(active)
            try:
                file.write(buffers, end - start, start)
            except OSError as error:
                raise undo_failed_write(log, active, error, end - start) from error
            active.note_row(first - 1, top, top_offset, end - start, marks)
            log.note_end(first, now_ms)
        return done

    def _meet(self, segments: SegmentList) -> None:
        """Work out the limits of an active segment that has not been seen; none while it is empty."""
        active = segments.active
        if not active.size:
            return
        settings = self._log.settings
        since = active.first_timestamp
        self._segments = segments
        self._room = settings.segment_bytes
        self._last_offset = active.base_offset + _LARGEST_DELTA
        # Without a first timestamp the clock decides about the next roll, which is for the long way.
        self._youngest = since + settings.segment_ms if since >= 0 else _NEVER


# When a log is not to be trusted
# -------------------------------


def fence_log(log: "Log", why: str) -> StorageError:
    """The log takes no more appends; what its producers hear from now on."""
    log.failure = LogFenced(f"{why}. The log takes no appends until the node is restarted and has checked it.")
    logger.error("%s", log.failure)
    log.troubles.fenced(log.partition, log.failure)
    return log.failure


def check_active_file(log: "Log") -> None:
    """Raises LogFenced if the log's file has been removed or replaced."""
    cuts = log.cuts.seen
    active = log.segment_list.active
    if log.failure or open_active(active).is_at(active.path()):
        return
    # Whoever rolls, truncates or removes the log has good reason.
    if active is log.segment_list.active and log.cuts.none_since(cuts) and not log.retired:
        raise fence_log(
            log,
            f"{active.path()} has been removed or replaced while the node uses it: its records are not in the data "
            "directory any more",
        )


def read_refusal(log: "Log", error: OSError) -> StorageError:
    """What a reader hears whom the system lets down."""
    refusal = StorageError(
        f"Could not read {error.filename or log.directory}: {error.strerror or error}. Nothing is known to be "
        "lost; mend what the system complains of, then fetch again."
    )
    log.troubles.refused(log.partition, refusal, error)
    return refusal


# What a reader gets
# ------------------

Known = TypeVar("Known")


def report_damage(log: "Log", read: Callable[[], Known]) -> Known:
    """What a reader of this log finds; damage is not its business alone."""
    try:
        return log.cuts.outside(read)
    except LogDamaged as damage:
        log.troubles.damaged(log.partition, damage)
        raise


def fetch_below_watermark(
    log: "Log", offset: int, max_bytes: int, min_one: bool, committed: bool, at_hand: int | None
) -> Fetched:
    """What `Log.fetch` promises, while nobody cuts the log."""
    segments = log.segment_list
    high = log.high_watermark
    stable = high if log.producers.unstable.first >= high else stable_offset(log, high)
    start, end = log.start_offset, log.end_offset
    if not start <= offset <= end:
        raise _outside(log, offset, start, end)
    damage = log.recovered.damage
    if damage and offset >= damage.first_offset:
        raise damage
    until = stable if committed else high
    if offset >= until:
        return Fetched(b"", high, start, stable)
    try:
        data = segments.read(offset, until, max_bytes, min_one, at_hand)
    except OSError as error:
        raise read_refusal(log, error) from error
    aborted = segments.aborted(offset, until, data) if committed else ()
    return Fetched(data, high, start, stable, aborted)


def stable_offset(log: "Log", high: int) -> int:
    """The last stable offset below this high watermark, with a transaction known that may hold it back (TX-L8)."""
    with log.lock:
        unstable = log.producers.unstable.settle(high)
    # Records that were given up hold nobody back.
    return min(high, max(unstable, log.start_offset))


def fetch_to_end(log: "Log", offset: int, max_bytes: int, min_one: bool) -> Fetched:
    """What `replica.fetch_as_replica` promises, while nobody cuts the log."""
    segments = log.segment_list
    start, end = log.start_offset, log.end_offset
    if not start <= offset <= end:
        raise _outside(log, offset, start, end)
    damage = log.recovered.damage
    if damage and offset >= damage.first_offset:
        raise damage
    try:
        data = segments.read(offset, end, max_bytes, min_one) if offset < end else b""
    except OSError as error:
        raise read_refusal(log, error) from error
    return Fetched(data, log.high_watermark, start)


def _outside(log: "Log", offset: int, start: int, end: int) -> OffsetOutsideLog:
    return OffsetOutsideLog(
        f"Offset {offset} of {log.partition[0]}-{log.partition[1]} is outside {start} to {end}. "
        "Start again from the earliest or the latest offset."
    )


def search_timestamp(log: "Log", timestamp: int, committed: bool) -> tuple[int, int]:
    """(offset, timestamp) of the first record at least as young as `timestamp`, or of the youngest (MAX_TIMESTAMP)."""
    segments, start = log.segment_list, log.start_offset
    until = log.last_stable_offset if committed else log.high_watermark
    try:
        if timestamp == MAX_TIMESTAMP:
            return segments.largest_timestamp(start, until)
        return segments.search(timestamp, start, until)
    except OSError as error:
        raise read_refusal(log, error) from error


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
        # Files beside the last sealed segment that a flush has yet to flush, with the directory; see `reshape.settle`.
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
            done = short_way.append(batches, now_ms, looked or origin is not _CLIENT)
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
        batch = encode_marker(
            commit=marker.commit,
            producer_id=marker.producer_id,
            producer_epoch=marker.epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=now_ms,
        )
        return self.append(batch, now_ms, origin=AppendOrigin.COORDINATOR, marker_level=marker.level)

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

    def append_each(self, arrived: Sequence[Buffer], now_ms: int, looked: bool = False) -> list[Appended]:
        """Do what `append` would for the first few of these, with one write; the rest, maybe all, is left."""
        if self.failure:
            raise self.failure
        short_way = self._short_way
        return [] if short_way is None else short_way.append_each(arrived, now_ms, looked)

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
        return report_damage(self, lambda: fetch_below_watermark(self, offset, max_bytes, min_one, committed, at_hand))

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
        return report_damage(self, lambda: search_timestamp(self, timestamp, committed))
