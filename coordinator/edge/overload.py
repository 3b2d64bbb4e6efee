"""Keeps heavy or hostile clients from costing a node its memory, its event loop or its log.

Freed memory is kept for the next large answer (glibc's mallopt; other C libraries are left as they are), and what a
refused request took goes back to the system. `LoopTime` measures what a request takes of the loop, apart from what it
waits for. `LogThrottle` decides which of many like events get a line: the first, then one in each interval, with the
number of those left out.
"""

import asyncio
import ctypes
import sys
from collections.abc import Awaitable, Callable, Generator
from time import perf_counter
from typing import Any

from muster.coordinator.edge.request_limits import LARGE_BYTES

# The C library's allocator
# -------------------------

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""The numbers of M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX in glibc's malloc.h."""

ARENAS = 2
"""One for the loop's thread, one for all others."""

LARGEST_BYTES = 32 << 20
"""The most that glibc takes for blocks out of its own heap; larger ones are mapped and unmapped as ever."""


def keep_freed_memory(most_bytes: int) -> bool:
    """Ask glibc to keep so much freed memory at the end of its heap; whether it agreed.

    A node makes answers of megabytes and frees them, again and again, and so does who reads them. By default each one's
    pages are given back to the system and faulted in anew for the next, which costs more than all copies of the records
    together. Other C libraries, and other systems, are left as they are.
    """
    mallopt = glibc_function("mallopt")
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, most_bytes))


def share_arenas() -> bool:
    """Ask glibc to let all threads beside the first share one arena; whether it agreed. Before any of them is started.

    By default it makes one for each thread that allocates, up to eight for each processor. What a thread frees is free
    for its own arena alone, and a node's threads take turns: each comes to hold what the largest work of all once took,
    and memory grows for as long as there is a thread that has not met it (a soak: from 8 to 12 MiB in five minutes).
    """
    mallopt = glibc_function("mallopt")
    return mallopt is not None and bool(mallopt(_ARENA_MAX, ARENAS))


def release_free_memory() -> bool:
    """Give what is free back to the system at once; whether anything was. Takes milliseconds: not on an event loop."""
    trim = glibc_function("malloc_trim")
    return trim is not None and bool(trim(0))


def glibc_function(name: str) -> Callable[..., int] | None:
    """A function of the C library's allocator; None where the library is another one."""
    if not sys.platform.startswith("linux"):
        return None
    function: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return function


# Memory of refused requests
# --------------------------

PAUSE_S = 1.0
"""A stranger who is refused again and again has it done once in so long."""


class RefusedRequestMemory:
    """Counts the bytes of refused requests; one per node. It belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._due = False

    def refused(self, size: int) -> None:
        """A request of `size` bytes was refused: once its memory is free, the system has it back."""
        if size < LARGE_BYTES or self._due:
            return
        self._due = True
        asyncio.get_running_loop().call_later(PAUSE_S, self._release)

    def _release(self) -> None:
        self._due = False
        asyncio.get_running_loop().run_in_executor(None, release_free_memory)


# Time on the event loop
# ----------------------


class LoopTime:
    """A coroutine to be awaited in its place; `spent_s` is what its steps took together."""

    __slots__ = ("_work", "spent_s")

    def __init__(self, work: Awaitable[Any]) -> None:
        self._work = work
        self.spent_s = 0.0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._work.__await__()
        step: Callable[[Any], Any] = steps.send
        given: Any = None
        while True:
            since_s = perf_counter()
            try:
                awaited = step(given)
            except StopIteration as done:
                return done.value
            finally:
                self.spent_s += perf_counter() - since_s
            try:
                step, given = steps.send, (yield awaited)
            except BaseException as error:
                # What is thrown in is the work's to catch: a timeout within it cancels the task.
                step, given = steps.throw, error


# Throttled log lines
# -------------------

MAX_REASONS = 100
"""Beyond so many in one interval nobody reads what is told."""


class LogThrottle:
    """Which of many like events are worth a line: the first, and then one in each interval."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._told: dict[str, tuple[float, int]] = {}
        """reason -> when it was told, and how often it went untold since; those that were told last come last"""

    def count_suppressed(self, reason: str, now_s: float) -> int | None:
        """How many like it went untold before this one, if this one is to be told; None if it is not.

        >>> seldom = LogThrottle(10)
        >>> [seldom.count_suppressed("full", at) for at in (0, 1, 9, 10, 11)]
        [0, None, None, 2, None]
        """
        untold = 0
        if reason in self._told:
            at, untold = self._told[reason]
            if now_s - at < self._every_s:
                self._told[reason] = (at, untold + 1)
                return None
            del self._told[reason]
        elif len(self._told) >= MAX_REASONS:
            oldest = next(iter(self._told))
            if now_s - self._told[oldest][0] < self._every_s:
                return None
            del self._told[oldest]
        self._told[reason] = (now_s, 0)
        return untold
