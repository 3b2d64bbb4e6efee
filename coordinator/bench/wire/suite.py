"""The cases of `muster bench wire`."""

from collections.abc import Iterator

from muster.coordinator.bench.cases import Measure, measured
from muster.coordinator.bench.rows import Row
from muster.coordinator.bench.wire import costs, rebalances, records

CASES: dict[str, Measure] = {
    "heartbeats": costs.heartbeats,
    "heartbeats by both doors": costs.against_grpc,
    "commits of ten partitions": costs.commits,
    "one leaves": rebalances.measure,
    "records": records.measure,
}


def run(only: str = "") -> Iterator[Row]:
    """Measure the cases whose name contains `only`."""
    return measured(CASES, only)
