"""A skewed backlog: how long the slowest task takes when each record costs the same time.

Which partitions are heavy is drawn from a seed, another one in each turn: in the order of their weight the four
heaviest would all be the first slot's of `range`.
"""

import random
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from muster.spark.source import MusterDataSource
from muster.workshop.bench.rows import BenchRow
from muster.workshop.bench.spark_rows import faster_row, take_turns
from muster.workshop.bench.stage import fill_topic, open_session, run_spark_node, seconds_to_read

SKEWED_RECORDS = 300_000
SKEWED_PARTITIONS = 16
EXPONENT = 1.5
SLOTS = 4
COST_S = 40e-6
"""What a record costs, as a call to another service would: time in which the processor is free."""

SEEDS = (1, 2, 3)
GOAL_RANGE = 1.7
GOAL_ONE_TO_ONE = 1.4


class CostlySource(MusterDataSource):
    """Rows that cost time as they are read."""

    @classmethod
    def name(cls) -> str:
        return "muster_costly"

    def reader(self, schema: StructType) -> DataSourceReader:
        return CostlyReader(super().reader(schema))


class CostlyReader(DataSourceReader):
    def __init__(self, inner: DataSourceReader) -> None:
        self._inner = inner

    def partitions(self) -> Any:
        return self._inner.partitions()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batches: Iterator[Any] = self._inner.read(partition)
        for batch in batches:
            time.sleep(batch.num_rows * COST_S)
            yield batch


def zipf(records: int, partitions: int, exponent: float) -> list[int]:
    """Records of each partition, the heaviest first.

    >>> zipf(110, 3, 1.0)
    [60, 30, 20]
    """
    weights = [1 / rank**exponent for rank in range(1, partitions + 1)]
    return [round(records * weight / sum(weights)) for weight in weights]


def shuffle_counts(seed: int) -> list[int]:
    """The counts in an order of the seed's."""
    counts = zipf(SKEWED_RECORDS, SKEWED_PARTITIONS, EXPONENT)
    random.Random(seed).shuffle(counts)
    return counts


def measure_skew(name: str, home: str) -> Iterator[BenchRow]:
    with run_spark_node(home) as address, open_session(SLOTS) as spark:
        for seed in SEEDS:
            fill_topic(address, f"skewed-{seed}", shuffle_counts(seed))
        spark.dataSource.register(CostlySource)

        def read(assignor: str, seeds: Iterator[int]) -> float:
            options = {"bootstrap.servers": address, "subscribe": f"skewed-{next(seeds)}", "assignor": assignor}
            if assignor != "one-to-one":
                options["tasks"] = str(SLOTS)
            return seconds_to_read(spark.read.format("muster_costly").options(**options).load)

        read("split", iter(SEEDS))
        ways = {assignor: iter(SEEDS) for assignor in ("split", "range", "one-to-one")}
        works = [partial(read, assignor, seeds) for assignor, seeds in ways.items()]
        split, by_range, one_to_one = take_turns(len(SEEDS), *works)
    case = f"{name}: zipf 1.5 over 16 shuffled partitions, 4 slots"
    yield faster_row(case, split, "range", by_range, GOAL_RANGE)
    yield faster_row(case, split, "one-to-one", one_to_one, GOAL_ONE_TO_ONE)
