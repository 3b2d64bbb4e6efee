"""Arrow columns -> record batches, without a Python object per record.

A record is its small fields as varints, with key and value in between. The small fields of all records are made at
once with numpy; Arrow puts them together with keys and values.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from muster.storage.compression import codec_number, compress
from muster.storage.records.batch import seal_batch
from muster.storage.records.headers import encode_headers

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

OVERHEAD = 24
"""What a record needs beside key, value and headers, at most; a round figure for sizes that need not be exact."""

_NO_HEADERS = b"\x00"
_PADDING = b"\x00\x00"  # attributes, which are unused, and no difference from the batch's timestamp


def encode_columns(keys: Any, values: Any, headers: Any, timestamp_ms: int, codec: str) -> bytes:
    """One record batch of these binary arrays, all at one timestamp. `keys` and `headers` may be None.

    `headers` is an array of lists of structs of key (string) and value (binary).
    """
    count = len(values)
    value_lengths = _lengths(values)
    tails = None if headers is None else _tails(headers)
    tail_lengths: Any = 1 if tails is None else _lengths(tails)
    key_lengths = np.full(count, -1, np.int64) if keys is None else _lengths(keys)
    places, place_sizes = encode_varints(np.arange(count, dtype=np.int64) << 1)
    key_heads, key_sizes = encode_varints(_zigzag(key_lengths))
    value_heads, value_sizes = encode_varints(_zigzag(value_lengths))
    sizes = len(_PADDING) + place_sizes + key_sizes + value_sizes + tail_lengths
    sizes = sizes + np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    size_heads, size_sizes = encode_varints(sizes << 1)
    padding = np.zeros((count, len(_PADDING)), np.uint8)
    padded = np.full(count, len(_PADDING), np.int64)
    heads = join_fields([(size_heads, size_sizes), (padding, padded), (places, place_sizes), (key_heads, key_sizes)])
    middles = join_fields([(value_heads, value_sizes)])
    parts = [heads] if keys is None else [heads, keys]
    parts += [middles, values, pa.scalar(_NO_HEADERS) if tails is None else tails]
    records = pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")
    body = _payload(records)
    attributes = codec_number(codec)
    stamp = (0, -1, attributes, count - 1, timestamp_ms, timestamp_ms)
    return seal_batch(stamp, (-1, -1, -1), count, compress(codec, body))


def encode_varints(values: Numbers) -> tuple[Bytes, Numbers]:
    """Unsigned varints of non-negative numbers: a row of bytes for each, and how many of them count.

    >>> rows, sizes = encode_varints(np.array([1, 300]))
    >>> [row[:size].tobytes() for row, size in zip(rows, sizes)]
    [b'\\x01', b'\\xac\\x02']
    """
    width = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    sizes = np.ones(len(values), np.int64)
    rows = np.empty((len(values), width), np.uint8)
    rest = values
    for column in range(width):
        rows[:, column] = rest & 0x7F
        rest = rest >> 7
        more = rest > 0
        rows[:, column] |= more.astype(np.uint8) << 7
        sizes += more
    return rows, sizes


def join_fields(fields: list[tuple[Bytes, Numbers]]) -> Any:
    """A binary array of the fields of each row, one behind the other."""
    count = len(fields[0][1])
    kept = np.hstack([np.arange(rows.shape[1]) < sizes[:, None] for rows, sizes in fields])
    data = np.hstack([rows for rows, _ in fields])[kept]
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(sum(sizes for _, sizes in fields), out=ends[1:])
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def find_value_bounds(array: Any) -> tuple[Bytes, Numbers]:
    """The bytes behind a binary array, and where in them each value begins; one more for the end."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(data or b"", np.uint8), ends.astype(np.int64)


def _lengths(array: Any) -> Numbers:
    """The length of each value; -1 for null."""
    lengths: Numbers = np.diff(find_value_bounds(array)[1])
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return lengths


def _zigzag(lengths: Numbers) -> Numbers:
    return (lengths << 1) ^ (lengths >> 63)


def _tails(headers: Any) -> Any:
    """The encoded headers of each record."""
    rows = headers.to_pylist()
    some = [tuple((pair["key"], pair["value"]) for pair in row or ()) for row in rows]
    return pa.array([encode_headers(pairs) if pairs else _NO_HEADERS for pairs in some], pa.binary())


def _payload(array: Any) -> bytes:
    data, ends = find_value_bounds(array)
    return data[ends[0] : ends[-1]].tobytes()
