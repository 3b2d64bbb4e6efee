"""A segment is one file of batches with its indexes, in Kafka's layout on disk; reads go over a list of segments.

Offset index: 8-byte entries (relative offset, position), where the offset is the *last* of the batch at that position.
Time index: 12-byte entries (timestamp, relative offset): the largest timestamp so far and its batch's last offset.
Aborted transactions are Kafka's `.txnindex`. What is in memory of a sealed segment is what `segments-checkpoint` says
of it; files and indexes are opened when somebody reads. An index is believed only if its checksum matches that
checkpoint, else it is rebuilt from the log. `OpenSegments` limits open files: segments close theirs in turn.

A compacted segment takes the place of those it was made from by Kafka's protocol, so that a crash at any step loses
nothing: new files are written as `.cleaned`, renamed to `.swap` once they are whole, the old ones to `.deleted`, and
then `.swap` to their final names.
"""

import os
import struct
import sys
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from crc32c import crc32c

from muster.storage.errors import LogDamaged, OffsetOutsideLog
from muster.storage.files import Buffer, File, Files, NotAtHand, read_file
from muster.storage.logs.log_metadata import Summary
from muster.storage.records.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchView, decode_batch, view_at
from muster.storage.records.scan import (
    BatchFault,
    BatchHead,
    Order,
    check_view,
    find_head_fault,
    read_head,
    walk_headers,
)
from muster.storage.types import AbortedTransaction, Record

# Aborted transactions: `.txnindex`
# ---------------------------------

# version 0; producer id, first offset, last offset (the marker's), last stable offset when it ended
_ENTRY = struct.Struct(">hqqqq")


class AbortedEntry(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def pack_aborted(entries: Iterable[AbortedEntry]) -> bytes:
    return b"".join(_ENTRY.pack(0, *entry) for entry in entries)


def unpack_aborted(data: bytes) -> list[AbortedEntry]:
    whole = len(data) - len(data) % _ENTRY.size
    return [AbortedEntry(*fields[1:]) for fields in _ENTRY.iter_unpack(data[:whole])]


def overlapping_aborted(entries: Iterable[Sequence[AbortedEntry]], start: int, until: int) -> list[AbortedEntry]:
    """The aborted transactions with data in [start, until), of segments' entries, all in the order of their markers."""
    found: list[AbortedEntry] = []
    for some in entries:
        for place in range(bisect_left(some, start, key=_last_offset), len(some)):
            entry = some[place]
            if entry.first_offset < until:
                found.append(entry)
            # Everything that ended later began at or past this one's last stable offset.
            if entry.last_stable_offset >= until:
                return found
    return found


_last_offset = attrgetter("last_offset")


# The two sparse indexes
# ----------------------

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
# Older than any timestamp.
NO_TIMESTAMP = -(1 << 63) - 1


class OffsetIndex:
    """Entries (relative last offset, position) of one segment."""

    __slots__ = ("offsets", "positions")

    def __init__(self, data: bytes = b"") -> None:
        numbers = array("i", data[: len(data) // 8 * 8])
        if sys.byteorder == "little":
            numbers.byteswap()
        self.offsets = numbers[0::2]
        self.positions = numbers[1::2]

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def data(self) -> bytes:
        """The entries as they lie on disk."""
        return b"".join(map(_OFFSET_ENTRY.pack, self.offsets, self.positions))

    def append(self, relative_offset: int, position: int) -> None:
        # Readers look the offset up first.
        self.positions.append(position)
        self.offsets.append(relative_offset)

    def floor(self, relative_offset: int) -> tuple[int, int] | None:
        """The greatest entry whose offset is not above `relative_offset`."""
        place = bisect_right(self.offsets, relative_offset) - 1
        return (self.offsets[place], self.positions[place]) if place >= 0 else None


class TimeIndex:
    """Entries (largest timestamp so far, relative last offset of its batch) of one segment."""

    __slots__ = ("latest", "offsets", "timestamps")

    def __init__(self, data: bytes = b"") -> None:
        entries = list(_TIME_ENTRY.iter_unpack(data[: len(data) // 12 * 12]))
        self.timestamps = array("q", (entry[0] for entry in entries))
        self.offsets = array("i", (entry[1] for entry in entries))
        self.latest = self.timestamps[-1] if self.timestamps else NO_TIMESTAMP

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def data(self) -> bytes:
        """The entries as they lie on disk."""
        return b"".join(map(_TIME_ENTRY.pack, self.timestamps, self.offsets))

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if the timestamp grew; an equal or older one tells nothing new."""
        if timestamp > self.latest:
            self.latest = timestamp
            # Readers look the timestamp up first.
            self.offsets.append(relative_offset)
            self.timestamps.append(timestamp)

    def floor(self, timestamp: int) -> tuple[int, int] | None:
        """The greatest entry whose timestamp is not above `timestamp`."""
        place = bisect_right(self.timestamps, timestamp) - 1
        return (self.timestamps[place], self.offsets[place]) if place >= 0 else None


# A limit on open files
# ---------------------


class OpenSegments:
    """Which segments hold an open file or loaded indexes; the longest unused ones let go first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._used: OrderedDict[Segment, None] = OrderedDict()
        # Readers, the appending thread and whoever compacts open segments.
        self._lock = threading.Lock()

    def touch(self, segment: "Segment") -> None:
        with self._lock:
            self._used[segment] = None
            self._used.move_to_end(segment)
            while len(self._used) > self.limit:
                gone = next((other for other in self._used if other is not segment and other.let_go()), None)
                if gone is None:
                    return
                del self._used[gone]

    def forget(self, segment: "Segment") -> None:
        with self._lock:
            self._used.pop(segment, None)


# Reads on an event loop
# ----------------------

WALK_BYTES = 64 << 10
"""So many bytes more may be read on the way to a batch: a thousand headers of the smallest batches there are."""


class SegmentBytes(Protocol):
    """Where a segment's bytes come from: its file, or what of it is at hand."""

    def read(self, size: int, at: int) -> bytes | memoryview:
        """`size` bytes from position `at`; from a file fewer where it ends."""
        ...


class CachedSegmentBytes:
    """A file that ends at `end`, of which at most `most` bytes are read, and those on the way to them.

    NotAtHand for all else.
    """

    __slots__ = ("_end", "_file", "_left")

    def __init__(self, file: File, end: int, most: int) -> None:
        self._file = file
        self._end = end
        self._left = most + WALK_BYTES

    def read(self, size: int, at: int) -> bytes | memoryview:
        size = min(size, self._end - at)
        self._left -= size
        if self._left < 0:
            raise NotAtHand
        return self._file.read_at_hand(size, at)


# The segment
# -----------

# Enough for the batches between two index entries, and little to read in vain.
_LOCATE_BYTES = 4096
# Of `HEADER` what says where a batch lies: base offset, length, magic, last offset delta.
_unpack_head = struct.Struct(">qi4xb6xi").unpack_from


class Segment:
    """Batches with offsets in [base_offset, next_offset), `size` bytes of them."""

    # fmt: off
    __slots__ = (
        "_file", "_index", "_times", "aborted", "active", "base_offset", "checked", "created_ms", "directory",
        "entries", "files", "first_timestamp", "gaps", "index_due", "interval", "max_timestamp", "max_timestamp_offset",
        "next_offset", "one_each", "opened", "own_from", "pinned", "producers", "size", "summary",
    )
    # fmt: on

    def __init__(self, files: Files, directory: str, base_offset: int, opened: OpenSegments, interval: int) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.opened = opened
        self.interval = interval
        self.next_offset = base_offset
        self.size = 0
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.created_ms = 0
        self.active = False
        self.gaps = False
        # Its files have other names now: what is open must stay open for those who still read.
        self.pinned = False
        self.producers = False
        self.aborted: list[AbortedEntry] = []
        self.summary: Summary | None = None
        # A batch gets index entries when it begins behind this position.
        self.index_due = interval
        self.entries = 0
        # Whether the last look found the batch that the next index entry names: so it is with large batches.
        self.one_each = False
        # From this position on this process wrote or walked all bytes itself.
        self.own_from = 0
        # What readers have checked of the others: from, to, and the offset that follows. Replaced as one, so that
        # readers in several threads need no lock.
        self.checked = (0, 0, base_offset)
        self._file: File | None = None
        self._index: OffsetIndex | None = None
        self._times: TimeIndex | None = None

    def path(self, suffix: str = ".log") -> str:
        return segment_path(self.directory, self.base_offset, suffix)

    def file(self, *, create: bool = False) -> File:
        """The open file. A reader keeps its own reference, so that the segment may close meanwhile."""
        file = self._file
        if file is None:
            file = self._file = self.files.open(self.path(), create=create)
            self.opened.touch(self)
        return file

    def let_go(self) -> bool:
        """Close the file and forget what can be had again from disk; whether that was possible."""
        if self.pinned:
            return False
        self._file = None
        if not self.active:
            self._index = self._times = None
        return True

    def abandon(self) -> None:
        """The segment is being removed: its file closes once those who read from it are done."""
        self.opened.forget(self)
        self._file = None

    def close(self) -> None:
        self.opened.forget(self)
        file, self._file = self._file, None
        if file is not None:
            file.close()

    # -- writing ------------------------------------------------------------------------------------------

    def start(self, now_ms: int, suffix: str = "") -> None:
        """Create the file, empty; the caller makes the directory entry durable. `suffix` is for names to come."""
        self._file = self.files.open(self.path(".log" + suffix), create=True)
        self._file.truncate(0)
        self.opened.touch(self)
        self.created_ms = now_ms
        self.active = True
        self._index = OffsetIndex()
        self._times = TimeIndex()

    def note(self, last_offset: int, max_timestamp: int, size: int) -> None:
        """Take into account a batch that was just written at the end."""
        marks = ((last_offset, self.size),) if self.size > self.index_due else ()
        self.note_row(last_offset, max_timestamp, last_offset, size, marks)

    def note_row(
        self, last_offset: int, max_timestamp: int, youngest: int, size: int, marks: Sequence[tuple[int, int]]
    ) -> None:
        """The same of several batches, `size` bytes together. `youngest`: the last offset of the one with the largest
        timestamp. `marks`: the last offset and the position of those that get an entry in the index: the first behind
        `index_due`, and then the first that lies more than `interval` bytes behind the one before.
        """
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = youngest
        if not self.size:
            self.first_timestamp = max_timestamp
        # Readers ask for the size, then for the next offset: the offset moves first. What the index names comes last.
        self.next_offset = last_offset + 1
        self.size += size
        if not marks:
            return
        index, times, base = self._index, self._times, self.base_offset
        assert index is not None
        assert times is not None
        for offset, position in marks:
            index.append(offset - base, position)
        self.index_due = marks[-1][1] + self.interval
        if self.max_timestamp > times.latest:
            times.append(self.max_timestamp, self.max_timestamp_offset - base)
        self.entries += len(marks)

    def seal(self, snapshot_crc: int, suffix: str = "", *, sync: bool = True) -> Summary:
        """Write the indexes of the flushed records and say what to remember. `suffix` is for names to come."""
        self.file().trim()
        index, times = self.index(), self.times()
        if self.max_timestamp >= 0:
            times.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        index_data, times_data = index.data, times.data
        self.write_side(".index" + suffix, index_data, sync=sync)
        self.write_side(".timeindex" + suffix, times_data, sync=sync)
        aborted = pack_aborted(self.aborted)
        if aborted:
            self.write_side(".txnindex" + suffix, aborted, sync=sync)
        self.summary = Summary(
            self.base_offset, self.next_offset, self.size,
            self.first_timestamp, self.max_timestamp, self.max_timestamp_offset,
            crc32c(index_data), crc32c(times.data), crc32c(aborted) if aborted else 0, snapshot_crc, self.producers,
        )  # fmt: skip
        return self.summary

    def write_side(self, suffix: str, data: Buffer, at_offset: int | None = None, *, sync: bool = True) -> None:
        """Write a file beside the log and flush it (`sync`); named after `at_offset`, or the segment."""
        base = self.base_offset if at_offset is None else at_offset
        file = self.files.open(segment_path(self.directory, base, suffix), create=True)
        try:
            file.truncate(len(data))
            file.write([data], len(data), 0)
            if sync:
                file.sync()
        finally:
            file.close()

    # -- loading ------------------------------------------------------------------------------------------

    def believe(self, summary: Summary) -> None:
        """Take over what a former process knew of the segment."""
        self.next_offset = summary.next_offset
        self.size = summary.size
        self.first_timestamp = summary.first_timestamp
        self.max_timestamp = summary.max_timestamp
        self.max_timestamp_offset = summary.max_timestamp_offset
        self.producers = summary.producers
        self.summary = summary
        self.own_from = summary.size
        self.checked = (0, 0, self.base_offset)
        self.index_due = -1

    @property
    def as_summarised(self) -> bool:
        """Whether a former process wrote down all that there is to know, and nothing came since."""
        known = self.summary
        return known is not None and known.size == self.size and known.next_offset == self.next_offset

    def restart(self) -> None:
        """Forget everything derived, before the batches are noted anew."""
        self.next_offset = self.max_timestamp_offset = self.base_offset
        self.size = self.entries = self.own_from = 0
        self.checked = (0, 0, self.base_offset)
        self.index_due = self.interval
        self.first_timestamp = self.max_timestamp = -1
        self.producers = False
        self.aborted = []
        self.summary = None
        self._index = OffsetIndex()
        self._times = TimeIndex()

    def index(self) -> OffsetIndex:
        if self._index is None:
            self._load_indexes()
        assert self._index is not None
        return self._index

    def times(self) -> TimeIndex:
        if self._times is None:
            self._load_indexes()
        assert self._times is not None
        return self._times

    def _load_indexes(self) -> None:
        index, times = self.read_side(".index"), self.read_side(".timeindex")
        known = self.summary
        if known is None or crc32c(index) != known.index_crc or crc32c(times) != known.times_crc:
            self._rebuild_indexes()
        else:
            self._index, self._times = OffsetIndex(index), TimeIndex(times)
            self.entries = max(len(self._index), len(self._times))
        self.opened.touch(self)

    def read_side(self, suffix: str) -> bytes:
        """A file beside the log; empty when it is missing or unreadable."""
        try:
            return read_file(self.files, self.path(suffix))
        except OSError:
            return b""  # Its checksum will not match, and it is rebuilt.

    def _rebuild_indexes(self) -> None:
        index, times = OffsetIndex(), TimeIndex()
        largest, largest_at, unindexed = -1, 0, 0
        try:
            for head in walk_headers(self.file(), 0, self.size):
                if head.max_timestamp > largest:
                    largest, largest_at = head.max_timestamp, head.last_offset - self.base_offset
                if unindexed > self.interval:
                    index.append(head.last_offset - self.base_offset, head.position)
                    times.append(largest, largest_at)
                    unindexed = 0
                unindexed += head.size
        except BatchFault as fault:
            raise self.damaged(fault, self.base_offset) from None
        if largest >= 0:
            times.append(largest, largest_at)
        self._index, self._times = index, times
        self.entries = max(len(index), len(times))

    # -- reading ------------------------------------------------------------------------------------------

    def at_hand(self, most: int) -> CachedSegmentBytes:
        """What `locate` and `read` may be given, to read at most `most` bytes, and nothing that has to be waited for.

        Raises NotAtHand, as they do then.
        """
        file = self._file
        if file is None or self._index is None:
            raise NotAtHand
        return CachedSegmentBytes(file, self.size, most)

    def locate(self, offset: int, source: SegmentBytes | None = None) -> BatchHead | None:
        """The first batch whose last offset is not below `offset`; None when all lie before."""
        if offset >= self.next_offset:
            return None
        index = self._index
        if index is None:
            index = self.index()
        source = source or self._file or self.file()
        place = bisect_left(index.offsets, offset - self.base_offset)
        if place < len(index.offsets) and index.positions[place] - (index.positions[place - 1] if place else 0) > 4096:
            # Large batches have an entry each: the next entry is most likely the batch itself.
            head = self._indexed(source, index.positions[place], self.base_offset + index.offsets[place])
            self.one_each = head.base_offset <= offset
            if self.one_each:
                return head
        if not place or offset == self.base_offset:
            return self._find(source, offset, 0, self.base_offset, -1)
        return self._find(source, offset, index.positions[place - 1], -1, self.base_offset + index.offsets[place - 1])

    def _indexed(self, source: SegmentBytes, position: int, last_offset: int) -> BatchHead:
        """The batch that the index names."""
        data = source.read(HEADER_SIZE, position)
        fields = HEADER.unpack(data) if len(data) == HEADER_SIZE else None
        if fields is None or fields[0] + fields[6] != last_offset or find_head_fault(fields, self.size - position):
            why = f"no batch that ends at offset {last_offset} lies here, though the index says so"
            raise self.damaged(BatchFault(position, why), self.base_offset)
        return read_head(fields, position)

    def _find(
        self, source: SegmentBytes, offset: int, position: int, expected: int, last_offset: int
    ) -> BatchHead | None:
        """Walk headers from `position` to the batch that reaches `offset`.

        The first batch begins at `expected`, or ends at `last_offset` as the index says; the others follow on.
        """
        size = self.size
        chunk: bytes | memoryview = b""
        origin = position
        while position < size:
            at = position - origin
            if at + HEADER_SIZE > len(chunk):
                chunk, origin, at = source.read(_LOCATE_BYTES, position), position, 0
                if len(chunk) < HEADER_SIZE:
                    raise self.damaged(BatchFault(position, f"{len(chunk)} bytes are left, too few"), expected)
            fields = HEADER.unpack_from(chunk, at)
            found = fields[0] + fields[6]
            why = find_head_fault(fields, size - position)
            if expected < 0:
                if found != last_offset:
                    why = why or f"its last offset is {found}, the index says {last_offset}"
            elif fields[0] != expected and not (self.gaps and fields[0] > expected):
                why = why or f"its base offset is {fields[0]}, expected {expected}"
            if fields[6] < 0 or why:
                raise self.damaged(BatchFault(position, why or f"its last offset delta is {fields[6]}"), expected)
            if found >= offset:
                return read_head(fields, position)
            expected = found + 1
            position += fields[1] + LENGTH_OVERHEAD
        return None

    def reach(self, offset: int, size: int) -> int:
        """An offset that no batch reaches of which the first holds `offset` and all lie within `size` bytes.

        By the index, so it may be as far as two of its entries past the last one.
        """
        index = self._index
        if index is None:
            return self.next_offset
        first = bisect_left(index.offsets, offset - self.base_offset)
        if first >= len(index.offsets):
            return self.next_offset
        place = bisect_left(index.positions, index.positions[first] + size)
        return self.base_offset + index.offsets[place] + 1 if place < len(index.offsets) else self.next_offset

    def read_at_once(self, offset: int, until: int, max_bytes: int, source: SegmentBytes) -> bytes | memoryview:
        """What `locate` and `read` would give, with one read in place of two.

        Empty where that cannot be known beforehand: bytes to be checked first, a batch that the index does not name,
        records from `until` on.
        """
        index = self._index
        if not self.one_each or index is None:
            return b""
        place = bisect_left(index.offsets, offset - self.base_offset)
        if place == len(index.offsets):
            return b""
        position = index.positions[place]
        size = min(self.size - position, max_bytes)
        if until < self.next_offset or size < HEADER_SIZE or not self.is_good(position, size):
            return b""
        data = source.read(size, position)
        if len(data) == size:
            first, length, magic, delta = _unpack_head(data)
            if (
                first <= offset
                and first + delta == self.base_offset + index.offsets[place]
                and magic == MAGIC
                and HEADER_SIZE <= length + LENGTH_OVERHEAD <= size
            ):
                return data
        self.one_each = False
        return b""

    def read(self, position: int, size: int, source: SegmentBytes | None = None) -> bytes | memoryview:
        """`size` bytes at a batch's start, checked unless this process knows them to be good.

        What is checked ends with its last good batch; LogDamaged when not even the first is good.
        """
        data = (source or self._file or self.file()).read(size, position)
        if len(data) == size and self.is_good(position, size):
            return data
        return data[: self._check(memoryview(data), position, size) - position]

    def is_good(self, position: int, size: int) -> bool:
        """Whether this process has written or checked these bytes, or a reader has."""
        if position >= self.own_from:
            return True
        first, until, _ = self.checked
        return first <= position and (position + size <= until or until >= self.own_from)

    def _check(self, view: memoryview, position: int, size: int) -> int:
        """Check bytes read for the first time; where the good batches among them end."""
        checked_from, checked_to, checked_next = self.checked
        follows_on = checked_from <= position <= checked_to
        known = follows_on and position == checked_to
        # A batch in the middle was found by its header, so that its offset is where the checks begin.
        first = int.from_bytes(view[:8], "big", signed=True) if position and not known else self.base_offset
        order = Order(self.base_offset, checked_next if known else first, self.gaps)
        end, fault = check_view(view, position, order)
        if fault is None and position + size >= self.size:
            fault = self._end_fault(end, order)
        if fault is None and len(view) < size:
            fault = BatchFault(position + len(view), "the file is shorter than it was")
        if fault and end == position:
            raise self.damaged(fault, order.next_offset)
        if not follows_on:
            self.checked = (position, end, order.next_offset)
        elif end > checked_to:
            self.checked = (checked_from, end, order.next_offset)
        # Half a batch behind good ones is left out: nothing is known of it yet.
        return end if end > position else position + len(view)

    def _end_fault(self, end: int, order: Order) -> BatchFault | None:
        """Why the segment's last bytes cannot be its end."""
        if end < self.size:
            return BatchFault(end, f"{self.size - end} bytes are left, too few for a batch")
        if not self.gaps and order.next_offset != self.next_offset:
            return BatchFault(end, f"it ends before offset {order.next_offset}, expected {self.next_offset}")
        return None

    def damaged(self, fault: BatchFault, first_offset: int) -> LogDamaged:
        size = max(self.size - fault.position, 0)
        return LogDamaged(self.path(), fault.position, size, first_offset, self.next_offset, fault.why)


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """
    >>> segment_path("d", 7, ".log")
    'd/00000000000000000007.log'
    """
    return os.path.join(directory, f"{base_offset:020d}{suffix}")


# Swapping a compacted segment in
# -------------------------------

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"
PARTS = (".index", ".timeindex", ".txnindex", ".log")


def commit_cleaned(files: Files, directory: str, base_offset: int) -> None:
    """From here on the compacted segment is the true one."""
    name = f"{directory}/{base_offset:020d}"
    files.sync_dir(directory)
    for part in PARTS:
        if files.exists(name + part + CLEANED):
            files.rename(name + part + CLEANED, name + part + SWAP)
            files.sync_dir(directory)


def retire_files(files: Files, directory: str, bases: Sequence[int]) -> list[str]:
    """Rename the segments' files out of the way, newest first; the paths to remove later."""
    doomed = []
    for base in sorted(bases, reverse=True):
        name = f"{directory}/{base:020d}"
        for part in reversed(PARTS):
            if files.exists(name + part):
                files.rename(name + part, name + part + DELETED)
                doomed.append(name + part + DELETED)
    files.sync_dir(directory)
    return doomed


def finish_swap(files: Files, directory: str, base_offset: int) -> None:
    """Give the compacted segment its final names."""
    name = f"{directory}/{base_offset:020d}"
    for part in PARTS:
        if files.exists(name + part + SWAP):
            files.rename(name + part + SWAP, name + part)
    files.sync_dir(directory)


def finish_swaps(files: Files, directory: str) -> list[int]:
    """After a crash: go on with each swap that was begun, and forget side files whose log never got there.

    The base offsets of the segments that were put in place: what is written down of them may be out of date.
    """
    names = files.names(directory)
    swapped = sorted(int(name[:20]) for name in names if name.endswith(".log" + SWAP))
    for base in reversed(swapped):
        last = _next_offset(files, f"{directory}/{base:020d}.log{SWAP}", base)
        covered = [
            int(name[:20]) for name in names if name.endswith(".log") and base <= int(name[:20]) < max(last, base + 1)
        ]
        retire_files(files, directory, covered)
        finish_swap(files, directory, base)
    stale = [name for name in files.names(directory) if name.endswith(SWAP)]
    for name in stale:
        files.remove(f"{directory}/{name}")
    if stale:
        files.sync_dir(directory)
    return swapped


def _next_offset(files: Files, path: str, base: int) -> int:
    file = files.open(path, writable=False)
    last = base
    try:
        for head in walk_headers(file, 0, file.size()):
            last = head.last_offset + 1
    except BatchFault:
        pass  # Found again, and reported, when the segment is loaded.
    finally:
        file.close()
    return last


# Fetch and look-up over an unchanging list of segments
# -----------------------------------------------------

# Reads are safe next to appends, retention and compaction.

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
"""Where the log begins on this node's disk (KIP-405): all of it does."""
LATEST_TIERED = -5
"""Where the log that was moved elsewhere ends (KIP-1005): none of it was."""


def is_known_timestamp(timestamp: int) -> bool:
    """Whether a log knows the offset without reading: its end, or its start."""
    return timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED)


class SegmentList:
    """The segments of a log, oldest first. Never changed: a new list takes its place."""

    __slots__ = ("_bases", "_with_aborted", "active", "all")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.all = tuple(segments)
        self.active = self.all[-1]
        self._bases = [segment.base_offset for segment in self.all]
        # A sealed segment gets no more of them.
        self._with_aborted = tuple(segment for segment in self.all[:-1] if segment.aborted)

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

    def aborted(self, offset: int, until: int, read: bytes | memoryview) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions with data in what was read from `offset` on, below `until`.

        Some more may be named, where the index is coarse.
        """
        sealed, active = self._with_aborted, self.active
        if not (sealed or active.aborted) or len(read) < HEADER_SIZE:
            return ()
        (first,) = _FIRST_OFFSET.unpack_from(read)  # of the batch that holds `offset`, or the next one there is
        holder = self.since(first)[0]
        until = min(until, holder.reach(first, len(read)))
        since = bisect_left(sealed, holder.base_offset, key=_base_offset)
        lists = [segment.aborted for segment in (*sealed[since:], active)]
        return tuple(
            AbortedTransaction(entry.producer_id, entry.first_offset)
            for entry in overlapping_aborted(lists, offset, until)
        )

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


_FIRST_OFFSET = struct.Struct(">q")
_base_offset = attrgetter("base_offset")


def search_segment(segment: Segment, timestamp: int, start: int) -> Record | None:
    """The segment's first record from offset `start` on that is at least as young."""
    if timestamp < 0:
        raise OffsetOutsideLog(f"Timestamp {timestamp} asks for nothing; expected -5 to -1, or 0 and more.")
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
