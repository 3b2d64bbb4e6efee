"""Record batches of the log become Arrow batches of Spark's schema, without an object per record."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from muster.spark.planning import OffsetRange
from muster.spark.schema import CREATE_TIME, HEADERS, LOG_APPEND_TIME
from muster.storage.files import Buffer
from muster.storage.records.batch import BatchView
from muster.storage.records.columns import RecordColumns
from muster.storage.records.runs import decode_runs
from muster.storage.types import Headers, Record

HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: HEADER_TYPE,
}
Numbers = npt.NDArray[np.int64]


def build_arrow_schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, TYPES[name]) for name in columns])


def decode_batches(
    data: Buffer, views: Sequence[BatchView], wanted: OffsetRange, columns: Sequence[str], rows: int
) -> Iterator[pa.RecordBatch]:
    """The records of `views` within `wanted`, in Arrow batches of at most `rows`. Raises CorruptMessage."""
    runs = chain.from_iterable(decode_runs(data, group) for group in group_views(views, rows))
    for run, of_run in runs:
        appended = np.repeat([view.log_append_time for view in of_run], [view.count for view in of_run])
        first, last = np.searchsorted(run.offsets, [wanted.start, wanted.end])
        for start in range(int(first), int(last), rows):
            yield build_rows(run, appended, slice(start, min(start + rows, int(last))), wanted, columns)


def group_views(views: Sequence[BatchView], rows: int) -> Iterator[list[BatchView]]:
    """Neighbours that together have about `rows` records."""
    group: list[BatchView] = []
    held = 0
    for view in views:
        if group and held + view.count > rows:
            yield group
            group, held = [], 0
        group.append(view)
        held += view.count
    if group:
        yield group


def build_rows(
    run: RecordColumns, appended: npt.NDArray[np.bool_], part: slice, wanted: OffsetRange, columns: Sequence[str]
) -> pa.RecordBatch:
    count = part.stop - part.start
    arrays = []
    for name in columns:
        match name:
            case "key":
                arrays.append(build_binary_array(run.data, run.key_starts[part], run.key_lengths[part]))
            case "value":
                arrays.append(build_binary_array(run.data, run.value_starts[part], run.value_lengths[part]))
            case "topic" | "partition":
                arrays.append(repeat_value(getattr(wanted, name), name, round_up_size(count))[:count])
            case "offset":
                arrays.append(pa.array(run.offsets[part]))
            case "timestamp":
                arrays.append(pa.array(run.timestamps_ms[part] * 1000).view(TYPES["timestamp"]))
            case "timestampType":
                kinds = np.where(appended[part], LOG_APPEND_TIME, CREATE_TIME).astype(np.int32)
                arrays.append(pa.array(kinds))
            case _:
                arrays.append(
                    build_header_array([run.headers.get(place, ()) for place in range(part.start, part.stop)])
                )
    return pa.RecordBatch.from_arrays(arrays, schema=build_arrow_schema(columns))


def round_up_size(count: int) -> int:
    """The next power of two, so that few arrays of one value serve batches of any size."""
    return 1 << (count - 1).bit_length() if count else 0


@lru_cache(maxsize=64)
def repeat_value(value: str | int, column: str, count: int) -> pa.Array:
    """One value so many times, to be sliced: batches of a partition share it."""
    return pa.repeat(pa.scalar(value, TYPES[column]), count)


def build_binary_array(data: Buffer, starts: Numbers, lengths: Numbers) -> pa.Array:
    """The slices of `data` as one binary array.

    Seen as alternating gaps and slices, the data is an Arrow array as it lies; every second of its values is taken.
    """
    count = len(starts)
    null = lengths < 0
    if null.all():
        return pa.nulls(count, pa.binary())
    borders = np.empty(2 * count + 1, np.int32)
    borders[0] = 0
    borders[1::2] = starts
    borders[2::2] = starts + np.maximum(lengths, 0)
    seen = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(borders), pa.py_buffer(data)])
    places = np.arange(1, 2 * count, 2, dtype=np.int32)
    return seen.take(pa.array(places, mask=null) if null.any() else pa.array(places))


def build_header_array(headers: Sequence[Headers]) -> pa.Array:
    """As Spark's Kafka source has it: null for a record without headers."""
    if not any(headers):
        return pa.nulls(len(headers), HEADER_TYPE)
    return pa.array(
        [[{"key": key, "value": value} for key, value in row] if row else None for row in headers], HEADER_TYPE
    )


def decode_records_to_arrow(records: Sequence[Record], wanted: OffsetRange, columns: Sequence[str]) -> pa.RecordBatch:
    """The same from decoded records: for message sets of before record batches, which have no columns."""
    count = len(records)
    made = {
        "key": lambda: pa.array([record.key for record in records], pa.binary()),
        "value": lambda: pa.array([record.value for record in records], pa.binary()),
        "topic": lambda: pa.repeat(pa.scalar(wanted.topic, pa.string()), count),
        "partition": lambda: pa.array([wanted.partition] * count, pa.int32()),
        "offset": lambda: pa.array([record.offset for record in records], pa.int64()),
        "timestamp": lambda: pa.array([record.timestamp_ms * 1000 for record in records], pa.int64()).view(
            TYPES["timestamp"]
        ),
        "timestampType": lambda: pa.array([CREATE_TIME] * count, pa.int32()),
        HEADERS: lambda: build_header_array([record.headers for record in records]),
    }
    return pa.RecordBatch.from_arrays([made[name]() for name in columns], schema=build_arrow_schema(columns))


class BatchGatherer:
    """Joins what comes in small pieces, so that Spark gets batches worth their cost."""

    def __init__(self, rows: int, most_bytes: int) -> None:
        self._rows = rows
        self._most_bytes = most_bytes
        self._pieces: list[pa.RecordBatch] = []
        self._held = 0
        self._bytes = 0

    def add(self, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yields what is ready; a piece that is large enough by itself is handed on as it is."""
        if self._held + piece.num_rows > self._rows:
            yield from self.rest()
        self._pieces.append(piece)
        self._held += piece.num_rows
        self._bytes += piece.nbytes
        if self._held >= self._rows or self._bytes >= self._most_bytes:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        pieces, self._pieces, self._held, self._bytes = self._pieces, [], 0, 0
        if len(pieces) == 1:
            yield pieces[0]
        elif pieces:
            yield from pa.Table.from_batches(pieces).combine_chunks().to_batches()
