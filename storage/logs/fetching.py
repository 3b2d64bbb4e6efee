"""What a reader of a log gets: batches up to the high watermark, offsets by time, or what is wrong there."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from muster.storage.errors import LogDamaged, OffsetOutsideLog
from muster.storage.logs import fencing
from muster.storage.logs.segment_list import MAX_TIMESTAMP, SegmentList
from muster.storage.logs.txn_index import overlapping_aborted
from muster.storage.types import AbortedTransaction, Fetched

if TYPE_CHECKING:
    from muster.storage.logs.log import Log

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
    stable = log.last_stable_offset if log.producers.producers else high
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
        raise fencing.read_refusal(log, error) from error
    aborted = _aborted(segments, offset, until) if committed else ()
    return Fetched(data, high, start, stable, aborted)


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
        raise fencing.read_refusal(log, error) from error
    return Fetched(data, log.high_watermark, start)


def _outside(log: "Log", offset: int, start: int, end: int) -> OffsetOutsideLog:
    return OffsetOutsideLog(
        f"Offset {offset} of {log.partition[0]}-{log.partition[1]} is outside {start} to {end}. "
        "Start again from the earliest or the latest offset."
    )


def _aborted(segments: SegmentList, offset: int, until: int) -> tuple[AbortedTransaction, ...]:
    entries = (entry for segment in segments.since(offset) for entry in segment.aborted)
    return tuple(
        AbortedTransaction(entry.producer_id, entry.first_offset)
        for entry in overlapping_aborted(entries, offset, until)
    )


def search_timestamp(log: "Log", timestamp: int) -> tuple[int, int]:
    """(offset, timestamp) of the first record at least as young as `timestamp`, or of the youngest (MAX_TIMESTAMP)."""
    segments, start, until = log.segment_list, log.start_offset, log.high_watermark
    try:
        if timestamp == MAX_TIMESTAMP:
            return segments.largest_timestamp(start, until)
        return segments.search(timestamp, start, until)
    except OSError as error:
        raise fencing.read_refusal(log, error) from error
