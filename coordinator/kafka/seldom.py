"""What strangers can cause again and again is told in the log now and then, with how often it happened. Pure."""

MAX_REASONS = 1_000


class Seldom:
    """Which of many like events are worth a line: the first, and then one in each interval."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._told: dict[str, tuple[float, int]] = {}

    def due(self, reason: str, now_s: float) -> int | None:
        """How many like it went untold before this one, if this one is to be told; None if it is not.

        >>> seldom = Seldom(10)
        >>> [seldom.due("full", at) for at in (0, 1, 9, 10, 11)]
        [0, None, None, 2, None]
        """
        at, untold = self._told.pop(reason, (now_s - self._every_s, 0))
        if now_s - at < self._every_s:
            self._told[reason] = (at, untold + 1)
            return None
        self._told[reason] = (now_s, 0)
        while len(self._told) > MAX_REASONS:
            del self._told[next(iter(self._told))]
        return untold
