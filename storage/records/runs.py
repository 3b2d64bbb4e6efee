"""Decode many small batches into columns at once, so that they cost no more than a large one.

Producers that send values of one length fill batch after batch with as many records in as many bytes. Where every byte
between keys and values is the first batch's, the places of its keys and values are those of all the others too, and
none of them has to be decoded again.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from muster.storage.compression import decompress
from muster.storage.errors import CorruptMessage
from muster.storage.files import Buffer
from muster.storage.records.batch import HEADER_SIZE, SMALLEST_RECORD, BatchView
from muster.storage.records.bounds import Body, Bytes, Numbers, group_neighbours, read_varints, record_bounds
from muster.storage.records.columns import RecordColumns
from muster.storage.records.headers import decode_headers
from muster.storage.types import Headers

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
