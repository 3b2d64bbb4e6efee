"""How good a replay was, in figures that come out the same to the last digit on every runner.

Whole numbers are added up as whole numbers; what is not whole is added with `math.fsum`, whose result does not
depend on the order. No figure depends on how long anything took.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReplayScore:
    """What one candidate made of one trace.

    Balance is time-weighted: the heaviest member's lag, summed over time, over the mean member's (1 is even). Unowned
    times are partition-seconds after the first plan, as the hand-over model counts them: `unowned_s` by the way the
    assignor itself hands over, the other two as if it did it the one way or the other.
    """

    decisions: int
    """Rebalances the history asked for."""
    rounds: int
    """Rounds of JoinGroup and SyncGroup that they took; a cooperative plan that moves something needs two."""
    lag_ratio: float
    """Heaviest member's lag over the mean."""
    lag_spread: float
    """Standard deviation of the members' lag over the mean."""
    count_ratio: float
    """Most partitions of a member over the mean."""
    count_spread: float
    """Standard deviation of the members' partitions, over the mean."""
    moves: int
    """Partitions that went from one member to another."""
    avoidable_moves: int
    """Those whose old owner was still there and still wanted them."""
    moved_lag: int
    """Records behind of the partitions that moved, at that moment: what another member had to pick up."""
    unowned_s: float
    unowned_eager_s: float
    unowned_cooperative_s: float
    mean_lag: float
    """Of all partitions together, over time. In a recorded history it is the same for every candidate."""
    worst_lag: int
    """The most that any member had to work off at any moment."""
    unassigned_s: float
    """Partition-seconds without a place in the plan: by limits, or because nobody subscribes."""
    unsettled: int
    """Rebalances that did not come to rest within the rounds that are allowed."""


class Holdings:
    """Who holds what under one plan, sorted by owner once, so that each look at the lag is cheap."""

    def __init__(self, owner: Ints) -> None:
        places = np.flatnonzero(owner >= 0)
        self.order: Ints = places[np.argsort(owner[places], kind="stable")]
        """The partitions that have an owner, each owner's together."""
        owners, starts = np.unique(owner[self.order], return_index=True)
        self.starts: Ints = starts
        self.sizes: Ints = np.diff(np.append(starts, len(places)))
        self.held = len(places)
        self.most = int(self.sizes.max()) if len(owners) else 0
        self._counts: list[int] = self.sizes.tolist()
        self._deviations: dict[int, float] = {}

    def loads(self, lag: Ints) -> Ints:
        """The lag of each member that holds anything."""
        return np.add.reduceat(lag[self.order], self.starts) if self.held else lag[:0]

    def deviation(self, members: int) -> float:
        """Of the members' counts."""
        if members not in self._deviations:
            self._deviations[members] = deviation(self._counts, members)
        return self._deviations[members]


SCORE_FIELDS = tuple(one.name for one in fields(ReplayScore))


@dataclass(slots=True)
class ScoreTally:
    """Gathers a score."""

    decisions: int = 0
    rounds: int = 0
    moves: int = 0
    avoidable_moves: int = 0
    moved_lag: int = 0
    unowned_eager_ms: int = 0
    unowned_cooperative_ms: int = 0
    unassigned_ms: int = 0
    unsettled: int = 0
    worst_lag: int = 0
    span_ms: int = 0
    lag_ms: int = 0
    """Records times milliseconds, all partitions."""
    heaviest: list[int] = field(default_factory=list)
    """Per stretch of time: the most, the mean and the deviation of members' lag times its length."""
    mean: list[float] = field(default_factory=list)
    deviation: list[float] = field(default_factory=list)
    most: list[int] = field(default_factory=list)
    mean_count: list[float] = field(default_factory=list)
    count_deviation: list[float] = field(default_factory=list)

    def stretch(self, holdings: Holdings, members: int, lag: Ints, existing: int, length_ms: int) -> None:
        """For so long the plan stood while this was the lag, in a group of so many members."""
        self.span_ms += length_ms
        self.lag_ms += int(lag.sum()) * length_ms
        self.unassigned_ms += (existing - holdings.held) * length_ms
        if not members:
            return
        loads = holdings.loads(lag).tolist()
        total, most = sum(loads), max(loads, default=0)
        self.worst_lag = max(self.worst_lag, most)
        self.heaviest.append(most * length_ms)
        self.mean.append(total * length_ms / members)
        self.deviation.append(deviation(loads, members) * length_ms)
        self.most.append(holdings.most * length_ms)
        self.mean_count.append(holdings.held * length_ms / members)
        self.count_deviation.append(holdings.deviation(members) * length_ms)

    def score(self, cooperative: bool) -> ReplayScore:
        eager_s, cooperative_s = self.unowned_eager_ms / 1000, self.unowned_cooperative_ms / 1000
        mean, mean_count = math.fsum(self.mean), math.fsum(self.mean_count)
        return ReplayScore(
            decisions=self.decisions,
            rounds=self.rounds,
            lag_ratio=ratio(sum(self.heaviest), mean, 1.0),
            lag_spread=ratio(math.fsum(self.deviation), mean, 0.0),
            count_ratio=ratio(sum(self.most), mean_count, 1.0),
            count_spread=ratio(math.fsum(self.count_deviation), mean_count, 0.0),
            moves=self.moves,
            avoidable_moves=self.avoidable_moves,
            moved_lag=self.moved_lag,
            unowned_s=cooperative_s if cooperative else eager_s,
            unowned_eager_s=eager_s,
            unowned_cooperative_s=cooperative_s,
            mean_lag=ratio(self.lag_ms, float(self.span_ms), 0.0),
            worst_lag=self.worst_lag,
            unassigned_s=self.unassigned_ms / 1000,
            unsettled=self.unsettled,
        )


def deviation(numbers: Sequence[int], count: int) -> float:
    """The standard deviation of `count` whole numbers, rounded once; those that are not listed are 0.

    >>> deviation([2, 4, 4, 4, 5, 5, 7, 9], 8), deviation([4], 2)
    (2.0, 2.0)
    """
    squares = count * sum(number * number for number in numbers) - sum(numbers) ** 2
    return math.sqrt(squares) / count


def ratio(part: float, whole: float, empty: float) -> float:
    """`empty` where there is nothing to compare with."""
    return part / whole if whole else empty
