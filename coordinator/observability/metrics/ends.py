"""How far behind a group is in time: when did its topic end where the group is now?

Kept for each topic that a group reads: where it ended, all partitions together, at the times of earlier answers. The
group's place among them, by interpolation, is how old the first record is that it has not committed: exact where the
topic's partitions move alike, an average over them otherwise.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container

APART_MS = 5_000
"""Times are so far apart at least, however often somebody asks."""

MOST = 96
"""Times kept for a topic; beyond that every second one of the older half goes, so that they reach back further."""


class TopicEndHistory:
    """One topic's."""

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._times: list[int] = []
        self._ends: list[int] = []

    def note(self, now_ms: int, end: int) -> None:
        """It ends here now. A topic that was cut back, or made anew, begins again; so it does when the clock was set
        back."""
        if self._times and (end < self._ends[-1] or now_ms < self._times[-1]):
            self._times, self._ends = [], []
        if self._times and now_ms - self._times[-1] < APART_MS:
            return
        self._times.append(now_ms)
        self._ends.append(end)
        if len(self._times) > MOST:
            half = MOST // 2
            self._times = self._times[:half:2] + self._times[half:]
            self._ends = self._ends[:half:2] + self._ends[half:]

    def seconds(self, now_ms: int, end: int, lag: int) -> float | None:
        """How long ago it ended `lag` before `end`, where it ends now. None: too little is known yet.

        What is older than all that is kept is reckoned by the rate since then; where nothing was written since, it is
        at least as old as what is kept.
        """
        if lag <= 0:
            return 0.0
        if not self._times:
            return None
        times, ends = [*self._times, now_ms], [*self._ends, max(end, self._ends[-1])]
        wanted = end - lag
        if wanted < ends[0]:
            span_ms, grown = now_ms - times[0], ends[-1] - ends[0]
            if span_ms <= 0:
                return None
            older_ms = (ends[0] - wanted) * span_ms / grown if grown else 0.0
            return (span_ms + older_ms) / 1000
        # The last time at which it ended no further than there; from then on the next record was written.
        before = bisect_right(ends, wanted) - 1
        after = bisect_left(ends, wanted + 1, lo=before)
        if after >= len(ends):
            return 0.0
        part = (wanted - ends[before]) / (ends[after] - ends[before])
        return (now_ms - (times[before] + part * (times[after] - times[before]))) / 1000


class EndHistories:
    """Those of all topics that some group reads."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicEndHistory] = {}

    def of(self, topic: str) -> TopicEndHistory:
        return self._topics.setdefault(topic, TopicEndHistory())

    def keep(self, alive: Container[str]) -> None:
        for topic in [each for each in self._topics if each not in alive]:
            del self._topics[topic]
