"""The cases of `muster bench wire`."""

from collections.abc import Iterator

from muster.coordinator.bench.cases import Measure, measured
from muster.coordinator.bench.rows import Row
from muster.coordinator.bench.wire import costs, rebalances, records
from muster.coordinator.bench.wire.beside import suite as beside

CASES: dict[str, Measure] = {
    "heartbeats": costs.heartbeats,
    "heartbeats by both doors": costs.against_grpc,
    "commits of ten partitions": costs.commits,
    "one leaves": rebalances.measure,
    "records": records.measure,
}


def run(only: str = "", kafka: str = "") -> Iterator[Row]:
    """Measure the cases whose name contains `only`; with those beside the broker of `kafka`, if it names one."""
    yield from measured(CASES, only)
    if kafka:
        yield from beside.cases(kafka, only)
