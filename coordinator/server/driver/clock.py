"""Time on a node: its clocks, the alarm for deadlines and the check that the event loop turns.

`NodeClock` is wall time at start, carried on by the monotonic clock: a clock that is set back or forth expires no
session. `WallClock` is the wall clock by which tokens end; it notices when the two drift apart, because the clock was
set or the machine slept. `DeadlineAlarm` reads the sockets before it rings, so that no member expires for what lies
unread. `LoopMonitor` asks the loop at a steady pace; what the loop does not answer in time is a stall, whatever the
cause (a stopped process, a paused machine, one long callback).
"""

import asyncio
import time
from collections.abc import Callable
from time import thread_time
from typing import Final, TypeAlias

import structlog


class NodeClock:
    """Epoch milliseconds that never jump, so that a clock set back or forth expires nobody's session.

    Drift against wall time over the node's life only shows in stored timestamps.
    """

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def now_ms(self) -> int:
        return int((time.monotonic() + self._offset_s) * 1000)


# The wall clock
# --------------

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

    def detect_clock_set(self) -> None:
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
            self.detect_clock_set()


# Deadlines
# ---------

READING_PASSES = 4
"""Passes of the loop between a deadline and the turn that fires it. A request that lies in a socket takes up to three:
it is read, its call is begun, its handler runs."""


class DeadlineAlarm:
    """Calls `ring` some passes of the loop after a deadline, and after as long again as the loop was late for it.

    gRPC hands over what it has read from another thread, hence the second.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: NodeClock, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._ring = ring
        self._handle: asyncio.Handle | None = None
        self._at_ms = 0
        self._reading = False
        self.heard_ms = clock.now_ms()
        """Until when everything that had come to the node has been read."""

    def arm(self, deadline_ms: int | None) -> None:
        """Ring at that time. One that moved later since the last call is looked at when the old time comes."""
        if deadline_ms is None or self._reading or (self._handle is not None and self._at_ms <= deadline_ms):
            return
        if self._handle is not None:
            self._handle.cancel()
        delay_ms = max(deadline_ms - self._clock.now_ms(), 0)
        self._at_ms = deadline_ms
        self._handle = self._loop.call_later(delay_ms / 1000, self._read)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _read(self) -> None:
        """A deadline has come: read what has come to the node so far, then ring."""
        self._reading = True
        now_ms = self._clock.now_ms()
        late_s = (now_ms - self._at_ms) / 1000
        self._handle = self._loop.call_later(late_s, self._read_on, READING_PASSES, now_ms)

    def _read_on(self, passes: int, rang_ms: int) -> None:
        if passes:
            self._handle = self._loop.call_soon(self._read_on, passes - 1, rang_ms)
            return
        self._handle = None
        self._reading = False
        self.heard_ms = rang_ms
        self._ring()


# Stalls of the event loop
# ------------------------

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

    def check(self) -> int:
        """Report the stall that has just ended, if the loop comes from one. Returns the time, ms."""
        now_ms = self._clock.now_ms()
        late_ms = now_ms - self._felt_ms - PACE_MS
        if late_ms < STALL_MS:
            return now_ms
        worked_s = thread_time()
        computing_ms = int((worked_s - self._worked_s) * 1000)
        self._felt_ms, self._worked_s = now_ms, worked_s
        self._on_stall(late_ms, min(computing_ms, late_ms))
        return self._clock.now_ms()

    def _beat(self) -> None:
        now_ms = self._clock.now_ms()
        self.latest_ms = max(0, now_ms - self._felt_ms - PACE_MS)
        self.check()
        self._felt_ms, self._worked_s = now_ms, thread_time()
        self._next = self._loop.call_later(PACE_MS / 1000, self._beat)
