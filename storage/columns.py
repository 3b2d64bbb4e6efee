"""Decode a large batch into columns instead of records, for Arrow and Spark.

Only the walk over the record lengths is done one by one; every field is then gathered for all records at once.
Keys and values stay where they are in the batch: a column holds where each begins and how long it is. Pays from
about a thousand records a batch; below that `BatchView.records` is quicker.
"""

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from storage.batch import HEADER_SIZE, LOG_APPEND_TIME_BIT, BatchView
from storage.compression import decompress
from storage.errors import CorruptMessage
from storage.headers import decode_headers
from storage.types import Headers
from storage.varint import read_unsigned

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# An Arrow view holds values up to this long itself, longer ones by reference.
_INLINE = 12

# What a varint of one byte stands for.
_ZIGZAG = (np.arange(128, dtype=np.int64) >> 1) ^ -(np.arange(128, dtype=np.int64) & 1)

# Where records of one length follow each other, so many are checked at once; below, one by one is quicker.
_STRIDE_FROM = 16


@dataclass(frozen=True, slots=True)
class Columns:
    """The records of one batch. A length of -1 stands for null."""

    data: bytes
    offsets: Numbers
    timestamps_ms: Numbers
    key_starts: Numbers
    key_lengths: Numbers
    value_starts: Numbers
    value_lengths: Numbers
    headers: dict[int, Headers]
    """The headers of the records that have any, by place in the batch."""

    def key(self, place: int) -> bytes | None:
        return self._slice(self.key_starts[place], self.key_lengths[place])

    def value(self, place: int) -> bytes | None:
        return self._slice(self.value_starts[place], self.value_lengths[place])

    def _slice(self, start: np.int64, length: np.int64) -> bytes | None:
        return self.data[int(start) : int(start + length)] if length >= 0 else None


def decode_columns(batch: BatchView) -> Columns:
    """All records of a batch as columns; CorruptMessage when count, lengths or codec do not add up."""
    if batch.count < 0:
        raise CorruptMessage(f"The batch at offset {batch.base_offset} claims {batch.count} records.")
    body = batch.data[HEADER_SIZE:]
    data = bytes(body) if batch.codec == "none" else decompress(batch.codec, body)
    if not batch.count:
        none = np.empty(0, np.int64)
        return Columns(data, none, none, none, none, none, none, {})
    try:
        return _gather(batch, data)
    except IndexError:
        raise CorruptMessage(f"The batch at offset {batch.base_offset} ends in the middle of a record.") from None


def _gather(batch: BatchView, data: bytes) -> Columns:
    starts, ends = _record_bounds(data, batch.count)
    if ends[-1] != len(data):
        raise CorruptMessage(
            f"The batch at offset {batch.base_offset} has {len(data)} bytes of records, {ends[-1]} were expected."
        )
    raw = np.frombuffer(data, np.uint8)
    stamps, at = _varints(raw, starts + 1)  # Behind the attributes, which are unused.
    deltas, at = _varints(raw, at)
    key_lengths, key_starts = _varints(raw, at)
    value_lengths, value_starts = _varints(raw, key_starts + np.maximum(key_lengths, 0))
    counts_at = value_starts + np.maximum(value_lengths, 0)
    counts, at = _varints(raw, counts_at)
    headers = _headers(data, counts, counts_at, ends)
    bare = counts == 0
    if (at[bare] != ends[bare]).any() or (key_lengths < -1).any() or (value_lengths < -1).any() or (counts < 0).any():
        raise CorruptMessage(f"The batch at offset {batch.base_offset} has a record whose lengths do not add up.")
    if batch.attributes & LOG_APPEND_TIME_BIT:
        timestamps = np.full(batch.count, batch.max_timestamp, np.int64)
    else:
        timestamps = stamps + batch.base_timestamp
    offsets = deltas + batch.base_offset
    return Columns(data, offsets, timestamps, key_starts, key_lengths, value_starts, value_lengths, headers)


def _record_bounds(data: bytes, count: int) -> tuple[Numbers, Numbers]:
    """Where each record begins behind its length, and ends: the one walk that cannot be done at once."""
    starts: list[int] = []
    ends: list[int] = []
    at = 0
    for _ in range(count):
        size = data[at]
        at += 1
        if size >= 0x80:
            byte = data[at]
            if byte < 0x80:
                size = size & 0x7F | byte << 7
                at += 1
            else:
                size, at = read_unsigned(data, at - 1)
        if size & 1:
            raise CorruptMessage(f"A record at byte {at} claims a negative length.")
        starts.append(at)
        at += size >> 1
        ends.append(at)
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _varints(raw: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """The zigzag varints at these places, and where each ends.

    Where all have one byte, or all have two, as is usual for neighbours, they are read without looking for exceptions.
    """
    first = raw[at]
    more = first >= 0x80
    if not more.any():
        return _ZIGZAG[first], at + 1
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
        if shift >= 70:
            raise CorruptMessage("A varint is longer than 10 bytes.")
        byte = raw[at[going]]
        value[going] |= (byte & 0x7F).astype(np.int64) << shift
        at[going] += 1
        going = going[byte >= 0x80]
        shift += 7
    return (value >> 1) & 0x7FFFFFFFFFFFFFFF ^ -(value & 1), at


def _headers(data: bytes, counts: Numbers, at: Numbers, ends: Numbers) -> dict[int, Headers]:
    found: dict[int, Headers] = {}
    for place in np.flatnonzero(counts > 0).tolist():
        headers, end = decode_headers(data, int(at[place]), int(ends[place]))
        if end != ends[place]:
            raise CorruptMessage(f"Record {place} of a batch has headers whose lengths do not add up.")
        found[place] = headers
    return found


def decode_run(data: bytes, batches: Sequence[BatchView]) -> Columns:
    """The records of several batches of `data` as one, so that small batches cost no more than large ones.

    `batches` are what `read_batches(data)` gave, or some of them. Raises CorruptMessage as `decode_columns` does.
    """
    full = [batch for batch in batches if batch.count]
    if any(batch.count < 0 for batch in full):
        raise CorruptMessage("A batch claims fewer than no records.")
    if any(batch.codec != "none" for batch in full):
        parts = [bytes(view) if codec == "none" else decompress(codec, view) for codec, view in map(_body, full)]
        data = b"".join(parts)
        ends = np.cumsum([len(part) for part in parts]).tolist()
        bodies = list(zip([0, *ends], ends, strict=False))
    else:
        bodies = [(batch.position + HEADER_SIZE, batch.position + batch.size) for batch in full]
    bounds = _Bounds()
    raw = np.frombuffer(data, np.uint8)
    try:
        for alike in _alike(full, bodies):
            _walk_alike(data, raw, [full[place] for place in alike], [bodies[place] for place in alike], bounds)
        return _gather_run(data, raw, full, *bounds.joined())
    except IndexError:
        raise CorruptMessage("A batch ends in the middle of a record.") from None


def _alike(batches: Sequence[BatchView], bodies: Sequence[tuple[int, int]]) -> Iterator[range]:
    """Neighbours with as many records in as many bytes: where values are of one length, so are all records."""
    sizes = [(batch.count, end - start) for batch, (start, end) in zip(batches, bodies, strict=True)]
    first = 0
    for place in range(1, len(sizes) + 1):
        if place == len(sizes) or sizes[place] != sizes[first]:
            yield range(first, place)
            first = place


def _walk_alike(
    data: bytes, raw: Bytes, batches: Sequence[BatchView], bodies: Sequence[tuple[int, int]], bounds: "_Bounds"
) -> None:
    """Walk the first batch; if the others have its length bytes at its places, they need not be walked.

    An equal length at the first record's place proves where the second one begins, and so on to the end.
    """
    if len(batches) == 1:
        _walk(data, raw, *bodies[0], batches[0], bounds)
        return
    first = _Bounds()
    _walk(data, raw, *bodies[0], batches[0], first)
    starts, ends = first.joined()
    bounds.add(starts, ends)
    origin = bodies[0][0]
    heads = np.concatenate((np.array([origin], np.int64), ends[:-1]))
    wide = starts - heads
    places = np.concatenate([heads[wide > byte] + byte for byte in range(int(wide.max()))]) - origin
    at = np.array([start for start, _ in bodies[1:]], np.int64)[:, None]
    if (raw[at + places] == raw[origin + places]).all():
        bounds.add((at + (starts - origin)).ravel(), (at + (ends - origin)).ravel())
        return
    for batch, (start, end) in zip(batches[1:], bodies[1:], strict=True):
        _walk(data, raw, start, end, batch, bounds)


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


def _body(batch: BatchView) -> tuple[str, memoryview]:
    return batch.codec, batch.data[HEADER_SIZE:]


def _walk(data: bytes, raw: Bytes, at: int, end: int, batch: BatchView, bounds: _Bounds) -> None:
    """Add where each record of a batch begins behind its length, and ends.

    A record that is as long as the one before is often followed by more of them: equal length bytes at equal
    distances prove it, and all are looked at in one comparison.
    """
    left, last, try_at = batch.count, -1, batch.count - 1
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
                size, behind = read_unsigned(data, at)
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


def _gather_run(data: bytes, raw: Bytes, batches: Sequence[BatchView], starts: Numbers, ends: Numbers) -> Columns:
    counts_of = np.array([batch.count for batch in batches], np.int64)

    def by_record(numbers: list[int]) -> Numbers:
        return np.repeat(np.array(numbers, np.int64), counts_of)

    stamps, at = _varints(raw, starts + 1)  # Behind the attributes, which are unused.
    deltas, at = _varints(raw, at)
    key_lengths, key_starts = _varints(raw, at)
    value_lengths, value_starts = _varints(raw, key_starts + np.maximum(key_lengths, 0))
    counts_at = value_starts + np.maximum(value_lengths, 0)
    counts, at = _varints(raw, counts_at)
    bare = counts == 0
    if (at[bare] != ends[bare]).any() or (key_lengths < -1).any() or (value_lengths < -1).any() or (counts < 0).any():
        raise CorruptMessage("A batch has a record whose lengths do not add up.")
    headers = _headers(data, counts, counts_at, ends)
    if any(batch.log_append_time for batch in batches):
        stamped = np.repeat([batch.log_append_time for batch in batches], counts_of)
        stamps[stamped] = 0
    base = [batch.max_timestamp if batch.log_append_time else batch.base_timestamp for batch in batches]
    offsets = deltas + by_record([batch.base_offset for batch in batches])
    return Columns(
        data, offsets, stamps + by_record(base), key_starts, key_lengths, value_starts, value_lengths, headers
    )


def to_arrow(columns: Columns) -> Any:
    """A `pyarrow.Table` of offset, timestamp (ms), key and value, without copying keys and values.

    ImportError without pyarrow. Headers are left in `columns.headers`.
    """
    arrow = importlib.import_module("pyarrow")
    return arrow.table(
        {
            "offset": arrow.array(columns.offsets),
            "timestamp": arrow.array(columns.timestamps_ms).cast(arrow.timestamp("ms")),
            "key": _binary_view(arrow, columns.data, columns.key_starts, columns.key_lengths),
            "value": _binary_view(arrow, columns.data, columns.value_starts, columns.value_lengths),
        }
    )


def _binary_view(arrow: Any, data: bytes, starts: Numbers, lengths: Numbers) -> Any:
    """Arrow's views: the length, then the bytes themselves, or four of them, a buffer's number and a place in it."""
    count = len(starts)
    known = lengths >= 0
    views = np.zeros((count, 4), np.int32)
    views[:, 0] = np.maximum(lengths, 0)
    room = np.frombuffer(data + bytes(_INLINE), np.uint8)
    long = lengths > _INLINE
    if long.any():
        views[long, 1] = _words(room, starts[long])
        views[long, 3] = starts[long]
    short = np.flatnonzero(known & ~long & (lengths > 0))
    if short.size:
        reach = np.arange(_INLINE)
        taken = room[starts[short][:, None] + reach]
        taken[reach >= lengths[short][:, None]] = 0
        views[short, 1:] = taken.view(np.int32)
    validity = None if known.all() else arrow.py_buffer(np.packbits(known, bitorder="little").tobytes())
    buffers = [validity, arrow.py_buffer(views.tobytes()), arrow.py_buffer(data)]
    return arrow.Array.from_buffers(arrow.binary_view(), count, buffers)


def _words(room: Bytes, starts: Numbers) -> npt.NDArray[np.int32]:
    """The four bytes at each place, as they lie, in one word."""
    parts = [room[starts + place].astype(np.uint32) << np.uint32(8 * place) for place in range(4)]
    words: npt.NDArray[np.int32] = (parts[0] | parts[1] | parts[2] | parts[3]).view(np.int32)
    return words
