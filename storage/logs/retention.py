"""Takes segments out of a log: retention policies, removal of files, truncation. On the appending thread.

A policy is asked about the oldest segment only, and again after that one has gone: removal stops at the first segment
that every policy keeps. A package registers a class under the entry point `muster.retention`.
Readers are not blocked: they keep the list of segments that they started with, and the open files in it.
"""

import logging
from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import NamedTuple, Protocol

from muster.storage.config import TopicSettings
from muster.storage.errors import OffsetOutsideLog
from muster.storage.logs.log import Log
from muster.storage.logs.log_files import remove_newest_first, replace_epochs, restart_empty_at, truncate_active
from muster.storage.logs.log_metadata import LeaderEpochs, save_summaries
from muster.storage.logs.segment import Segment, SegmentList, retire_files
from muster.storage.records.scan import BatchFault, walk_headers

# Policies
# --------


class SegmentFacts(NamedTuple):
    """The oldest segment. `youngest_ms` is its largest timestamp, or when it was last written without one."""

    base_offset: int
    next_offset: int
    size: int
    youngest_ms: int


class LogFacts(NamedTuple):
    """The log that it belongs to; `size` counts every segment."""

    topic: str
    partition: int
    start_offset: int
    high_watermark: int
    size: int
    settings: TopicSettings


class RetentionPolicy(Protocol):
    """Says whether the oldest segment may go. Must not touch the disk: it is asked on the appending thread."""

    name: str

    def expired(self, segment: SegmentFacts, log: LogFacts, now_ms: int) -> bool: ...


class BelowStart:
    """All of the segment lies below the log's start, as after DeleteRecords. Holds for compacted topics too."""

    name = "start-offset"

    def expired(self, segment: SegmentFacts, log: LogFacts, now_ms: int) -> bool:
        return segment.next_offset <= log.start_offset


class BySize:
    """Without the segment the log still has `retention.bytes`."""

    name = "size"

    def expired(self, segment: SegmentFacts, log: LogFacts, now_ms: int) -> bool:
        bound = log.settings.retention_bytes
        return bound >= 0 and "delete" in log.settings.cleanup_policy and log.size - segment.size >= bound


class ByAge:
    """The segment's youngest record is older than `retention.ms`."""

    name = "age"

    def expired(self, segment: SegmentFacts, log: LogFacts, now_ms: int) -> bool:
        bound = log.settings.retention_ms
        return bound >= 0 and "delete" in log.settings.cleanup_policy and now_ms - segment.youngest_ms > bound


@cache
def retention_policies() -> tuple[RetentionPolicy, ...]:
    """The built-in policies and those of installed packages, in the order in which they are asked."""
    found = [entry.load()() for entry in sorted(entry_points(group="muster.retention"), key=lambda entry: entry.name)]
    return (BelowStart(), BySize(), ByAge(), *found)


# Removal and truncation
# ----------------------

logger = logging.getLogger("muster.storage")


def apply_retention(log: Log, asked: Sequence[RetentionPolicy], now_ms: int, aged: list[Log] | None = None) -> int:
    """Remove the oldest segments that a policy gives up, one by one; how many went.

    Only the appending thread may roll the segment that it writes. Another one gives `aged`, which gets the log where
    that is to be done before more can go.
    """
    if log.following:
        asked = (BelowStart(),)  # Retention is its leader's work, whose log start it takes over.
    gone = 0
    while log.failure is None:
        oldest = log.segments[0]
        if not oldest.size or oldest.next_offset > log.high_watermark:
            break
        facts = _facts(log)
        policy = next((p for p in asked if p.expired(_segment_facts(oldest, now_ms), facts, now_ms)), None)
        if policy is None:
            break
        if oldest is log.segment_list.active:
            if aged is not None:
                aged.append(log)
                break
            log.roll(now_ms)
        with log.reshaping:
            if log.failure is not None:
                break
            logger.info("Removing %s (%d bytes) by %s.", oldest.path(), oldest.size, policy.name)
            drop_oldest_segment(log, now_ms)
        gone += 1
    return gone


def _facts(log: Log) -> LogFacts:
    return LogFacts(*log.partition, log.start_offset, log.high_watermark, log.size, log.settings)


def _segment_facts(segment: Segment, now_ms: int) -> SegmentFacts:
    youngest = segment.max_timestamp
    if youngest < 0 or youngest > now_ms:
        # A clock that ran ahead must not keep the records forever: then the file's own age counts.
        youngest = segment.files.modified_ms(segment.path())
    return SegmentFacts(segment.base_offset, segment.next_offset, segment.size, youngest)


def drop_oldest_segment(log: Log, now_ms: int) -> None:
    """Give up the oldest segment. The log's start moves before anybody can miss the records."""
    oldest, *others = log.segments
    open_for_readers([oldest])
    log.move_start(others[0].base_offset)
    log.segment_list = SegmentList(others)
    log.epochs.cut_start(min(log.start_offset, log.end_offset - 1))
    retire_segments(log, [oldest], now_ms)
    for name in log.files.names(log.directory):
        if name.endswith(".snapshot") and int(name[:20]) < others[0].base_offset:
            log.files.remove(f"{log.directory}/{name}")


def open_for_readers(segments: Sequence[Segment]) -> None:
    """Open all that a reader may still need of segments whose files are about to be renamed."""
    for segment in segments:
        segment.file()
        segment.index()
        segment.times()
        segment.pinned = True


def retire_segments(log: Log, segments: Sequence[Segment], now_ms: int) -> None:
    """Rename the files of segments that are no longer listed, to be removed after the topic's delay."""
    paths = retire_files(log.files, log.directory, [segment.base_offset for segment in segments])
    for segment in segments:
        log.summaries.pop(segment.base_offset, None)
        log.opened.forget(segment)
    due = now_ms + log.settings.file_delete_delay_ms
    log.doomed.extend((due, path) for path in paths)


def unlink_retired_files(log: Log, now_ms: int) -> None:
    """Unlink the renamed files whose delay is over."""
    with log.reshaping:
        due = [path for at_ms, path in log.doomed if at_ms <= now_ms]
        log.doomed = [(at_ms, path) for at_ms, path in log.doomed if at_ms > now_ms]
    for path in due:
        if log.files.exists(path):
            log.files.remove(path)


def truncate_log(log: Log, offset: int) -> None:
    """Cut the log's end off at `offset`, as a follower does when its leader never had the rest (KIP-101).

    A batch that reaches past `offset` goes as a whole, though never below the log's start. Producers and epochs are
    as they were there, and nothing behind it counts as committed. All of it is on disk on return: first that the epochs
    end there, so that none is claimed for what comes instead. The recovery point is the caller's to see to, before.
    """
    offset = truncation_point(log, offset)
    with log.cuts.cutting():
        epochs = log.epochs.copy()
        if epochs.cut_end(offset):
            replace_epochs(log, epochs)
            log.epochs = epochs
        if offset < log.end_offset:
            _truncate(log, offset)
            log.lower_high_watermark(log.end_offset)
            log.cleaned_to = min(log.cleaned_to, log.end_offset)


def _truncate(log: Log, offset: int) -> None:
    keep = [segment for segment in log.segments if segment.base_offset <= offset]
    gone = [segment for segment in log.segments if segment.base_offset > offset]
    active = keep[-1]
    try:
        _cut_files(log, active, gone, offset)
    except OSError as error:
        raise log.fence(f"Truncating {log.directory} to {offset} failed: {error.strerror or error}") from error


def truncation_point(log: Log, offset: int) -> int:
    """Where `truncate_log` would end the log. OffsetOutOfRange before its start."""
    if offset < log.start_offset:
        raise OffsetOutsideLog(f"Cannot truncate to {offset}, before the log start {log.start_offset}.")
    if offset >= log.end_offset:
        return log.end_offset
    holder = next(segment for segment in reversed(log.segments) if segment.base_offset <= offset)
    return max(_kept_below(holder, offset), log.start_offset)


def _kept_below(segment: Segment, offset: int) -> int:
    """Where the segment ends without the batches that reach past `offset`."""
    head = segment.locate(offset)
    if head is None or not segment.gaps:
        return head.base_offset if head else segment.next_offset
    # Offsets may be missing right before that batch: what comes before is found by its own header only.
    end = segment.base_offset
    try:
        for before in walk_headers(segment.file(), 0, head.position):
            end = before.last_offset + 1
    except BatchFault as fault:
        raise segment.damaged(fault, end) from None
    return end


def _cut_files(log: Log, active: Segment, gone: list[Segment], offset: int) -> None:
    if _kept_below(active, offset) < offset:
        # Only the log's start lies there, within a batch or a hole: nothing before it counts, so begin there anew.
        restart_empty_at(log, offset)
        return
    head = active.locate(offset)
    remove_newest_first(log, gone)
    log.summaries.pop(active.base_offset, None)
    save_summaries(log.files, log.directory, log.summaries.values())
    truncate_active(log, active, head.position if head else active.size)


def restart_log(log: Log, offset: int) -> None:
    """Give up all records and begin anew at `offset`, behind which the leader's log begins. On disk on return.

    That the log starts there and nothing before it is missed is the caller's to write down, before.
    """
    with log.cuts.cutting():
        if log.epochs.entries:
            replace_epochs(log, LeaderEpochs())
            log.epochs = LeaderEpochs()
        try:
            restart_empty_at(log, offset)
        except OSError as error:
            raise log.fence(f"Beginning {log.directory} anew at {offset} failed: {error.strerror or error}") from error
        log.start_offset = log.cleaned_to = offset
        log.follow(offset)
