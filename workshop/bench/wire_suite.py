"""The cases of `muster bench wire`."""

from collections.abc import Iterator

from muster.workshop.bench import beside_suite as beside
from muster.workshop.bench import costs, rebalances, records
from muster.workshop.bench.cases import MeasureCase, measure_cases
from muster.workshop.bench.rows import BenchRow

CASES: dict[str, MeasureCase] = {
    "heartbeats": costs.measure_heartbeat_costs,
    "heartbeats by both doors": costs.measure_against_grpc,
    "commits of ten partitions": costs.measure_commit_costs,
    "one leaves": rebalances.measure_rejoins,
    "records": records.measure_messages,
}


def run(only: str = "", kafka: str = "") -> Iterator[BenchRow]:
    """Measure the cases whose name contains `only`; with those beside the broker of `kafka`, if it names one."""
    yield from measure_cases(CASES, only)
    if kafka:
        yield from beside.measure_beside_kafka(kafka, only)
