"""Work on many partitions that waits for the disk more than it computes: some of it at the same time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, TypeVar

Result = TypeVar("Result")

THREADS = 2
"""One waits for the disk while the other computes; more would wait for each other's turn in the interpreter."""

SHARE = 16
"""Partitions that a thread takes at once: to hand one over costs as much as to make one."""


def run_together(work: Callable[..., Result], items: Sequence[tuple[Any, ...]], *, few: int = 256) -> list[Result]:
    """What `work` makes of each item's parts, in the items' order; fewer than `few` are done here, one by one.

    The first error is raised, once whatever had begun has ended.

    >>> run_together(pow, [(2, 3), (3, 2)])
    [8, 9]
    """
    if len(items) < few:
        return [work(*item) for item in items]

    def share(start: int) -> list[Result]:
        return [work(*item) for item in items[start : start + SHARE]]

    with ThreadPoolExecutor(THREADS, thread_name_prefix="partitions") as pool:
        return list(chain.from_iterable(pool.map(share, range(0, len(items), SHARE))))
