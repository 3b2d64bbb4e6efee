"""The records of batches as columns, for Arrow and Spark.

Keys and values stay where they are in the data: a column holds where each begins and how long it is.
"""

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from muster.storage.files import Buffer
from muster.storage.records.bounds import Bytes, Numbers
from muster.storage.types import Headers

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
