"""The cases of `muster bench coordinator`, one after the other, each in a directory of its own."""

import shutil
import tempfile
from collections.abc import Callable, Iterator

from coordinator.bench import growth, handover, heartbeat, loading
from coordinator.bench.rows import Row

CASES: dict[str, Callable[[str, str], Iterator[Row]]] = {
    "heartbeats over gRPC": heartbeat.measure,
    "owned again": handover.measure,
    "loading offsets": loading.measure,
    "one group": growth.measure,
    "one pushed group": growth.measure_pushed,
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
