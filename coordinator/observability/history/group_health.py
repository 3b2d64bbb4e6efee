"""Whether a group keeps up, by Burrow's rules: no threshold of lag, only what its last commits say.

The rules and their order are those of Burrow's evaluator (linkedin/Burrow, core/internal/evaluator/caching.go); the
sentence that says why is ours.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

ALLOWED_LAG = 0
"""Burrow's `allowed-lag`: what counts as no lag."""


class HealthStatus(IntEnum):
    """Burrow's codes, the worse the higher. A partition is never NOTFOUND or ERR, a group never above ERR.

    IDLE is ours: no member is in the group, and nobody commits for it. It is neither well nor unwell.
    """

    IDLE = -1
    NOTFOUND = 0
    OK = 1
    WARN = 2
    ERR = 3
    STOP = 4
    STALL = 5
    REWIND = 6


REASONS = {
    HealthStatus.IDLE: "no member is in the group",
    HealthStatus.NOTFOUND: "nothing has been seen of the group",
    HealthStatus.OK: "it keeps up",
    HealthStatus.WARN: "falls behind (WARN): it commits, but its lag of {lag} never shrank over its last commits",
    HealthStatus.STOP: "has stopped (STOP): {lag} wait, and it has not committed for longer than its last commits took",
    HealthStatus.STALL: "is stuck (STALL): {lag} wait, and it commits the same offset over and over",
    HealthStatus.REWIND: "went back (REWIND): its committed offset has not returned to where it was; {lag} wait",
}
"""Of a partition that is not well, what follows its name; Burrow's word in parentheses."""


class CommitWindows(NamedTuple):
    """The last commits of partitions, a row each, oldest first and filled from the right.

    `offsets`, `times_ms` and `lags` have the last `filled` columns set, `ends`, the log's ends at the last looks, the
    last `looks`. All of shape (partitions, intervals), the counts of shape (partitions,).
    """

    offsets: Ints
    times_ms: Ints
    lags: Ints
    filled: Ints
    ends: Ints
    looks: Ints


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    topic: str
    partition: int
    status: HealthStatus
    lag: int
    complete: float
    """How much of the window of commits is filled, 0 to 1."""

    @property
    def reason(self) -> str:
        records = f"{self.lag:,} record{'' if self.lag == 1 else 's'}"
        return REASONS[self.status].format(lag=records)


@dataclass(frozen=True, slots=True)
class GroupHealth:
    """Of a whole group: the status of its worst partition, ERR where that is worse. `troubled` has what is not OK,
    the worst and most lagging first, up to a bound. IDLE of a group that nobody reads for; nothing of it is troubled.
    """

    status: HealthStatus
    total_lag: int
    max_lag: PartitionHealth | None
    complete: float
    """The fraction of partitions whose window is filled."""
    partitions: int
    troubled: tuple[PartitionHealth, ...]
    not_ok: int
    idle_since_ms: int | None = None
    """When an IDLE group was last seen with members, or committed; None: it is not IDLE."""
    growth: int | None = None
    """By how many records the lag of an IDLE group grew over the last samples; None: not known yet."""

    @property
    def reason(self) -> str:
        """One sentence: the worst partition, what is wrong with it, how many others are not well.

        >>> GroupHealth(HealthStatus.OK, 0, None, 1.0, 2, (), 0).reason
        'it keeps up'
        """
        if not self.troubled:
            return REASONS[self.status]
        worst = self.troubled[0]
        more = self.not_ok - 1
        others = f"; {more} more partition{' is' if more == 1 else 's are'} not well" if more > 0 else ""
        return f"{worst.topic}-{worst.partition} {worst.reason}{others}"


def judge_health(seen: CommitWindows, lag: Ints, now_ms: int, allowed_lag: int = ALLOWED_LAG) -> NDArray[np.int64]:
    """The status of each partition, which has `lag` now. Of one without commits nothing can be said: OK."""
    offsets, times, lags = seen.offsets, seen.times_ms, seen.lags
    width = offsets.shape[1]
    there = np.arange(width) >= width - seen.filled[:, None]
    pairs = there[:, :-1]
    # Nothing was committed for longer than lies between the first and the last commit that are known.
    first = np.take_along_axis(times, np.minimum(width - seen.filled, width - 1)[:, None], 1)[:, 0]
    silent = now_ms - times[:, -1] > times[:, -1] - first
    looked = np.arange(width) >= width - seen.looks[:, None]
    caught_up = (looked & (seen.ends <= offsets[:, -1:])).any(1)
    never_none = ~(there & (lags <= allowed_lag)).any(1)
    stuck = ((offsets == offsets[:, -1:]) | ~there).all(1)
    growing = ((lags[:, 1:] >= lags[:, :-1]) | ~pairs).all(1)
    return np.select(
        [
            (lag <= allowed_lag) | (seen.filled == 0),
            silent & ~caught_up,
            _is_rewound(offsets, pairs),
            never_none & stuck,
            never_none & growing,
        ],
        [
            int(HealthStatus.OK),
            int(HealthStatus.STOP),
            int(HealthStatus.REWIND),
            int(HealthStatus.STALL),
            int(HealthStatus.WARN),
        ],
        int(HealthStatus.OK),
    )


def _is_rewound(offsets: Ints, pairs: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """It went back, and has not been again where it was before the first time it did."""
    back = pairs & (offsets[:, 1:] < offsets[:, :-1])
    at = back.argmax(1)
    before = np.take_along_axis(offsets, at[:, None], 1)
    since = np.arange(offsets.shape[1]) > at[:, None]
    found: NDArray[np.bool_] = back.any(1) & ~(since & (offsets >= before)).any(1)
    return found
