"""The cases of `muster bench coordinator`."""

from collections.abc import Iterator

from coordinator.bench import abuse, growth, handover, heartbeat, loading
from coordinator.bench.cases import Measure, measured
from coordinator.bench.rows import Row
from coordinator.bench.stall import measure as stall
from coordinator.bench.stall import startup

CASES: dict[str, Measure] = {
    "heartbeats over gRPC": heartbeat.measure,
    "owned again": handover.measure,
    "loading offsets": loading.measure,
    "stall": stall.measure,
    "startup": startup.measure,
    "abuse": abuse.measure,
    "one group": growth.measure,
    "one pushed group": growth.measure_pushed,
}


def run(only: str = "") -> Iterator[Row]:
    """Measure the cases whose name contains `only`."""
    return measured(CASES, only)
