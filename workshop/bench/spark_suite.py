"""The cases of `muster bench spark`."""

from collections.abc import Iterator

from muster.workshop.bench import kafka_source, micro, read, replays, skew
from muster.workshop.bench.cases import MeasureCase, measure_cases
from muster.workshop.bench.rows import BenchRow

CASES: dict[str, MeasureCase] = {
    "read": read.measure_table_reads,
    "kafka-source": kafka_source.measure_kafka_source,
    "64 partitions": micro.measure_many,
    "micro-batch": micro.measure_few,
    "skewed backlog": skew.measure_skew,
    "backtest": replays.measure_replays,
}


def run(only: str = "") -> Iterator[BenchRow]:
    """Measure the cases whose name contains `only`."""
    return measure_cases(CASES, only)
