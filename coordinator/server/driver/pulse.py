"""Whether the event loop turns: it is asked at a steady pace, and what it does not answer in time is a stall.

Whatever keeps the loop from turning keeps it from hearing anybody: a process that was stopped, a machine that was
paused, or one thing on the loop that took long.
"""

import asyncio
from collections.abc import Callable
from time import thread_time
from typing import TypeAlias

from muster.coordinator.server.driver.clock import NodeClock

PACE_MS = 50
"""How often the loop is asked; a stall is known to within this."""

STALL_MS = 250
"""What takes longer is a stall. Below it, a timer that rings late waits as long again (see `Driver`)."""

StallReport: TypeAlias = Callable[[int, int], None]
"""Gets for how many milliseconds the loop stood still, and how many of them it was computing."""


class LoopMonitor:
    """Asks the loop that is running. `check` may be called at any time; it finds a stall before anything else does."""

    def __init__(self, clock: NodeClock, on_stall: StallReport) -> None:
        self._clock = clock
        self._on_stall = on_stall
        self._loop = asyncio.get_running_loop()
        self.latest_ms = 0
        """How late the last answer was."""
        self._next: asyncio.TimerHandle | None = None
        self.restart()

    def restart(self) -> None:
        """What was before is no stall."""
        self.stop()
        self._felt_ms, self._worked_s = self._clock.now_ms(), thread_time()
        self._next = self._loop.call_later(PACE_MS / 1000, self._beat)

    def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()

    def check(self) -> None:
        """Report the stall that has just ended, if the loop comes from one."""
        now_ms = self._clock.now_ms()
        late_ms = now_ms - self._felt_ms - PACE_MS
        if late_ms < STALL_MS:
            return
        worked_s = thread_time()
        computing_ms = int((worked_s - self._worked_s) * 1000)
        self._felt_ms, self._worked_s = now_ms, worked_s
        self._on_stall(late_ms, min(computing_ms, late_ms))

    def _beat(self) -> None:
        now_ms = self._clock.now_ms()
        self.latest_ms = max(0, now_ms - self._felt_ms - PACE_MS)
        self.check()
        self._felt_ms, self._worked_s = now_ms, thread_time()
        self._next = self._loop.call_later(PACE_MS / 1000, self._beat)
