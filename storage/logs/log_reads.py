"""What readers of a log get: batches up to the high watermark or the log's end, and offsets by their time.

A reader that overlaps with a truncation reads again (`TruncationGuard`). A read is done on the event loop only if its
bytes are in memory and known to be good (`MemoryTail`: the last 4 MiB that were written), or if there is nothing to
read. All else may wait for the disk, verifies checksums or opens files, and is for a thread.
"""

import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from muster.storage.errors import LogDamaged, OffsetOutsideLog, StorageError
from muster.storage.logs.segment import MAX_TIMESTAMP, Segment
from muster.storage.types import Fetched

if TYPE_CHECKING:
    from muster.storage.logs.log import Log

# Reads during a truncation
# -------------------------

T = TypeVar("T")
P = ParamSpec("P")


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

    def outside(self, read: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> T:
        """What `read` finds or raises while no cut is under way."""
        while True:
            seen = self.seen
            try:
                found = read(*args, **named)
            except StorageError:
                if self.none_since(seen):
                    raise
            else:
                if self.none_since(seen):
                    return found
            with self._reshaping:
                pass  # Whoever cuts holds it until the log is whole again.


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


# What a reader gets
# ------------------


def report_damage(read: Callable[Concatenate["Log", P], T], log: "Log", /, *args: P.args, **named: P.kwargs) -> T:
    """What `read` of this log finds while no cut is under way; damage is reported to the node, too."""
    try:
        return log.cuts.outside(read, log, *args, **named)
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
    _check_offset(log, offset, start, end)
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
    _check_offset(log, offset, start, end)
    try:
        data = segments.read(offset, end, max_bytes, min_one) if offset < end else b""
    except OSError as error:
        raise read_refusal(log, error) from error
    return Fetched(data, log.high_watermark, start)


def _check_offset(log: "Log", offset: int, start: int, end: int) -> None:
    """Raises OffsetOutsideLog outside the log, and what is known of damage from there on."""
    if not start <= offset <= end:
        raise _outside(log, offset, start, end)
    damage = log.recovered.damage
    if damage and offset >= damage.first_offset:
        raise damage


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


def read_refusal(log: "Log", error: OSError) -> StorageError:
    """What a reader hears whom the system lets down."""
    refusal = StorageError(
        f"Could not read {error.filename or log.directory}: {error.strerror or error}. Nothing is known to be "
        "lost; mend what the system complains of, then fetch again."
    )
    log.troubles.refused(log.partition, refusal, error)
    return refusal
