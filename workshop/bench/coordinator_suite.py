"""The cases of `muster bench coordinator`."""

from collections.abc import Iterator

from muster.workshop.bench import (
    abuse,
    encrypted,
    following,
    handover,
    heartbeat,
    idle,
    large_group,
    loading,
    metrics,
    pages,
    quota,
    scrape,
    secured,
    sharing,
    startup,
    warm,
)
from muster.workshop.bench import measure as stall
from muster.workshop.bench.cases import MeasureCase, measure_cases
from muster.workshop.bench.rows import BenchRow

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
