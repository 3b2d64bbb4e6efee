"""For the Python processes that Spark keeps for its next task."""

import gc
import sys
from functools import cache

DAEMON = "pyspark.daemon"
"""The main module of such a process."""


@cache
def settle_in() -> None:
    """Leave what is loaded by now out of all further garbage collections.

    Spark's daemon collects garbage whenever a task has ended, and whenever a source was made or planned: 56 ms for the
    67,000 objects that this source's modules are made of, though none of them ever becomes garbage. Only the first
    call counts, and only in a process of Spark's daemon: elsewhere what is collected is not ours to decide.
    """
    if is_kept():
        gc.freeze()


def is_kept() -> bool:
    """Whether this process was started by Spark's daemon."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == DAEMON
