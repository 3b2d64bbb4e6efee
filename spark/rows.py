"""Rows of a DataFrame -> record batches per partition, by the columns that Spark's Kafka sink knows."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from muster.client.errors import ClientError, UnknownTopic
from muster.client.types import TopicPartition
from muster.spark.encode import OVERHEAD, encode_columns, find_value_bounds
from muster.spark.errors import OptionError
from muster.spark.hash import choose_partitions
from muster.spark.writing_options import WriteOptions

Numbers = npt.NDArray[np.int64]

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
