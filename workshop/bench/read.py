"""Reading a million records of 100 bytes as a table, against Parquet and against the same reader without Arrow.

And what Spark leaves for any source in Python to reach: the same rows from batches that lie ready in the task.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from muster.spark.arrow import TYPES, build_arrow_schema
from muster.spark.schema import COLUMNS
from muster.spark.source import MusterDataSource
from muster.workshop.bench.rows import BenchRow
from muster.workshop.bench.spark_rows import faster_row, take_turns
from muster.workshop.bench.stage import VALUE_BYTES, fill_topic, open_session, run_spark_node, seconds_to_read

READ_RECORDS = 1_000_000
READ_PARTITIONS = 4
CORES = 2
ROWS = 25_000
WARM_UP = 12
"""Turns before the first that counts: Java's compiler takes its time with reads of this length."""

READ_TURNS, TURNS_OF_TUPLES = 15, 3
GOAL_PARQUET = 0.6
GOAL_READY = 0.6
GOAL_TUPLES = 3.0


class TupleSource(MusterDataSource):
    """The same rows as tuples: what a data source yields that knows nothing of Arrow."""

    @classmethod
    def name(cls) -> str:
        return "muster_tuples"

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(super().reader(schema))


class TupleReader(DataSourceReader):
    def __init__(self, inner: DataSourceReader) -> None:
        self._inner = inner

    def partitions(self) -> Any:
        return self._inner.partitions()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batches: Iterator[Any] = self._inner.read(partition)
        for batch in batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class ReadySource(MusterDataSource):
    """As many rows of the same columns, from nowhere: what is left is Spark's own cost of a source in Python."""

    @classmethod
    def name(cls) -> str:
        return "ready_batches"

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyBatchReader()


class ReadyBatchReader(DataSourceReader):
    def partitions(self) -> Any:
        return [InputPartition(number) for number in range(CORES)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        now = datetime.now(UTC)
        values = {
            "key": pa.nulls(ROWS, TYPES["key"]),
            "value": pa.array([os.urandom(VALUE_BYTES) for _ in range(ROWS)], TYPES["value"]),
            "offset": pa.array(range(ROWS), TYPES["offset"]),
        }
        same = {"topic": "records", "partition": partition.value, "timestamp": now, "timestampType": 0}
        values |= {name: pa.repeat(pa.scalar(value, TYPES[name]), ROWS) for name, value in same.items()}
        batch = pa.RecordBatch.from_arrays([values[name] for name in COLUMNS], schema=build_arrow_schema(COLUMNS))
        for _ in range(READ_RECORDS // CORES // ROWS):
            yield batch


def measure_table_reads(name: str, home: str) -> Iterator[BenchRow]:
    with run_spark_node(home) as address, open_session(CORES) as spark:
        fill_topic(address, "records", [READ_RECORDS // READ_PARTITIONS] * READ_PARTITIONS)
        spark.dataSource.register(TupleSource)
        spark.dataSource.register(ReadySource)

        def table(source: str) -> Any:
            return spark.read.format(source).options(**{"bootstrap.servers": address, "subscribe": "records"}).load()

        files = f"{home}/parquet"
        table("muster").repartition(READ_PARTITIONS).write.option("compression", "none").parquet(files)

        def read(source: str) -> float:
            return seconds_to_read(lambda: table(source))

        ours, ready = partial(read, "muster"), partial(read, "ready_batches")
        works = (ours, lambda: seconds_to_read(lambda: spark.read.parquet(files)), ready)
        take_turns(WARM_UP, *works)
        ours_s, parquet_s, ready_s = take_turns(READ_TURNS, *works)
        beside_tuples_s, tuples_s = take_turns(TURNS_OF_TUPLES, ours, partial(read, "muster_tuples"))
    case, nowhere = f"{name}, 1 M of 100 bytes", "batches that lie ready in the task"
    yield faster_row(case, ours_s, "uncompressed Parquet", parquet_s, GOAL_PARQUET)
    yield faster_row(case, ours_s, nowhere, ready_s, GOAL_READY)
    yield faster_row(f"{name}, {nowhere}", ready_s, "uncompressed Parquet", parquet_s, GOAL_PARQUET)
    yield faster_row(case, beside_tuples_s, "the same reader yielding tuples", tuples_s, GOAL_TUPLES)
