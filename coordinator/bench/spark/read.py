"""Reading a million records of 100 bytes as a table, against Parquet and against the same reader without Arrow."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from coordinator.bench.rows import Row
from coordinator.bench.spark.rows import faster, in_turns
from coordinator.bench.spark.stage import drained, fill, running_node, spark_on
from coordinator.spark.source import MusterDataSource

RECORDS = 1_000_000
PARTITIONS = 4
TURNS = 5
GOAL_PARQUET = 0.6
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


def measure(name: str, home: str) -> Iterator[Row]:
    with running_node(home) as address, spark_on(2) as spark:
        fill(address, "records", [RECORDS // PARTITIONS] * PARTITIONS)
        spark.dataSource.register(TupleSource)

        def read(source: str) -> Any:
            return spark.read.format(source).options(**{"bootstrap.servers": address, "subscribe": "records"}).load()

        files = f"{home}/parquet"
        read("muster").repartition(PARTITIONS).write.option("compression", "none").parquet(files)
        works = (
            lambda: drained(read("muster")),
            lambda: drained(spark.read.parquet(files)),
            lambda: drained(read("muster_tuples")),
        )
        in_turns(1, *works)
        ours, parquet, tuples = in_turns(TURNS, *works)
    yield faster(f"{name}, 1 M of 100 bytes", ours, "uncompressed Parquet", parquet, GOAL_PARQUET)
    yield faster(f"{name}, 1 M of 100 bytes", ours, "the same reader yielding tuples", tuples, GOAL_TUPLES)
