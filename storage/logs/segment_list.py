"""Fetch and look-up over an unchanging list of segments; safe beside appends, retention and compaction."""

from bisect import bisect_right
from collections.abc import Sequence

from muster.storage.errors import LogDamaged, OffsetOutsideLog
from muster.storage.files import NotAtHand
from muster.storage.logs.segment import Segment
from muster.storage.records.batch import BatchView, decode_batch, view_at
from muster.storage.records.scan import BatchHead
from muster.storage.types import Record

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3


def is_known_timestamp(timestamp: int) -> bool:
    """Whether a log knows the offset without reading: its end, or its start."""
    return timestamp in (LATEST, EARLIEST)


class SegmentList:
    """The segments of a log, oldest first. Never changed: a new list takes its place."""

    __slots__ = ("_bases", "active", "all")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.all = tuple(segments)
        self.active = self.all[-1]
        self._bases = [segment.base_offset for segment in self.all]

    def since(self, offset: int) -> Sequence[Segment]:
        """The segment that holds `offset` and those after it. LogDamaged where a file is missing between."""
        if offset >= self.active.base_offset:
            return (self.active,)
        chosen = self.all[max(bisect_right(self._bases, offset) - 1, 0) :]
        floor = chosen[0]
        if len(chosen) > 1 and offset >= floor.next_offset and not floor.gaps:
            raise LogDamaged(
                floor.path(), floor.size, 0, floor.next_offset, chosen[1].base_offset, "the records after it are gone"
            )
        return chosen

    def read(
        self, offset: int, until: int, max_bytes: int, min_one: bool, at_hand: int | None = None
    ) -> bytes | memoryview:
        """Batches from the one that holds `offset`, ending before `until`, at most `max_bytes` of them.

        With `at_hand`, in bytes, nothing is waited for, checked or opened, and no more than that is read: NotAtHand.
        """
        for segment in self.since(offset):
            if segment.base_offset >= until:
                break
            source = segment.file() if at_hand is None else segment.at_hand(at_hand)
            at_once = segment.read_at_once(offset, until, max_bytes, source)
            if at_once:
                return at_once
            head = segment.locate(offset, source)
            if head is None:
                continue  # Compaction left nothing from `offset` on in here.
            end = segment.size
            if until < segment.next_offset and (beyond := segment.locate(until, source)):
                end = beyond.position
            position = head.position
            size = end - position
            if size > max_bytes:
                size = min(size, max(max_bytes, head.size)) if min_one else max_bytes
            if at_hand is not None and not segment.is_good(position, size):
                raise NotAtHand
            return segment.read(position, size, source)
        return b""

    def search(self, timestamp: int, start: int, until: int) -> tuple[int, int]:
        """(offset, timestamp) of the first record in [start, until) at least as young, or (-1, -1)."""
        for segment in self.all:
            if segment.max_timestamp >= timestamp and segment.next_offset > start:
                found = search_segment(segment, timestamp, start)
                if found:
                    return (found.offset, found.timestamp_ms) if found.offset < until else (-1, -1)
        return -1, -1

    def largest_timestamp(self, start: int, until: int) -> tuple[int, int]:
        """(offset, timestamp) of the first record with the largest timestamp, or (-1, -1)."""
        readable = [s for s in self.all if s.base_offset < until and s.next_offset > start and s.size]
        youngest = max(readable, key=lambda segment: segment.max_timestamp, default=None)
        if youngest is None or youngest.max_timestamp < 0:
            return -1, -1
        found = search_segment(youngest, youngest.max_timestamp, start)
        return (found.offset, found.timestamp_ms) if found and found.offset < until else (-1, -1)


def search_segment(segment: Segment, timestamp: int, start: int) -> Record | None:
    """The segment's first record from offset `start` on that is at least as young."""
    if timestamp < 0:
        raise OffsetOutsideLog(f"Timestamp {timestamp} asks for nothing; expected -3 to -1, or 0 and more.")
    entry = segment.times().floor(timestamp)
    # The entry names the last offset of the earliest batch that has its timestamp: nothing before it is younger.
    head = segment.locate(max(segment.base_offset + entry[1] if entry else segment.base_offset, start))
    while head is not None:
        if head.max_timestamp >= timestamp:
            for record in decode_batch(read_whole_batch(segment, head)):
                if record.timestamp_ms >= timestamp and record.offset >= start:
                    return record
        head = segment.locate(head.last_offset + 1)
    return None


def read_whole_batch(segment: Segment, head: BatchHead) -> BatchView:
    """One batch with its bytes."""
    data = segment.read(head.position, head.size)
    batch = view_at(memoryview(data), 0, head.position)
    assert batch is not None
    return batch
