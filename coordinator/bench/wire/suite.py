"""The cases of `muster bench wire`, one after the other, each in a directory of its own."""

import shutil
import tempfile
from collections.abc import Callable, Iterator

from coordinator.bench.rows import Row
from coordinator.bench.wire import costs, rebalances, records

CASES: dict[str, Callable[[str, str], Iterator[Row]]] = {
    "heartbeats": costs.heartbeats,
    "heartbeats by both doors": costs.against_grpc,
    "commits of ten partitions": costs.commits,
    "one leaves": rebalances.measure,
    "records": records.measure,
}


def run(only: str = "") -> Iterator[Row]:
    """Measure the cases whose name contains `only`."""
    for name, measure in CASES.items():
        if only in name:
            home = tempfile.mkdtemp(prefix="muster-bench-")
            try:
                yield from measure(name, home)
            finally:
                shutil.rmtree(home, ignore_errors=True)
