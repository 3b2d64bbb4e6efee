"""What is counted as it happens: array increments, nothing looked up or built for a request.

Whoever counts is given an object of these, or None; where nobody asks for metrics nothing is counted.
"""

from bisect import bisect_left
from collections import Counter
from typing import Final

BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets of short times, in seconds."""

FASTEST: Final = BOUNDS[0]

LONG_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0)
"""The same of rebalances and their phases."""


class Timing:
    """How often something took how long: buckets by upper bound, and the sum of seconds."""

    __slots__ = ("bounds", "buckets", "seconds")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.seconds = 0.0

    def took(self, seconds: float) -> None:
        self.buckets[bisect_left(self.bounds, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def cumulative(self) -> list[tuple[str, int]]:
        """(upper bound, how many took at most so long), as histograms are written.

        >>> timing = Timing((0.1, 1.0)); timing.took(0.1); timing.took(7); timing.cumulative()
        [('0.1', 1), ('1.0', 1), ('+Inf', 2)]
        """
        reached, rows = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.buckets, strict=True):
            reached += count
            rows.append((bound, reached))
        return rows


class RequestMeter(Timing):
    """The requests of one API at one door. `others` counts the answers that are no plain yes, by code."""

    __slots__ = ("others", "untimed")

    def __init__(self) -> None:
        super().__init__()
        self.others: Counter[int | str] = Counter()
        """A number of Kafka's errors, or the name of a gRPC status."""
        self.untimed = 0
        """Streams that have ended: how long one is open is no matter of speed."""

    def answered(self, seconds: float, code: int) -> None:
        """The same for most requests, and cheap: nearly all are in the first bucket."""
        self.buckets[0 if seconds <= FASTEST else bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds
        if code:
            self.others[code] += 1

    def refused(self, seconds: float, status: str) -> None:
        """The call ended without an answer."""
        self.took(seconds)
        self.others[status] += 1

    def ended(self, status: str = "") -> None:
        """A stream has: by itself, or with this status."""
        self.untimed += 1
        if status:
            self.others[status] += 1

    def by_code(self) -> dict[int | str, int]:
        """How many answers by code; 0 is a plain yes."""
        return {0: self.count + self.untimed - self.others.total(), **self.others}


class Instruments:
    """One node's. All methods belong to its loop's thread."""

    def __init__(self) -> None:
        self.meters: dict[tuple[str, str], RequestMeter] = {}
        """(door, API) -> its requests."""
        self.turns = Timing()
        self.flushes = Timing()
        self.flushed_records = 0
        self.assignor_errors: Counter[str] = Counter()

    def meter(self, door: str, api: str) -> RequestMeter:
        """Where this door counts the requests of this API."""
        return self.meters.setdefault((door, api), RequestMeter())
