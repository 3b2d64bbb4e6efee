"""Compacts a log: builds the map of last offsets, writes filtered segments, swaps them in.

The last value of each key stays. Base and last offset, sequences and flags of a batch stay, so that neither readers nor
the producers' state can tell; a batch whose records have all gone stays as a bare header where its offset or sequence
is still needed. Tombstones stay for `delete.retention.ms` after their first cleaning.

One log at a time, on any one thread: only the swap at the end holds up the appending thread's rolls. Only sealed
segments below the last stable offset are touched; damage that is met leaves the log as it is.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import NamedTuple

from muster.storage.errors import StorageError
from muster.storage.files import Buffer
from muster.storage.logs.log import Log
from muster.storage.logs.log_metadata import save_summaries
from muster.storage.logs.retention import open_for_readers
from muster.storage.logs.segment import (
    CLEANED,
    AbortedEntry,
    Segment,
    SegmentList,
    commit_cleaned,
    finish_swap,
    read_whole_batch,
    retire_files,
)
from muster.storage.records.batch import BatchView, NewRecord, encode_batch, seal_batch, view_at
from muster.storage.records.markers import TransactionMarker, read_marker
from muster.storage.records.scan import BatchFault, BatchHead, read_head, walk_headers
from muster.storage.types import Record

# Which records stay. Pure
# ------------------------

# What a dict entry of a digest and an offset takes, about.
_BYTES_PER_KEY = 180
_TRANSACTION_AND_TIME_BITS = 0x38
_DIGEST_BYTES = 16


class OffsetMap:
    """The last offset of each key in the part of a log that has not been cleaned."""

    def __init__(self, memory_bytes: int) -> None:
        self._limit = max(1, memory_bytes // _BYTES_PER_KEY)
        self._offsets: dict[bytes, int] = {}
        self.latest = -1

    @property
    def full(self) -> bool:
        return len(self._offsets) >= self._limit

    def put(self, key: bytes, offset: int) -> None:
        self._offsets[_digest(key)] = offset

    def is_latest(self, record: Record) -> bool:
        """Whether no later record of the same key is known."""
        if record.offset > self.latest:
            return True
        return record.key is not None and record.offset >= self._offsets.get(_digest(record.key), -1)


def _digest(key: bytes) -> bytes:
    """The key itself only where it is shorter than any digest: a key of 16 bytes could be a longer one's."""
    return key if len(key) < _DIGEST_BYTES else md5(key, usedforsecurity=False).digest()


class CleanedTransactions:
    """Follows the transactions through a cleaning: whose data was aborted, and which markers still matter."""

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        self._coming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        # producer -> the aborted transaction and whether data of it was seen
        self._aborted: dict[int, tuple[AbortedEntry, bool]] = {}
        self._committed: set[int] = set()
        self.kept: list[AbortedEntry] = []
        """Aborted transactions of which data or marker is still in the log."""

    def discard_data(self, batch: BatchView) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        self._reach(batch.last_offset)
        if not batch.transactional:
            return False
        known = self._aborted.get(batch.producer_id)
        if known is None:
            self._committed.add(batch.producer_id)
            return False
        self._aborted[batch.producer_id] = known[0], True
        return True

    def discard_marker(self, batch: BatchView, marker: TransactionMarker | None) -> bool:
        """Whether nothing of the transaction that the marker ends is left before it."""
        self._reach(batch.last_offset)
        if marker is None:
            return False
        if not marker.aborted:
            if batch.producer_id in self._committed:
                self._committed.discard(batch.producer_id)
                return False
            return True
        known = self._aborted.pop(batch.producer_id, None)
        if known and known[1]:
            self.kept.append(known[0])
            return False
        return True

    def _reach(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            entry = self._coming.pop()
            self._aborted.setdefault(entry.producer_id, (entry, False))


class BatchVerdict(NamedTuple):
    """What becomes of a batch before its records are looked at."""

    drop_records: bool = False
    keep_empty: bool = False
    """Without records a bare header stays."""
    needs_horizon: bool = False
    """A marker of which nothing else is left: its own time begins to run."""


class CleaningRules:
    """The rules of one cleaning round over `[log start, offsets.latest]`."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        last_of_producers: Mapping[int, tuple[int | None, int]],
        now_ms: int,
    ) -> None:
        self.offsets = offsets
        self.transactions = transactions
        self.now_ms = now_ms
        self._last = last_of_producers

    def judge(self, batch: BatchView, marker: TransactionMarker | None) -> BatchVerdict:
        if batch.control:
            obsolete = self.transactions.discard_marker(batch, marker)
            horizon = batch.delete_horizon_ms
            drop = obsolete and horizon is not None and horizon <= self.now_ms
        else:
            obsolete = drop = self.transactions.discard_data(batch)
        last_of_round = batch.next_offset == self.offsets.latest + 1
        return BatchVerdict(drop, self._last_of_producer(batch) or last_of_round, obsolete and batch.control)

    def _last_of_producer(self, batch: BatchView) -> bool:
        """The producer's state hangs on this batch: its last sequence, or with no data its epoch."""
        known = self._last.get(batch.producer_id)
        if batch.producer_id < 0 or known is None:
            return False
        last_offset, epoch = known
        if last_offset is not None:
            return batch.last_offset == last_offset
        return batch.control and batch.producer_epoch == epoch

    def keeps(self, batch: BatchView, record: Record) -> bool:
        if batch.control or record.offset > self.offsets.latest:
            return True
        if record.key is None or not self.offsets.is_latest(record):
            return False
        horizon = batch.delete_horizon_ms
        return record.value is not None or horizon is None or self.now_ms < horizon


def filter_batch(
    batch: BatchView,
    verdict: BatchVerdict,
    keeps: Callable[[Record], bool],
    now_ms: int,
    delete_retention_ms: int,
) -> bytes | memoryview | None:
    """The batch with only the records that are kept; the very same bytes where nothing changes; None: it goes."""
    if batch.lost:
        return batch.data  # Whoever reads the log from its start must hear of it.
    records = batch.records()
    kept = [] if verdict.drop_records else [record for record in records if keeps(record)]
    if not kept:
        return _bare_header(batch) if verdict.keep_empty else None
    tombstones = any(record.value is None for record in kept)
    horizon = batch.delete_horizon_ms
    begins = (tombstones or verdict.needs_horizon) and horizon is None
    if len(kept) == len(records) and not begins:
        return batch.data
    return encode_batch(
        [_unplaced(record) for record in kept],
        base_offset=batch.base_offset,
        codec=batch.codec,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.transactional,
        control=batch.control,
        log_append_time_ms=batch.max_timestamp if batch.log_append_time else None,
        delete_horizon_ms=now_ms + delete_retention_ms if begins else horizon,
        offset_deltas=[record.offset - batch.base_offset for record in kept],
        last_offset_delta=batch.last_offset_delta,
    )


def _unplaced(record: Record) -> NewRecord:
    return record.timestamp_ms, record.key, record.value, record.headers


def _bare_header(batch: BatchView) -> bytes:
    attributes = batch.attributes & _TRANSACTION_AND_TIME_BITS
    delta = batch.last_offset_delta
    return seal_batch(
        (batch.base_offset, batch.leader_epoch, attributes, delta, -1, batch.max_timestamp),
        (batch.producer_id, batch.producer_epoch, batch.base_sequence),
        0,
        b"",
    )


# Writing filtered segments
# -------------------------

_WRITE_BYTES = 512 << 10

logger = logging.getLogger("muster.storage")


class _Stopped(Exception):
    """The log is about to be closed or removed."""


@dataclass(frozen=True, slots=True)
class DirtySegments:
    """What a cleaning of the log would work on."""

    log: Log
    first_offset: int
    until: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / max(1, self.clean_bytes + self.dirty_bytes)

    @property
    def due(self) -> bool:
        return self.dirty_bytes > 0 and (self.overdue or self.ratio >= self.log.settings.min_cleanable_dirty_ratio)


def find_dirty_segments(log: Log, first_dirty: int, now_ms: int) -> DirtySegments:
    """The sealed segments that have not been cleaned and may be."""
    until = min(log.last_stable_offset, log.segment_list.active.base_offset)
    youngest = now_ms - log.settings.min_compaction_lag_ms
    oldest = now_ms - log.settings.max_compaction_lag_ms
    clean_bytes = dirty_bytes = 0
    overdue = False
    end = log.segments[0].base_offset
    for segment in log.segments:
        too_young = log.settings.min_compaction_lag_ms > 0 and segment.max_timestamp > youngest
        if segment.next_offset > until or segment.active or (segment.next_offset > first_dirty and too_young):
            break
        end = segment.next_offset
        if segment.next_offset <= first_dirty:
            clean_bytes += segment.size
        else:
            dirty_bytes += segment.size
            overdue = overdue or 0 <= segment.first_timestamp < oldest
    return DirtySegments(log, max(first_dirty, log.segments[0].base_offset), end, clean_bytes, dirty_bytes, overdue)


def compact_log(dirty: DirtySegments, now_ms: int, memory_bytes: int) -> int:
    """Compact the log up to the end of its dirty part; the offset from which it is dirty now.

    LogDamaged or OSError leave the log as it was, and so does `Log.let_go`.
    """
    try:
        return _clean(dirty, now_ms, memory_bytes)
    except _Stopped:
        return dirty.first_offset
    except (StorageError, OSError):
        if dirty.log.let_go:
            return dirty.first_offset  # its files went away with its topic
        raise


def _clean(dirty: DirtySegments, now_ms: int, memory_bytes: int) -> int:
    log = dirty.log
    segments = [segment for segment in log.segments if segment.next_offset <= dirty.until and not segment.active]
    aborted = [entry for segment in log.segments for entry in segment.aborted]
    offsets = _build_map(segments, dirty, CleanedTransactions(aborted), memory_bytes)
    if offsets.latest < dirty.first_offset:
        return dirty.first_offset
    rules = CleaningRules(offsets, CleanedTransactions(aborted), log.last_of_producers(), now_ms)
    for group in group_segments([s for s in segments if s.base_offset <= offsets.latest], log):
        _clean_group(log, group, rules, now_ms)
    return offsets.latest + 1


def _build_map(
    segments: Sequence[Segment], dirty: DirtySegments, transactions: CleanedTransactions, memory_bytes: int
) -> OffsetMap:
    offsets = OffsetMap(memory_bytes)
    for segment in segments:
        for batch in _batches(dirty.log, segment):
            if batch.control:
                transactions.discard_marker(batch, read_marker(batch) if batch.count else None)
            elif not transactions.discard_data(batch) and batch.last_offset >= dirty.first_offset:
                for record in batch.records():
                    if record.key is not None and record.offset >= dirty.first_offset:
                        offsets.put(record.key, record.offset)
            if batch.last_offset >= dirty.first_offset:
                offsets.latest = batch.last_offset
            if offsets.full:
                return offsets
    return offsets


def _batches(log: Log, segment: Segment) -> Iterator[BatchView]:
    reached = segment.base_offset
    try:
        for head in walk_headers(segment.file(), 0, segment.size):
            if log.let_go:
                raise _Stopped
            yield read_whole_batch(segment, head)
            reached = head.last_offset + 1
    except BatchFault as fault:
        raise segment.damaged(fault, reached) from None


def group_segments(segments: Sequence[Segment], log: Log) -> Iterator[list[Segment]]:
    """Neighbours that together fit into one segment, its indexes and its range of offsets."""
    group: list[Segment] = []
    size = index = times = 0
    limit = log.settings.index_room
    for segment in segments:
        entries, stamps = 8 * len(segment.index()), 12 * len(segment.times())
        fits = size + segment.size <= log.settings.segment_bytes and index + entries <= limit
        fits = fits and times + stamps <= limit
        if group and not (fits and segment.next_offset - group[0].base_offset <= 0x7FFFFFFF):
            yield group
            group, size, index, times = [], 0, 0, 0
        group.append(segment)
        size, index, times = size + segment.size, index + entries, times + stamps
    if group:
        yield group


def _clean_group(log: Log, group: list[Segment], rules: CleaningRules, now_ms: int) -> None:
    base = group[0].base_offset
    cleaned = Segment(log.files, log.directory, base, log.opened, log.settings.index_interval_bytes)
    cleaned.start(group[-1].created_ms, CLEANED)
    cleaned.gaps = True
    kept_before = len(rules.transactions.kept)
    writer = _Writer(cleaned)
    for segment in group:
        for batch in _batches(log, segment):
            marker = read_marker(batch) if batch.control and batch.count else None
            verdict = rules.judge(batch, marker)

            def keeps(record: Record, batch: BatchView = batch) -> bool:
                return rules.keeps(batch, record)

            kept = filter_batch(batch, verdict, keeps, now_ms, log.settings.delete_retention_ms)
            if kept is not None:
                writer.add(kept)
    writer.flush()
    cleaned.file().sync()
    cleaned.aborted = rules.transactions.kept[kept_before:]
    cleaned.next_offset = group[-1].next_offset
    before = group[-1].summary
    summary = cleaned.seal(before.snapshot_crc if before else 0, CLEANED)
    with log.reshaping:
        if log.failure or log.let_go or not set(group) <= set(log.segments):
            # Retention or a truncation came first. What was written goes with the next start, or the next round.
            logger.info("%s changed while it was compacted; nothing was swapped.", cleaned.path())
            return
        _swap(log, group, cleaned)
    logger.info("Compacted %d segments at %s to %d bytes.", len(group), cleaned.path(), summary.size)


def _swap(log: Log, group: list[Segment], cleaned: Segment) -> None:
    open_for_readers(group)
    commit_cleaned(log.files, log.directory, cleaned.base_offset)
    for segment in group:
        log.summaries.pop(segment.base_offset, None)
    assert cleaned.summary is not None
    log.summaries[cleaned.base_offset] = cleaned.summary
    save_summaries(log.files, log.directory, log.summaries.values())
    doomed = retire_files(log.files, log.directory, [segment.base_offset for segment in group])
    finish_swap(log.files, log.directory, cleaned.base_offset)
    cleaned.active = False
    others = [segment for segment in log.segments if segment not in group]
    log.segment_list = SegmentList(sorted([*others, cleaned], key=lambda segment: segment.base_offset))
    for segment in group:
        log.opened.forget(segment)
    # The names are needed for the next round, so these are not kept for the delay.
    for path in doomed:
        log.files.remove(path)


class _Writer:
    """Gathers batches of a cleaned segment into large writes."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._buffers: list[Buffer] = []
        self._heads: list[BatchHead] = []
        self._size = 0

    def add(self, data: bytes | memoryview) -> None:
        batch = view_at(memoryview(data), 0)
        assert batch is not None
        self._heads.append(read_head(tuple(batch[:13]), 0))
        self._buffers.append(data)
        self._size += len(data)
        if self._size >= _WRITE_BYTES or len(self._buffers) >= 1000:
            self.flush()

    def flush(self) -> None:
        if not self._buffers:
            return
        segment = self._segment
        segment.file().write(self._buffers, self._size, segment.size)
        for head in self._heads:
            segment.note(head.last_offset, head.max_timestamp, head.size)
            segment.producers |= head.producer_id >= 0
        self._buffers, self._heads, self._size = [], [], 0
