"""The clocks of a node among others."""

import time
from typing import Final

CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_ms() -> int:
    """The one by which leases count. It goes on while the machine sleeps: what a leader knew before is old then."""
    return time.clock_gettime_ns(CLOCK) // 1_000_000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
