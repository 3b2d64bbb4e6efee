"""The rules over arrays say of any commits what Burrow's evaluator says of one partition after the other."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.observability.history.group_health import CommitWindows, HealthStatus, judge_health

WIDTH = 10
Commit = tuple[int, int, int]
"""offset, time, lag"""


def as_burrow(commits: list[Commit], ends: list[int], lag: int, now_ms: int, allowed: int) -> HealthStatus:
    """calculatePartitionStatus of core/internal/evaluator/caching.go, in our words, one commit after the other."""
    if not commits or lag <= allowed:
        return HealthStatus.OK
    offsets = [offset for offset, _, _ in commits]
    lags = [each for _, _, each in commits]
    first_ms, last_ms = commits[0][1], commits[-1][1]
    if now_ms - last_ms > last_ms - first_ms and not any(end <= offsets[-1] for end in ends):
        return HealthStatus.STOP
    back = next((at for at in range(1, len(offsets)) if offsets[at] < offsets[at - 1]), None)
    if back is not None and not any(offset >= offsets[back - 1] for offset in offsets[back:]):
        return HealthStatus.REWIND
    if any(each <= allowed for each in lags):
        return HealthStatus.OK
    if len(set(offsets)) == 1:
        return HealthStatus.STALL
    return HealthStatus.WARN if all(later >= earlier for earlier, later in pairwise(lags)) else HealthStatus.OK


small = st.integers(0, 6)
partitions = st.tuples(
    st.lists(st.tuples(small, small, small), max_size=WIDTH), st.lists(small, max_size=WIDTH), st.integers(0, 5)
)


@given(st.lists(partitions, min_size=1, max_size=6), st.integers(0, 15), st.integers(0, 2))
def test_every_partition_is_judged_as_by_burrow(
    drawn: list[tuple[list[Commit], list[int], int]], now_ms: int, allowed: int
) -> None:
    sorted_by_time = [(sorted(commits, key=lambda each: each[1]), ends, lag) for commits, ends, lag in drawn]

    def column(values: list[list[int]]) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]":
        # What is not filled holds what must not count.
        return np.array([[7] * (WIDTH - len(row)) + row for row in values], np.int64)

    seen = CommitWindows(
        column([[offset for offset, _, _ in commits] for commits, _, _ in sorted_by_time]),
        column([[time_ms for _, time_ms, _ in commits] for commits, _, _ in sorted_by_time]),
        column([[lag for _, _, lag in commits] for commits, _, _ in sorted_by_time]),
        np.array([len(commits) for commits, _, _ in sorted_by_time]),
        column([ends for _, ends, _ in sorted_by_time]),
        np.array([len(ends) for _, ends, _ in sorted_by_time]),
    )
    lags = np.array([lag for _, _, lag in sorted_by_time])
    expected = [as_burrow(commits, ends, lag, now_ms, allowed) for commits, ends, lag in sorted_by_time]
    assert [HealthStatus(each) for each in judge_health(seen, lags, now_ms, allowed).tolist()] == expected
