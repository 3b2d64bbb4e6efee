"""The cases of `muster bench coordinator`."""

from collections.abc import Iterator

from muster.workshop.bench import groups, heartbeats, interference, web_costs
from muster.workshop.bench import interference as stall
from muster.workshop.bench.report import BenchRow, MeasureCase, measure_cases

CASES: dict[str, MeasureCase] = {
    "heartbeats over gRPC": heartbeats.measure_heartbeats,
    "heartbeats on a shared stream": groups.measure_shared_streams,
    "owned again": groups.measure_handover,
    "handover": groups.measure_warm_takeover,
    "loading offsets": interference.measure_loading,
    "stall": stall.measure_stalls,
    "startup": interference.measure_startup,
    "abuse": interference.measure_abuse,
    "quota": interference.measure_quota,
    "metrics": heartbeats.measure_metrics_cost,
    "scrape": web_costs.measure_scrape,
    "secured": heartbeats.measure_access_control_cost,
    "encrypted": heartbeats.measure_tls_cost,
    "following": web_costs.measure_open_pages,
    "pages": web_costs.measure_pages,
    "one group": groups.measure_large_group,
    "one pushed group": groups.measure_large_pushed_group,
    "idle pushed members": groups.measure_idle_members,
}


def run(only: str = "") -> Iterator[BenchRow]:
    """Measure the cases whose name contains `only`."""
    return measure_cases(CASES, only)
