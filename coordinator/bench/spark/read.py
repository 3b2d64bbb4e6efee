"""Reading a million records of 100 bytes as a table, against Parquet and against the same reader without Arrow.

And what Spark leaves for any source in Python to reach: the same rows from batches that lie ready in the task.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from coordinator.bench.rows import Row
from coordinator.bench.spark.rows import faster, in_turns
from coordinator.bench.spark.stage import VALUE_BYTES, fill, running_node, seconds_to_read, spark_on
from coordinator.spark.arrow import TYPES, arrow_schema
from coordinator.spark.schema import COLUMNS
from coordinator.spark.source import MusterDataSource

RECORDS = 1_000_000
PARTITIONS = 4
CORES = 2
ROWS = 25_000
WARM_UP = 3
"""Turns before the first that counts: Java's compiler takes its time with reads of this length."""

TURNS = 5
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
        return ReadyReader()


class ReadyReader(DataSourceReader):
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
        batch = pa.RecordBatch.from_arrays([values[name] for name in COLUMNS], schema=arrow_schema(COLUMNS))
        for _ in range(RECORDS // CORES // ROWS):
            yield batch


def measure(name: str, home: str) -> Iterator[Row]:
    with running_node(home) as address, spark_on(CORES) as spark:
        fill(address, "records", [RECORDS // PARTITIONS] * PARTITIONS)
        spark.dataSource.register(TupleSource)
        spark.dataSource.register(ReadySource)

        def table(source: str) -> Any:
            return spark.read.format(source).options(**{"bootstrap.servers": address, "subscribe": "records"}).load()

        files = f"{home}/parquet"
        table("muster").repartition(PARTITIONS).write.option("compression", "none").parquet(files)
        works = (
            lambda: seconds_to_read(lambda: table("muster")),
            lambda: seconds_to_read(lambda: spark.read.parquet(files)),
            lambda: seconds_to_read(lambda: table("ready_batches")),
            lambda: seconds_to_read(lambda: table("muster_tuples")),
        )
        in_turns(WARM_UP, *works)
        ours, parquet, ready, tuples = in_turns(TURNS, *works)
    yield faster(f"{name}, 1 M of 100 bytes", ours, "uncompressed Parquet", parquet, GOAL_PARQUET)
    yield faster(f"{name}, 1 M of 100 bytes", ours, "batches that lie ready in the task", ready, GOAL_READY)
    yield faster(f"{name}, batches that lie ready in the task", ready, "uncompressed Parquet", parquet, GOAL_PARQUET)
    yield faster(f"{name}, 1 M of 100 bytes", ours, "the same reader yielding tuples", tuples, GOAL_TUPLES)
