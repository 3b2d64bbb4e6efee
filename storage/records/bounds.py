"""Where the records of many batches begin and end: the one walk of decoding that depends on what it finds.

Three ways, each for what it is quickest at: batches that look alike are walked once, many batches step by step
together, and what is left record by record, in strides where lengths repeat.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from muster.storage.errors import CorruptMessage
from muster.storage.files import Buffer
from muster.storage.records.batch import BatchView
from muster.storage.records.varint import read_unsigned

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Body = tuple[int, int]
"""Where the records of a batch begin and end in the data."""

# Where records of one length follow each other, so many are checked at once; below, one by one is quicker.
_STRIDE_FROM = 16

# So many batches are walked together: numpy's cost of a step, shared by them, is then below that of a record alone.
_TOGETHER_FROM = 24

_LONGEST_VARINT_BITS = 70


def record_bounds(
    data: Buffer, raw: Bytes, batches: Sequence[BatchView], bodies: Sequence[Body]
) -> tuple[Numbers, Numbers]:
    """Where each record begins behind its length, and ends. `raw` is `data` as an array.

    Raises CorruptMessage where records do not end with their batch, IndexError where the data ends before they do.
    """
    bounds = _Bounds()
    for run, alike in group_neighbours(batches, bodies):
        of_run = batches[run.start : run.stop], bodies[run.start : run.stop]
        if not (alike and _walk_alike(data, raw, *of_run, bounds)):
            _walk_each(data, raw, *of_run, bounds)
    return bounds.joined()


def read_varints(raw: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """The zigzag varints at these places, and where each ends.

    Where all have one byte, or all have two, as is usual for neighbours, they are read without looking for exceptions.
    """
    first = raw[at]
    more = first >= 0x80
    if not more.any():
        # Quicker than in wide numbers, eight times as many of which fit into a register.
        return ((first >> 1) ^ -(first & 1)).view(np.int8).astype(np.int64), at + 1
    value = (first & 0x7F).astype(np.int64)
    if more.all():
        second = raw[at + 1]
        if not (second >= 0x80).any():
            value |= second.astype(np.int64) << 7
            return (value >> 1) ^ -(value & 1), at + 2
    at = at + 1
    going = np.flatnonzero(more)
    shift = 7
    while going.size:
        if shift >= _LONGEST_VARINT_BITS:
            raise CorruptMessage("A varint is longer than 10 bytes.")
        byte = raw[at[going]]
        value[going] |= (byte & 0x7F).astype(np.int64) << shift
        at[going] += 1
        going = going[byte >= 0x80]
        shift += 7
    return (value >> 1) & 0x7FFFFFFFFFFFFFFF ^ -(value & 1), at


def group_neighbours(batches: Sequence[BatchView], bodies: Sequence[Body]) -> Iterator[tuple[range, bool]]:
    """Neighbours with as many records in as many bytes (where values are of one length, so are all records), or
    neighbours none of which is like the next; and which of both they are."""
    sizes = [(batch.count, end - start) for batch, (start, end) in zip(batches, bodies, strict=True)]
    like_next = [size == after for size, after in pairwise(sizes)] + [False] * bool(sizes)
    first = 0
    while first < len(sizes):
        alike = like_next[first]
        try:
            after = like_next.index(not alike, first + 1) + alike
        except ValueError:
            after = len(sizes)
        yield range(first, after), alike
        first = after


def _walk_alike(
    data: Buffer, raw: Bytes, batches: Sequence[BatchView], bodies: Sequence[Body], bounds: "_Bounds"
) -> bool:
    """Walk the first batch; if the others have its length bytes at its places, they need not be walked.

    An equal length at the first record's place proves where the second one begins, and so on to the end. False, and
    nothing added, where they have not.
    """
    first = _Bounds()
    _walk(data, raw, *bodies[0], batches[0].count, batches[0], first)
    starts, ends = first.joined()
    origin = bodies[0][0]
    heads = np.concatenate((np.array([origin], np.int64), ends[:-1]))
    wide = starts - heads
    places = np.concatenate([heads[wide > byte] + byte for byte in range(int(wide.max()))]) - origin
    at = np.array([start for start, _ in bodies[1:]], np.int64)[:, None]
    if (raw[at + places] != raw[origin + places]).any():
        return False
    bounds.add(starts, ends)
    bounds.add((at + (starts - origin)).ravel(), (at + (ends - origin)).ravel())
    return True


def _walk_each(
    data: Buffer, raw: Bytes, batches: Sequence[BatchView], bodies: Sequence[Body], bounds: "_Bounds"
) -> None:
    if len(batches) >= _TOGETHER_FROM:
        _walk_together(data, raw, batches, bodies, bounds)
        return
    for batch, (start, end) in zip(batches, bodies, strict=True):
        _walk(data, raw, start, end, batch.count, batch, bounds)


def _walk_together(
    data: Buffer, raw: Bytes, batches: Sequence[BatchView], bodies: Sequence[Body], bounds: "_Bounds"
) -> None:
    """All batches a record further in each step; those with the most records first, so that the others drop out."""
    counts = np.array([batch.count for batch in batches], np.int64)
    order = np.argsort(-counts, kind="stable")
    at = np.array([start for start, _ in bodies], np.int64)[order]
    # The step from which too few batches are left to go on together.
    steps = int(counts[order[_TOGETHER_FROM - 1]])
    starts = np.empty((len(batches), steps), np.int64)
    ends = np.empty_like(starts)
    going = len(batches) - np.searchsorted(counts[order][::-1], np.arange(steps), side="right")
    for step, left in enumerate(going.tolist()):
        begin, length = _lengths(raw, at[:left])
        if (length & 1).any():
            raise CorruptMessage(f"A record at byte {int(at[(length & 1).argmax()])} claims a negative length.")
        starts[:left, step] = begin
        at[:left] = begin + (length >> 1)
        ends[:left, step] = at[:left]
    place_of = np.empty_like(order)
    place_of[order] = np.arange(len(order))
    for place, batch, (_, end) in zip(place_of.tolist(), batches, bodies, strict=True):
        done = min(batch.count, steps)
        bounds.add(starts[place, :done], ends[place, :done])
        _walk(data, raw, int(at[place]), end, batch.count - done, batch, bounds)


def _lengths(raw: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """Where the records at these places begin behind their length, and the length as its zigzag number."""
    first = raw[at]
    more = first >= 0x80
    length = first.astype(np.int64)
    if not more.any():
        return at + 1, length
    # A record has more than one byte behind its length, so that the next byte is there whether it counts or not.
    second = raw[at + 1]
    if ((second >= 0x80) & more).any():
        values, begin = read_varints(raw, at)
        return begin, (values << 1) ^ (values >> 63)
    return at + 1 + more, (length & 0x7F) | (second.astype(np.int64) << 7) * more


class _Bounds:
    """Where records begin behind their length, and end: one by one, or many of one length at once."""

    def __init__(self) -> None:
        self._starts: list[Numbers] = []
        self._ends: list[Numbers] = []
        self.start: list[int] = []
        self.end: list[int] = []

    def add_run(self, at: int, wide: int, stride: int, count: int) -> None:
        """`count` records from `at` on, `stride` apart, whose lengths take `wide` bytes."""
        self._put_away()
        ends = np.arange(at + stride, at + stride * count + 1, stride)
        self._starts.append(ends - (stride - wide))
        self._ends.append(ends)

    def add(self, starts: Numbers, ends: Numbers) -> None:
        """Records whose places are known already."""
        self._put_away()
        self._starts.append(starts)
        self._ends.append(ends)

    def joined(self) -> tuple[Numbers, Numbers]:
        self._put_away()
        if not self._starts:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(self._starts), np.concatenate(self._ends)

    def _put_away(self) -> None:
        if self.start:
            self._starts.append(np.array(self.start, np.int64))
            self._ends.append(np.array(self.end, np.int64))
            self.start.clear()
            self.end.clear()


def _walk(data: Buffer, raw: Bytes, at: int, end: int, left: int, batch: BatchView, bounds: _Bounds) -> None:
    """Add where each of the last `left` records of a batch begins behind its length, and ends.

    A record that is as long as the one before is often followed by more of them: equal length bytes at equal
    distances prove it, and all are looked at in one comparison.
    """
    last, try_at = -1, left - 1
    starts, ends = bounds.start, bounds.end
    while left:
        size = data[at]
        wide = 1
        if size >= 0x80:
            byte = data[at + 1]
            if byte < 0x80:
                size = size & 0x7F | byte << 7
                wide = 2
            else:
                size, behind = read_unsigned(memoryview(data), at)
                wide = behind - at
        if size & 1:
            raise CorruptMessage(f"A record at byte {at} claims a negative length.")
        stride = wide + (size >> 1)
        if size == last and _STRIDE_FROM <= left <= try_at:
            same = _equal_lengths(raw, at, stride, wide, min(left, (end - at) // stride))
            if same >= _STRIDE_FROM:
                bounds.add_run(at, wide, stride, same)
            else:
                starts.extend(range(at + wide, at + wide + same * stride, stride))
                ends.extend(range(at + stride, at + same * stride + 1, stride))
            at += same * stride
            left -= same
            # Where lengths vary there is no use in looking again at once.
            try_at = left if same >= _STRIDE_FROM else left - 4 * _STRIDE_FROM
            continue
        last = size
        starts.append(at + wide)
        at += stride
        ends.append(at)
        left -= 1
    if at != end:
        raise CorruptMessage(
            f"The records of the batch at offset {batch.base_offset} end at byte {at}, {end} was expected."
        )


def _equal_lengths(raw: Bytes, at: int, stride: int, wide: int, most: int) -> int:
    """How many records from `at` on have the length of the first; at least one."""
    last = (most - 1) * stride + 1
    equal = raw[at : at + last : stride] == raw[at]
    for place in range(at + 1, at + wide):
        equal &= raw[place : place + last : stride] == raw[place]
    return most if equal.all() else int(equal.argmin())
