"""The cases of `muster bench spark`."""

from collections.abc import Iterator

from muster.coordinator.bench.cases import Measure, measured
from muster.coordinator.bench.rows import Row
from muster.coordinator.bench.spark import kafka_source, micro, read, replays, skew

CASES: dict[str, Measure] = {
    "read": read.measure,
    "kafka-source": kafka_source.measure,
    "64 partitions": micro.measure_many,
    "micro-batch": micro.measure_few,
    "skewed backlog": skew.measure,
    "backtest": replays.measure,
}


def run(only: str = "") -> Iterator[Row]:
    """Measure the cases whose name contains `only`."""
    return measured(CASES, only)
