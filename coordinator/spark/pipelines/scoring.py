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
class Score:
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


SCORE_FIELDS = tuple(one.name for one in fields(Score))


@dataclass(slots=True)
class Tally:
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

    def stretch(self, owner: Ints, members: Sequence[int], lag: Ints, length_ms: int) -> None:
        """For so long `owner` stood while this was the lag. `members` are those who are there."""
        self.span_ms += length_ms
        self.lag_ms += int(lag.sum()) * length_ms
        owned = np.flatnonzero(owner >= 0)
        self.unassigned_ms += (len(owner) - len(owned)) * length_ms
        if not members:
            return
        size = max(members) + 1
        counts = np.bincount(owner[owned], minlength=size)
        loads = np.zeros(size, dtype=np.int64)
        np.add.at(loads, owner[owned], lag[owned])
        numbers = [int(loads[member]) for member in members]
        held = [int(counts[member]) for member in members]
        self.worst_lag = max(self.worst_lag, max(numbers))
        self.heaviest.append(max(numbers) * length_ms)
        self.mean.append(sum(numbers) * length_ms / len(members))
        self.deviation.append(deviation(numbers) * length_ms)
        self.most.append(max(held) * length_ms)
        self.mean_count.append(sum(held) * length_ms / len(members))
        self.count_deviation.append(deviation(held) * length_ms)

    def score(self, cooperative: bool) -> Score:
        eager_s, cooperative_s = self.unowned_eager_ms / 1000, self.unowned_cooperative_ms / 1000
        mean, mean_count = math.fsum(self.mean), math.fsum(self.mean_count)
        return Score(
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


def deviation(numbers: Sequence[int]) -> float:
    """The standard deviation of whole numbers, rounded once.

    >>> deviation([2, 4, 4, 4, 5, 5, 7, 9])
    2.0
    """
    count = len(numbers)
    squares = count * sum(number * number for number in numbers) - sum(numbers) ** 2
    return math.sqrt(squares) / count


def ratio(part: float, whole: float, empty: float) -> float:
    """`empty` where there is nothing to compare with."""
    return part / whole if whole else empty
