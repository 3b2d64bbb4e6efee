"""The cases of `muster bench coordinator`."""

from collections.abc import Iterator

from muster.coordinator.bench import abuse, handover, heartbeat, large_group, loading, pages, quota, warm
from muster.coordinator.bench.cases import MeasureCase, measure_cases
from muster.coordinator.bench.observed import encrypted, following, metrics, scrape, secured
from muster.coordinator.bench.rows import BenchRow
from muster.coordinator.bench.sessions import idle, sharing
from muster.coordinator.bench.stall import measure as stall
from muster.coordinator.bench.stall import startup

CASES: dict[str, MeasureCase] = {
    "heartbeats over gRPC": heartbeat.measure_heartbeats,
    "heartbeats on a shared stream": sharing.measure_shared_streams,
    "owned again": handover.measure_handover,
    "handover": warm.measure_warm_takeover,
    "loading offsets": loading.measure_loading,
    "stall": stall.measure_stalls,
    "startup": startup.measure_startup,
    "abuse": abuse.measure_abuse,
    "quota": quota.measure_quota,
    "metrics": metrics.measure_metrics_cost,
    "scrape": scrape.measure_scrape,
    "secured": secured.measure_access_control_cost,
    "encrypted": encrypted.measure_tls_cost,
    "following": following.measure_open_pages,
    "pages": pages.measure_pages,
    "one group": large_group.measure_large_group,
    "one pushed group": large_group.measure_large_pushed_group,
    "idle pushed members": idle.measure_idle_members,
}


def run(only: str = "") -> Iterator[BenchRow]:
    """Measure the cases whose name contains `only`."""
    return measure_cases(CASES, only)
