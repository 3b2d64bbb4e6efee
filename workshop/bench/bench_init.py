"""`muster bench log`: what the log costs, each case as a ratio to a named limit or peer measured in the same run.

Turns of ours and the peer alternate and their ratio is the median over the turns, so that a busy machine slows both.
Everything is written below a directory of the caller's and removed again.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator

from muster.workshop.bench import looking, memory, speed
from muster.workshop.bench.case import LogBenchmarkCase

CASES: dict[str, Callable[[str, str, int], Iterator[LogBenchmarkCase]]] = {
    "append": speed.measure_append,
    "append with the look": looking.measure_validation,
    "group commit, 32 callers": speed.measure_group_commit,
    "fetch to a socket": speed.measure_fetch,
    "records of 100 bytes": speed.measure_codec,
    "a 1 MB batch to Arrow": speed.measure_columns,
    "recovery scan": speed.measure_recovery_scan,
    "an idle partition": memory.measure_idle_partition,
    "memory": memory.measure_memory_growth,
}


def run(only: str | None = None, directory: str | None = None, rounds: int = 7) -> Iterator[LogBenchmarkCase]:
    """Measure the cases whose name contains `only`, one after the other; cases without their peer are left out."""
    for name, measure in CASES.items():
        if only is None or only in name:
            home = tempfile.mkdtemp(prefix="muster-bench-", dir=directory)
            try:
                yield from measure(name, home, rounds)
            finally:
                shutil.rmtree(home, ignore_errors=True)
