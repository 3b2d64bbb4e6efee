"""Decodes many batches into columns with numpy, for Arrow and Spark.

Keys and values stay where they are in the data: a column holds where each begins and how long it is.

Finding where records begin and end is the only walk that depends on what it finds. It has three ways, each for what it
is quickest at: batches that look alike are walked once, many batches step by step together, and what is left record by
record, in strides where lengths repeat.

Producers that send values of one length fill batch after batch with as many records in as many bytes. Where every byte
between keys and values equals the first batch's, the places of keys and values are the same too, so that many small
batches cost no more than a large one.
"""

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from muster.storage.compression import decompress
from muster.storage.errors import CorruptMessage
from muster.storage.files import Buffer
from muster.storage.records.batch import HEADER_SIZE, SMALLEST_RECORD, BatchView, decode_headers, read_unsigned
from muster.storage.types import Headers

# Where records begin and end
# ---------------------------

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


# Records as columns
# ------------------

# An Arrow view holds values up to this long itself, longer ones by reference.
_INLINE = 12


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records by their place in `data`. A negative length stands for null."""

    data: Buffer
    offsets: Numbers
    timestamps_ms: Numbers
    key_starts: Numbers
    key_lengths: Numbers
    value_starts: Numbers
    value_lengths: Numbers
    headers: dict[int, Headers]
    """The headers of the records that have any, by number of the record."""

    def key(self, place: int) -> bytes | None:
        return self._slice(self.key_starts[place], self.key_lengths[place])

    def value(self, place: int) -> bytes | None:
        return self._slice(self.value_starts[place], self.value_lengths[place])

    def _slice(self, start: np.int64, length: np.int64) -> bytes | None:
        return bytes(self.data[int(start) : int(start + length)]) if length >= 0 else None


def to_arrow(columns: RecordColumns) -> Any:
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


def _binary_view(arrow: Any, data: Buffer, starts: Numbers, lengths: Numbers) -> Any:
    """Arrow's views: the length, then the bytes themselves, or four of them, a buffer's number and a place in it."""
    count = len(starts)
    known = lengths >= 0
    views = np.zeros((count, 4), np.int32)
    views[:, 0] = np.maximum(lengths, 0)
    room = np.frombuffer(bytes(data) + bytes(_INLINE), np.uint8)
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


# Many batches together
# ---------------------

_CONTINUES = 0x80
"""The bit of a varint's byte that says whether another one follows."""


UNPACKED_BYTES = 64 << 20
"""To so much compressed batches are unpacked together, or to one batch that is larger."""


def decode_runs(
    data: Buffer, batches: Sequence[BatchView], most_bytes: int = UNPACKED_BYTES
) -> Iterator[tuple[RecordColumns, Sequence[BatchView]]]:
    """The records of several batches of `data` as one run, or as several where compressed ones unpack to more.

    `batches` are what `read_batches(data)` gave, or some of them. Raises CorruptMessage when count, lengths or codec of
    one do not add up.
    """
    full = [batch for batch in batches if batch.count]
    if any(batch.codec != "none" for batch in full):
        for parts, of_parts in _unpacked(full, most_bytes):
            bodies = list(pairwise([0, *accumulate(map(len, parts))]))
            yield _decode(b"".join(parts), of_parts, bodies), of_parts
    elif full:
        yield _decode(data, full, [(batch.position + HEADER_SIZE, batch.position + batch.size) for batch in full]), full


def _unpacked(batches: Sequence[BatchView], most_bytes: int) -> Iterator[tuple[list[bytes], list[BatchView]]]:
    parts: list[bytes] = []
    of_parts: list[BatchView] = []
    size = 0
    for batch in batches:
        part = decompress(batch.codec, batch.data[HEADER_SIZE:])
        if parts and size + len(part) > most_bytes:
            yield parts, of_parts
            parts, of_parts, size = [], [], 0
        parts.append(part)
        of_parts.append(batch)
        size += len(part)
    yield parts, of_parts


def _decode(data: Buffer, batches: Sequence[BatchView], bodies: Sequence[Body]) -> RecordColumns:
    for batch, body in zip(batches, bodies, strict=True):
        _check_count(batch, body)
    raw = np.frombuffer(data, np.uint8)
    pieces = []
    try:
        for run, alike in group_neighbours(batches, bodies):
            of_run = batches[run.start : run.stop], bodies[run.start : run.stop]
            columns = _decode_alike(data, raw, *of_run) if alike else None
            pieces.append(columns or _decode_each(data, raw, *of_run))
    except IndexError:
        raise CorruptMessage("A batch ends in the middle of a record.") from None
    return _join_columns(data, pieces)


def _check_count(batch: BatchView, body: Body) -> None:
    """Before room is made for so many."""
    size = body[1] - body[0]
    most = size // SMALLEST_RECORD
    if not 0 <= batch.count <= most:
        raise CorruptMessage(
            f"The batch at offset {batch.base_offset} claims {batch.count} records in {size} bytes; "
            f"expected at most {most}."
        )


def _join_columns(data: Buffer, pieces: Sequence[RecordColumns]) -> RecordColumns:
    if len(pieces) == 1:
        return pieces[0]

    def joined(name: str) -> Numbers:
        return np.concatenate([getattr(piece, name) for piece in pieces])

    headers: dict[int, Headers] = {}
    before = 0
    for piece in pieces:
        headers |= {before + place: found for place, found in piece.headers.items()}
        before += len(piece.offsets)
    return RecordColumns(
        data,
        joined("offsets"),
        joined("timestamps_ms"),
        joined("key_starts"),
        joined("key_lengths"),
        joined("value_starts"),
        joined("value_lengths"),
        headers,
    )


def _decode_each(data: Buffer, raw: Bytes, batches: Sequence[BatchView], bodies: Sequence[Body]) -> RecordColumns:
    return _gathered(data, raw, batches, *record_bounds(data, raw, batches, bodies))


def _gathered(data: Buffer, raw: Bytes, batches: Sequence[BatchView], starts: Numbers, ends: Numbers) -> RecordColumns:
    """Every field of every record, all records at once; they begin behind their length, and end, at these places."""
    counts_of = np.array([batch.count for batch in batches], np.int64)

    def by_record(numbers: list[int]) -> Numbers:
        return np.repeat(np.array(numbers, np.int64), counts_of)

    fields = _read_fields(data, raw, starts, ends)
    if any(batch.log_append_time for batch in batches):
        fields.stamps[np.repeat([batch.log_append_time for batch in batches], counts_of)] = 0
    offsets = fields.deltas + by_record([batch.base_offset for batch in batches])
    timestamps = fields.stamps + by_record([_base_time(batch) for batch in batches])
    return RecordColumns(data, offsets, timestamps, *fields[2:])


class _Fields(NamedTuple):
    """What records hold, as it is written: time stamps and offsets count from their batch's."""

    stamps: Numbers
    deltas: Numbers
    key_starts: Numbers
    key_lengths: Numbers
    value_starts: Numbers
    value_lengths: Numbers
    headers: dict[int, Headers]


def _read_fields(data: Buffer, raw: Bytes, starts: Numbers, ends: Numbers) -> _Fields:
    """The fields of all records at once, which begin behind their length and end at these places of `data`.

    `raw` is `data` as an array. Raises CorruptMessage, and IndexError where the data ends too early.
    """
    stamps, at = read_varints(raw, starts + 1)  # Behind the attributes, which are unused.
    deltas, at = read_varints(raw, at)
    key_lengths, key_starts = read_varints(raw, at)
    value_lengths, value_starts = read_varints(raw, key_starts + np.maximum(key_lengths, 0))
    counts_at = value_starts + np.maximum(value_lengths, 0)
    counts, at = read_varints(raw, counts_at)
    wrong = (counts < 0) | ((counts == 0) & (at != ends))
    if wrong.any():
        raise CorruptMessage(f"The record at byte {int(starts[wrong.argmax()])} has lengths that do not add up.")
    headers = _headers(data, counts, counts_at, ends)
    return _Fields(stamps, deltas, key_starts, key_lengths, value_starts, value_lengths, headers)


def _headers(data: Buffer, counts: Numbers, at: Numbers, ends: Numbers) -> dict[int, Headers]:
    found: dict[int, Headers] = {}
    for place in np.flatnonzero(counts > 0).tolist():
        field = bytes(data[int(at[place]) : int(ends[place])])
        headers, end = decode_headers(field, 0, len(field))
        if end != len(field):
            raise CorruptMessage(f"The headers at byte {int(at[place])} do not end with their record.")
        found[place] = headers
    return found


def _base_time(batch: BatchView) -> int:
    """What the time stamps of its records count from; where the log stamps them, they have none of their own."""
    return batch.max_timestamp if batch.log_append_time else batch.base_timestamp


def _decode_alike(
    data: Buffer, raw: Bytes, batches: Sequence[BatchView], bodies: Sequence[Body]
) -> RecordColumns | None:
    """The first batch's columns, moved for each of the others; None if they have other bytes between keys and values.

    All have as many records in as many bytes.
    """
    first_starts, first_ends = record_bounds(data, raw, batches[:1], bodies[:1])
    first = _gathered(data, raw, batches[:1], first_starts, first_ends)
    stamped = batches[0].log_append_time
    if first.headers or any(batch.log_append_time != stamped for batch in batches):
        return None
    bodies_at = np.array([begin for begin, _ in bodies], np.int64)
    stamps_at = first_starts + 1
    behind_stamps = read_varints(raw, stamps_at)[1]
    if not _framed_alike(raw, bodies[0], bodies_at, _significant(bodies[0], first, stamps_at, behind_stamps)):
        return None

    def moved(places: Numbers, by: Numbers) -> Numbers:
        all_places: Numbers = (by[:, None] + places).ravel()
        return all_places

    further = bodies_at - bodies_at[0]
    base_offsets = np.array([batch.base_offset for batch in batches], np.int64)
    times = np.repeat(np.array([_base_time(batch) for batch in batches], np.int64), batches[0].count)
    if not stamped:
        times += read_varints(raw, moved(stamps_at, further))[0]
    return RecordColumns(
        data,
        moved(first.offsets - batches[0].base_offset, base_offsets),
        times,
        moved(first.key_starts, further),
        np.tile(first.key_lengths, len(batches)),
        moved(first.value_starts, further),
        np.tile(first.value_lengths, len(batches)),
        {},
    )


def _significant(body: Body, columns: RecordColumns, stamps_at: Numbers, behind_stamps: Numbers) -> Bytes:
    """Which bits of a batch's body say where its keys and values lie: a mask for each byte.

    What is in keys and values does not, nor do attributes, which are unused, nor the value of a time stamp.
    """
    begin, end = body
    mask = np.full(end - begin, 0xFF, np.uint8)
    mask[_covered(columns.key_starts - begin, columns.key_lengths, end - begin)] = 0
    mask[_covered(columns.value_starts - begin, columns.value_lengths, end - begin)] = 0
    mask[_covered(stamps_at - begin, behind_stamps - stamps_at, end - begin)] = _CONTINUES
    mask[stamps_at - begin - 1] = 0
    return mask


def _covered(starts: Numbers, lengths: Numbers, size: int) -> npt.NDArray[np.bool_]:
    """Which of `size` places lie in one of these spans, none of which touches another."""
    some = lengths > 0
    steps = np.zeros(size + 1, np.int8)
    steps[starts[some]] = 1
    steps[starts[some] + lengths[some]] = -1
    covered: npt.NDArray[np.bool_] = np.cumsum(steps[:size], dtype=np.int8).view(np.bool_)
    return covered


def _framed_alike(raw: Bytes, first: Body, bodies_at: Numbers, significant: Bytes) -> bool:
    """Whether all bodies have the first one's bits where they are significant."""
    places = np.flatnonzero(significant)
    expected = raw[first[0] + places]
    return not ((_take_bytes(raw, bodies_at, places, len(significant)) ^ expected) & significant[places]).any()


def _take_bytes(raw: Bytes, bodies_at: Numbers, places: Numbers, size: int) -> Bytes:
    """The bytes at these places of each body, a row for each."""
    taken: Bytes
    strides = np.diff(bodies_at)
    stride = int(strides[0])
    # What lies between two bodies counts as the begin of the second; there has to be as much before the first.
    before = stride - size
    begin = int(bodies_at[0]) - before
    if (strides == stride).all() and before >= 0 and begin >= 0:
        # At equal distances, as rows of a table: taken more quickly than place by place.
        table = raw[begin : begin + stride * len(bodies_at)].reshape(len(bodies_at), stride)
        taken = table.take(places + before, axis=1)
    else:
        taken = raw[bodies_at[:, None] + places]
    return taken
