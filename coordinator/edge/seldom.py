"""What strangers can cause again and again is told in the log now and then, with how often it happened. Pure."""

MAX_REASONS = 100
"""Beyond so many in one interval nobody reads what is told."""


class LogThrottle:
    """Which of many like events are worth a line: the first, and then one in each interval."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._told: dict[str, tuple[float, int]] = {}
        """reason -> when it was told, and how often it went untold since; those that were told last come last"""

    def due(self, reason: str, now_s: float) -> int | None:
        """How many like it went untold before this one, if this one is to be told; None if it is not.

        >>> seldom = LogThrottle(10)
        >>> [seldom.due("full", at) for at in (0, 1, 9, 10, 11)]
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
