"""How a suite runs: one case after the other, each in a directory of its own."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from muster.workshop.bench.rows import BenchRow

MeasureCase: TypeAlias = Callable[[str, str], Iterator[BenchRow]]
"""Of the case's name and a directory that is removed afterwards."""


def measure_cases(cases: Mapping[str, MeasureCase], only: str) -> Iterator[BenchRow]:
    """Measure the cases whose name contains `only`."""
    for name, measure in cases.items():
        if only in name:
            home = tempfile.mkdtemp(prefix="muster-bench-")
            try:
                yield from measure(name, home)
            finally:
                shutil.rmtree(home, ignore_errors=True)
