"""Virtual time, and the one source of chance in a run."""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

ScheduledAction = Callable[[], None]

MAX_EVENTS = 20_000_000
"""A run that needs more goes in circles."""


class VirtualClock:
    """What is scheduled happens in order of time, then of scheduling. Nothing else may ask for the time or draw."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now_ms = 0
        self._queue: list[tuple[int, int, ScheduledAction]] = []
        self._scheduled = 0

    def at(self, at_ms: int, action: ScheduledAction) -> None:
        self._scheduled += 1
        heappush(self._queue, (max(at_ms, self.now_ms), self._scheduled, action))

    def after(self, delay_ms: int, action: ScheduledAction) -> None:
        self.at(self.now_ms + delay_ms, action)

    def run(self, until_ms: int) -> None:
        """Let time pass. Raises RuntimeError when it does not."""
        events = 0
        while self._queue and self._queue[0][0] <= until_ms:
            self.now_ms, _, action = heappop(self._queue)
            events += 1
            if events > MAX_EVENTS:
                raise RuntimeError(
                    f"{MAX_EVENTS} events before {until_ms} ms of virtual time; something goes in circles"
                )
            action()
        self.now_ms = until_ms
