"""Decode a large batch into columns instead of records, for Arrow and Spark.

Only the walk over the record lengths is done one by one; every field is then gathered for all records at once.
Keys and values stay where they are in the batch: a column holds where each begins and how long it is. Pays from
about a thousand records a batch; below that `BatchView.records` is quicker.
"""

import importlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.batch import HEADER_SIZE, LOG_APPEND_TIME_BIT, BatchView
from storage.compression import decompress
from storage.errors import CorruptMessage
from storage.files import Buffer
from storage.headers import decode_headers
from storage.record_bounds import Bytes, Numbers, varints
from storage.types import Headers
from storage.varint import read_unsigned

# An Arrow view holds values up to this long itself, longer ones by reference.
_INLINE = 12


@dataclass(frozen=True, slots=True)
class Columns:
    """The records of one batch. A length of -1 stands for null."""

    data: Buffer
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
        return bytes(self.data[int(start) : int(start + length)]) if length >= 0 else None


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
    fields = read_fields(data, raw, starts, ends, f"The batch at offset {batch.base_offset}")
    if batch.attributes & LOG_APPEND_TIME_BIT:
        timestamps = np.full(batch.count, batch.max_timestamp, np.int64)
    else:
        timestamps = fields.stamps + batch.base_timestamp
    return Columns(data, fields.deltas + batch.base_offset, timestamps, *fields[2:])


class Fields(NamedTuple):
    """What records hold, as it is written: time stamps and offsets count from their batch's."""

    stamps: Numbers
    deltas: Numbers
    key_starts: Numbers
    key_lengths: Numbers
    value_starts: Numbers
    value_lengths: Numbers
    headers: dict[int, Headers]


def read_fields(data: Buffer, raw: Bytes, starts: Numbers, ends: Numbers, what: str) -> Fields:
    """The fields of all records at once, which begin behind their length and end at these places of `data`.

    `raw` is `data` as an array. Raises CorruptMessage about `what`, and IndexError where the data ends too early.
    """
    stamps, at = varints(raw, starts + 1)  # Behind the attributes, which are unused.
    deltas, at = varints(raw, at)
    key_lengths, key_starts = varints(raw, at)
    value_lengths, value_starts = varints(raw, key_starts + np.maximum(key_lengths, 0))
    counts_at = value_starts + np.maximum(value_lengths, 0)
    counts, at = varints(raw, counts_at)
    bare = counts == 0
    if (at[bare] != ends[bare]).any() or (key_lengths < -1).any() or (value_lengths < -1).any() or (counts < 0).any():
        raise CorruptMessage(f"{what} has a record whose lengths do not add up.")
    headers = _headers(data, counts, counts_at, ends)
    return Fields(stamps, deltas, key_starts, key_lengths, value_starts, value_lengths, headers)


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


def _headers(data: Buffer, counts: Numbers, at: Numbers, ends: Numbers) -> dict[int, Headers]:
    found: dict[int, Headers] = {}
    for place in np.flatnonzero(counts > 0).tolist():
        field = bytes(data[int(at[place]) : int(ends[place])])
        headers, end = decode_headers(field, 0, len(field))
        if end != len(field):
            raise CorruptMessage(f"Record {place} of a batch has headers whose lengths do not add up.")
        found[place] = headers
    return found


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
