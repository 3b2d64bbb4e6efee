"""The cases of `muster bench coordinator`."""

from collections.abc import Iterator

from muster.coordinator.bench import abuse, handover, heartbeat, large_group, loading, pages, quota, warm
from muster.coordinator.bench.cases import Measure, measured
from muster.coordinator.bench.observed import encrypted, following, metrics, scrape, secured
from muster.coordinator.bench.rows import Row
from muster.coordinator.bench.sessions import idle, sharing
from muster.coordinator.bench.stall import measure as stall
from muster.coordinator.bench.stall import startup

CASES: dict[str, Measure] = {
    "heartbeats over gRPC": heartbeat.measure,
    "heartbeats on a shared stream": sharing.measure,
    "owned again": handover.measure,
    "handover": warm.measure,
    "loading offsets": loading.measure,
    "stall": stall.measure,
    "startup": startup.measure,
    "abuse": abuse.measure,
    "quota": quota.measure,
    "metrics": metrics.measure,
    "scrape": scrape.measure,
    "secured": secured.measure,
    "encrypted": encrypted.measure,
    "following": following.measure,
    "pages": pages.measure,
    "one group": large_group.measure,
    "one pushed group": large_group.measure_pushed,
    "idle pushed members": idle.measure,
}


def run(only: str = "") -> Iterator[Row]:
    """Measure the cases whose name contains `only`."""
    return measured(CASES, only)
