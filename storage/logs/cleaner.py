"""Compact a log: build the map of last offsets, write filtered segments, swap them in.

One log at a time, on any one thread: only the swap at the end holds up the appending thread's rolls. Only sealed
segments below the last stable offset are touched; damage met on the way leaves the log as it is.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from muster.storage.errors import StorageError
from muster.storage.files import Buffer
from muster.storage.logs.control import read_marker
from muster.storage.logs.log import Log
from muster.storage.logs.rules import CleanedTransactions, CleaningRules, OffsetMap, filter_batch
from muster.storage.logs.segment import Segment
from muster.storage.logs.segment_list import SegmentList, read_whole_batch
from muster.storage.logs.summaries import save_summaries
from muster.storage.logs.swap import CLEANED, commit_cleaned, finish_swap, retire_files
from muster.storage.logs.upkeep import open_for_readers
from muster.storage.records.batch import BatchView, view_at
from muster.storage.records.scan import BatchFault, BatchHead, read_head, walk_headers
from muster.storage.types import Record

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
