"""The wall clock, by which tokens end, beside the monotonic one, by which it is waited for.

The two go apart when somebody sets the clock, and when the machine slept. Then what was worked out before is wrong.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog

LEAST_S: Final = 2.0
"""What they may differ by, and clocks that are set right slowly do, before it is looked at."""
LOOK_S: Final = 1.0

log = structlog.get_logger("muster.security")


class WallClock:
    """`moved` hears by how many seconds more than those that have passed: less than 0 where it was set back."""

    def __init__(
        self,
        moved: Callable[[float], None],
        wall_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._moved = moved
        self._wall_s = wall_s
        self._monotonic_s = monotonic_s
        self._apart_s = wall_s() - monotonic_s()

    def look(self) -> None:
        """Tell `moved`, and the log, if the clock was set since the last time."""
        apart_s = self._wall_s() - self._monotonic_s()
        by_s = apart_s - self._apart_s
        if abs(by_s) < LEAST_S:
            return
        self._apart_s = apart_s
        log.warning(
            "the clock was set",
            by_s=round(by_s, 1),
            why="tokens end by it, and each is looked at anew when it is shown next",
        )
        self._moved(by_s)

    async def turn(self) -> None:
        """Look every now and then."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()
