"""What somebody used, over time. Facts of Kafka: Rate and SampledStat (windows), TokenBucket (KIP-599).

Times are seconds of a clock that does not go back.
"""

from collections import deque
from typing import Protocol


class RateMeter(Protocol):
    """`used` takes note; how long to wait before the next, in seconds, 0 within the quota."""

    last_s: float

    def used(self, amount: float, quota: float, now_s: float) -> float: ...


class WindowedRate:
    """A rate over the last `samples` windows of `window_s` each, the one that runs among them."""

    __slots__ = ("_samples", "_window_s", "_windows", "last_s")

    def __init__(self, samples: int, window_s: float) -> None:
        self._samples = samples
        self._window_s = window_s
        self._windows: deque[list[float]] = deque()
        """[when it began, how much]."""
        self.last_s = 0.0

    def used(self, amount: float, quota: float, now_s: float) -> float:
        self.last_s = now_s
        windows = self._windows
        if not windows or now_s - windows[-1][0] >= self._window_s:
            windows.append([now_s, 0.0])
        windows[-1][1] += amount
        rate, span_s = self._measured(now_s)
        return 0.0 if rate <= quota else (rate - quota) / quota * span_s

    def give_back(self, amount: float) -> None:
        """What was noted last did not take place."""
        if self._windows:
            self._windows[-1][1] -= amount

    def rate(self, now_s: float) -> float:
        return self._measured(now_s)[0]

    def _measured(self, now_s: float) -> tuple[float, float]:
        """The rate, and the seconds it is over: at least all windows but the one that runs, so that a first burst is
        spread over the time that is allowed for one."""
        windows = self._windows
        while windows and now_s - windows[0][0] >= self._samples * self._window_s:
            windows.popleft()
        elapsed_s = now_s - windows[0][0] if windows else 0.0
        full = int(elapsed_s / self._window_s)
        elapsed_s += max(0, self._samples - 1 - full) * self._window_s
        elapsed_s = max(elapsed_s, self._window_s)
        return sum(amount for _, amount in windows) / elapsed_s, elapsed_s


class TokenBucket:
    """As many tokens a second as the quota, at most those of all windows together; who takes too many owes them."""

    __slots__ = ("_burst_s", "_tokens", "last_s")

    def __init__(self, samples: int, window_s: float) -> None:
        self._burst_s = samples * window_s
        self._tokens: float | None = None
        self.last_s = 0.0

    def used(self, amount: float, quota: float, now_s: float) -> float:
        self._fill(quota, now_s)
        assert self._tokens is not None
        self._tokens = min(self._tokens - amount, quota * self._burst_s)
        return self.owed_s(quota, now_s)

    def owed_s(self, quota: float, now_s: float) -> float:
        """How long until there is a token again; 0: there is."""
        self._fill(quota, now_s)
        assert self._tokens is not None
        return max(0.0, -self._tokens / quota)

    def _fill(self, quota: float, now_s: float) -> None:
        most = quota * self._burst_s
        if self._tokens is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + quota * (now_s - self.last_s))
        self.last_s = now_s
