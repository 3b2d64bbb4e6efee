"""When a deadline comes, the sockets are read first: nobody is expired for what lies unread."""

import asyncio
from collections.abc import Callable

from muster.coordinator.server.driver.clock import NodeClock

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
