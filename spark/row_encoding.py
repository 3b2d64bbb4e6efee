"""Encodes rows of a DataFrame as record batches per partition, without a Python object per record.

Columns are those of Spark's Kafka sink. Keys are partitioned by Kafka's murmur2 over whole columns. The small fields
of all records are built with numpy as varints; Arrow joins them with keys and values.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from muster.client.errors import ClientError, UnknownTopic
from muster.client.records.accumulator import MULTIPLIER, SEED, murmur2
from muster.client.types import TopicPartition
from muster.spark.options import WriteOptions
from muster.spark.read_options import OptionError
from muster.storage.compression import codec_number, compress
from muster.storage.records.batch import encode_headers, seal_batch

# Partitioning
# ------------

Hashes = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int64]

LONG = 1024
"""Keys of more bytes are hashed one by one: a step over all keys costs more than a long key by itself."""

_M = np.uint32(MULTIPLIER)


def hash_keys(data: npt.NDArray[np.uint8], starts: Numbers, lengths: Numbers) -> Hashes:
    """The hash of each key that lies in `data`; see `muster.client.records.accumulator.murmur2`.

    >>> hash_keys(np.frombuffer(b"21abc", np.uint8), np.array([0]), np.array([2])).astype(np.int32).tolist()
    [-973932308]
    """
    hashed = np.uint32(SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    going = np.flatnonzero((words > 0) & (lengths <= LONG))
    step = 0
    while going.size:
        word = _word(data, starts[going] + 4 * step) * _M
        word = (word ^ word >> np.uint32(24)) * _M
        hashed[going] = hashed[going] * _M ^ word
        step += 1
        going = going[words[going] > step]
    _add_rest(hashed, data, starts + 4 * words, lengths & 3)
    hashed = (hashed ^ hashed >> np.uint32(13)) * _M
    hashed ^= hashed >> np.uint32(15)
    for place in np.flatnonzero(lengths > LONG).tolist():
        start = int(starts[place])
        hashed[place] = murmur2(data[start : start + int(lengths[place])].tobytes())
    return hashed


def choose_partitions(data: npt.NDArray[np.uint8], starts: Numbers, lengths: Numbers, partitions: int) -> Numbers:
    """Kafka's toPositive(murmur2(key)) % partitions, for each key."""
    return (hash_keys(data, starts, lengths) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


def _word(data: npt.NDArray[np.uint8], at: Numbers) -> Hashes:
    word = data[at].astype(np.uint32)
    for byte in range(1, 4):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _add_rest(hashed: Hashes, data: npt.NDArray[np.uint8], at: Numbers, rest: Numbers) -> None:
    """The one to three bytes behind the last whole word."""
    some = np.flatnonzero(rest > 0)
    if not some.size:
        return
    left = np.zeros(some.size, np.uint32)
    for byte in range(3):
        there = rest[some] > byte
        left[there] |= data[at[some][there] + byte].astype(np.uint32) << np.uint32(8 * byte)
    hashed[some] = (hashed[some] ^ left) * _M


# Record batches
# --------------

Bytes = npt.NDArray[np.uint8]

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


# Rows
# ----

TEXT_OR_BYTES = ("string", "binary")
TYPES = {
    "key": TEXT_OR_BYTES,
    "value": TEXT_OR_BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
HELD_BYTES = 64 << 20
"""What a task holds back at most, over all partitions, before it sends the fullest."""

STICKY_BYTES = 64 << 10
"""How many bytes without a key go to one partition before the next one has its turn."""


def check_columns(schema: Any, options: WriteOptions) -> None:
    """OptionError names a column that is missing or of another type, what was expected, and what to do.

    Other columns are left out, as Spark's Kafka sink does, so that what was read can be written as it is.
    """
    found = {column.name: column.dataType.simpleString() for column in schema.fields}
    if "value" not in found:
        raise OptionError(
            f"there is no column 'value'; expected one of {join_words(TEXT_OR_BYTES)}. Columns: {list(found)}"
        )
    if options.topic is None and "topic" not in found:
        raise OptionError("nothing says where rows go; set the option topic, or add a string column 'topic'")
    for name, wanted in TYPES.items():
        if name in found and found[name] not in wanted:
            raise OptionError(
                f"column '{name}' is {found[name]}; expected {join_words(wanted)}. Cast it before writing"
            )


def join_words(choices: tuple[str, ...]) -> str:
    """
    >>> join_words(("string", "binary"))
    'string or binary'
    """
    return " or ".join(choices)


class EncodedRows(NamedTuple):
    """A record batch on its way."""

    tp: TopicPartition
    data: bytes
    rows: int


@dataclass(slots=True)
class WaitingRows:
    """Rows of one partition that wait for a full batch."""

    rows: list[tuple[Any, Any, Any]] = field(default_factory=list)
    size: int = 0


class RowDistributor:
    """Distributes rows over partitions and encodes what is full. `partitions_of` counts a topic's partitions.

    `turn` is where rows without a key begin; a good choice differs from task to task and from batch to batch.
    """

    def __init__(self, options: WriteOptions, partitions_of: Callable[[str], int], turn: int) -> None:
        self._options = options
        self._partitions_of = partitions_of
        self._turn = turn
        self._held: dict[TopicPartition, WaitingRows] = {}
        self._size = 0

    def add(self, batch: Any) -> Iterator[EncodedRows]:
        """Take the rows of an Arrow batch; yields what became full."""
        if not batch.num_rows:
            return
        for topic, rows in self._by_topic(batch):
            self._hold(topic, rows)
        for tp in [tp for tp, held in self._held.items() if held.size >= self._options.batch_size]:
            yield from self._encode(tp)
        while self._size > HELD_BYTES:
            yield from self._encode(max(self._held, key=lambda tp: self._held[tp].size))

    def rest(self) -> Iterator[EncodedRows]:
        for tp in sorted(self._held):
            yield from self._encode(tp)

    def _by_topic(self, batch: Any) -> Iterator[tuple[str, Any]]:
        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise ClientError(
                f"{topics.null_count} rows have no topic; set the option topic, or fill the column 'topic'"
            )
        for topic in sorted(pc.unique(topics).to_pylist()):
            yield topic, batch.filter(pc.equal(topics, topic))

    def _hold(self, topic: str, batch: Any) -> None:
        keys, values = read_binary_column(batch, "key"), read_binary_column(batch, "value")
        headers = batch.column("headers") if "headers" in batch.schema.names else None
        sizes = np.diff(find_value_bounds(values)[1]) + OVERHEAD
        sizes += 0 if keys is None else np.diff(find_value_bounds(keys)[1])
        count = self._partitions_of(topic)
        places = self._places(topic, count, keys, read_partition_column(batch), sizes)
        order = np.argsort(places, kind="stable")
        found, firsts = np.unique(places[order], return_index=True)
        for number, rows in zip(found.tolist(), np.split(order, firsts[1:]), strict=True):
            taken = pa.array(rows)
            held = self._held.setdefault(TopicPartition(topic, number), WaitingRows())
            size = int(sizes[rows].sum())
            held.rows.append((pick_rows(keys, taken), values.take(taken), pick_rows(headers, taken)))
            held.size += size
            self._size += size

    def _places(self, topic: str, count: int, keys: Any, given: Any, sizes: Numbers) -> Numbers:
        """The partition of each row: the one it names, else by its key, else in turns."""
        runs = np.cumsum(sizes) // STICKY_BYTES
        places = (runs + self._turn) % count
        self._turn += int(runs[-1]) + (len(sizes) > 1)
        if keys is not None and keys.null_count < len(keys):
            data, ends = find_value_bounds(keys)
            known = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
            places[known] = choose_partitions(data, ends[known], ends[known + 1] - ends[known], count)
        if given is not None and given.null_count < len(given):
            known = np.flatnonzero(given.is_valid().to_numpy(zero_copy_only=False))
            named = given.take(pa.array(known)).to_numpy(zero_copy_only=False)
            if ((named < 0) | (named >= count)).any():
                wrong = int(named[(named < 0) | (named >= count)][0])
                raise UnknownTopic(
                    3,
                    "UNKNOWN_TOPIC_OR_PARTITION",
                    f"{topic} has partitions 0 to {count - 1}; a row names partition {wrong}",
                )
            places[known] = named
        return places

    def _encode(self, tp: TopicPartition) -> Iterator[EncodedRows]:
        held = self._held.pop(tp)
        self._size -= held.size
        keys, values, headers = (concatenate(column) for column in zip(*held.rows, strict=True))
        sizes = np.diff(find_value_bounds(values)[1]) + OVERHEAD
        sizes += 0 if keys is None else np.diff(find_value_bounds(keys)[1])
        stamp = time.time_ns() // 1_000_000
        for first, end in split_by_size(sizes, self._options.batch_size):
            key_part, value_part, header_part = (
                None if column is None else column[first:end] for column in (keys, values, headers)
            )
            data = encode_columns(key_part, value_part, header_part, stamp, self._options.compression)
            yield EncodedRows(tp, data, end - first)


def split_by_size(sizes: Numbers, most: int) -> Iterator[tuple[int, int]]:
    """Runs of rows of at most `most` bytes together; a larger row is alone.

    >>> list(split_by_size(np.array([4, 4, 9, 1]), 8))
    [(0, 2), (2, 3), (3, 4)]
    """
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        before = int(ends[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield first, end
        first = end


def pick_rows(column: Any, rows: Any) -> Any:
    return None if column is None else column.take(rows)


def concatenate(arrays: tuple[Any, ...]) -> Any:
    return None if arrays[0] is None else pa.concat_arrays(arrays)


def read_binary_column(batch: Any, name: str) -> Any:
    """A column as a binary array; None when there is no such column."""
    return batch.column(name).cast(pa.binary()) if name in batch.schema.names else None


def read_partition_column(batch: Any) -> Any:
    return batch.column("partition") if "partition" in batch.schema.names else None
