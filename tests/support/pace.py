"""How slow this machine is right now, against the one on which limits in tests were set, and patience to match."""

import time
from collections.abc import Callable

REFERENCE_S = 0.05
"""What `spin` takes on a quiet core of that machine."""

MOST = 20.0
"""A machine slower than that is out of order, not busy."""

LOOK_EVERY_S = 2.0

KNOWN_FOR_S = 5.0
"""A look at the pace costs as much as ten small tests."""

AGAIN_S = 0.05
"""Between two looks at what is to come about by itself."""


def spin() -> float:
    """Wall seconds of a fixed piece of work: long enough to lose the processor to others, as everything else does."""
    started = time.perf_counter()
    for number in range(600_000):
        number * number % 7
    return time.perf_counter() - started


class Pace:
    """How many times as long as usual things take now, as seen a few seconds ago at most; never less than once.

    >>> seconds = iter([0.0, 1.0, 9.0])
    >>> pace = Pace(spin=iter([0.2, 0.01]).__next__, now=lambda: next(seconds))
    >>> [pace(), pace(), pace()]
    [4.0, 4.0, 1.0]
    """

    def __init__(self, *, spin: Callable[[], float] = spin, now: Callable[[], float] = time.monotonic) -> None:
        self._spin = spin
        self._now = now
        self._looked_s = -KNOWN_FOR_S
        self._pace = 1.0

    def __call__(self) -> float:
        if (now_s := self._now()) - self._looked_s >= KNOWN_FOR_S:
            self._pace = min(max(1.0, self._spin() / REFERENCE_S), MOST)
            self._looked_s = now_s
        return self._pace


pace = Pace()


class Patience:
    """So many seconds, counted slower while the machine is busy: a second at five times the usual pace is a fifth.

    >>> seconds = iter([0.0, 30.0, 60.0, 61.0])
    >>> patience = Patience(10, now=lambda: next(seconds), pace=lambda: 5.0)
    >>> [patience.lasts(), patience.lasts(), patience.lasts()]
    [True, False, False]
    """

    def __init__(
        self, seconds: float, *, now: Callable[[], float] = time.monotonic, pace: Callable[[], float] = pace
    ) -> None:
        self._left_s = seconds
        self._now = now
        self._pace = pace
        self._looked_s = now()

    def lasts(self) -> bool:
        now_s = self._now()
        if (passed_s := now_s - self._looked_s) >= min(LOOK_EVERY_S, self._left_s):
            self._left_s -= passed_s / self._pace()
            self._looked_s = now_s
        return self._left_s > 0


def until(condition: Callable[[], bool], otherwise: Callable[[], str], seconds: float = 60.0) -> None:
    """Look again and again until it holds. Raises AssertionError, with what `otherwise` says by then, when that takes
    longer than patience lasts."""
    patience = Patience(seconds)
    while not condition():
        assert patience.lasts(), otherwise()
        time.sleep(AGAIN_S)
