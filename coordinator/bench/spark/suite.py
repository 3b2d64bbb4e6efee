"""The cases of `muster bench spark`, one after the other, each in a directory of its own."""

import shutil
import tempfile
from collections.abc import Callable, Iterator

from coordinator.bench.rows import Row
from coordinator.bench.spark import micro, read, replays, skew

CASES: dict[str, Callable[[str, str], Iterator[Row]]] = {
    "read": read.measure,
    "64 partitions": micro.measure_many,
    "micro-batch": micro.measure_few,
    "skewed backlog": skew.measure,
    "backtest": replays.measure,
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
