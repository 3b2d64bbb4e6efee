"""Decisions over time: what is stuck, what is held, what is measured, how far a figure may go at once."""

import numpy as np

from muster.coordinator.observability.scaler.replica_rules import (
    CALM_MS,
    HELD_AT_MOST_MS,
    NOTHING,
    STEP_MS,
    STUCK_MS,
    GroupSample,
    ScalerMemory,
    decide_replicas,
    is_active,
)
from muster.coordinator.observability.scaler.trigger_metadata import ScalerTrigger

POLL_MS = 15_000


class Loop:
    """KEDA asks every 15 s."""

    def __init__(self, trigger: ScalerTrigger) -> None:
        self.trigger = trigger
        self.memory = ScalerMemory()
        self.now_ms = 0

    def ask(
        self,
        committed: list[int],
        ends: list[int],
        *,
        members: int = 1,
        rebalancing: bool = False,
        deploying: bool = False,
        produced: float | None = None,
        starts: list[int] | None = None,
        after_ms: int = POLL_MS,
    ) -> float:
        """Replicas, as the figure over the threshold says."""
        self.now_ms += after_ms
        self.seen = GroupSample(
            ("t",) * len(ends),
            np.arange(len(ends)),
            np.array(committed),
            np.array([max(offset, start) for offset, start in zip(committed, starts or [0] * len(ends), strict=True)]),
            np.array(ends),
            members,
            rebalancing,
            produced,
            deploying,
        )
        return decide_replicas(self.trigger, self.seen, self.memory, self.now_ms).value / self.trigger.lag_threshold

    @property
    def active(self) -> bool:
        return is_active(self.trigger, self.seen, self.memory, self.now_ms)


def test_where_nothing_is_committed_what_is_no_longer_in_the_log_does_not_count() -> None:
    loop = Loop(ScalerTrigger("g", lag_threshold=1, earliest=True))
    assert loop.ask([NOTHING, 5], [110, 5], starts=[109, 0]) == 1


def test_what_retention_removed_holds_no_replica() -> None:
    """Two partitions, 10,000 records, of which retention left five: KEDA keeps two replicas for ever."""
    loop = Loop(ScalerTrigger("g", "t", lag_threshold=1_000))
    assert loop.ask([5, 4_990], [5_000, 5_000], starts=[5_000, 4_995]) == 0.005
    loop = Loop(ScalerTrigger("g", "t", lag_threshold=1, limit_to_partitions_with_lag=True))
    assert loop.ask([5, 4_990], [5_000, 5_000], starts=[5_000, 4_995]) == 1


def test_a_partition_that_is_empty_for_good_is_known_to_be_empty() -> None:
    """One record in 50 partitions, read and committed: the others were never written to, or have expired."""
    committed, ends, starts = [1, *[NOTHING] * 49], [1, *[0] * 24, *[50] * 25], [0] * 25 + [50] * 25
    for more in ({"exclude_persistent_lag": True}, {"limit_to_partitions_with_lag": True}, {"earliest": True}):
        loop = Loop(ScalerTrigger("g", "t", lag_threshold=1, **more))
        assert loop.ask(committed, ends, starts=starts) == 0, more
    # As KEDA: consumers that begin at the end are to be there before the first record comes.
    loop = Loop(ScalerTrigger("g", "t", lag_threshold=1))
    assert loop.ask(committed, ends, starts=starts) == 49
    assert loop.active


def test_only_partitions_with_something_to_read_limit_the_figure() -> None:
    loop = Loop(ScalerTrigger("g", "t", lag_threshold=5, limit_to_partitions_with_lag=True))
    lags, empty = [30] * 3 + [0] * 7, [NOTHING] * 10
    assert loop.ask([50 - lag for lag in lags] + empty, [50] * 20, starts=[0] * 10 + [50] * 10) == 3


def test_a_partition_that_nobody_commits_is_stuck_as_well() -> None:
    for earliest, replicas in ((True, 2), (False, 1)):
        loop = Loop(ScalerTrigger("g", "t", lag_threshold=1, exclude_persistent_lag=True, earliest=earliest))
        assert loop.ask([1, NOTHING], [1, 100]) == replicas
        assert loop.ask([1, NOTHING], [1, 100], after_ms=STUCK_MS) == 0
        assert loop.active


def test_a_lag_is_never_below_none() -> None:
    assert Loop(ScalerTrigger("g", lag_threshold=1)).ask([50, 0], [10, 2]) == 2


def test_what_is_stuck_is_left_out_but_keeps_the_group_active() -> None:
    loop = Loop(ScalerTrigger("g", "t", lag_threshold=10, exclude_persistent_lag=True))
    assert loop.ask([5, 0], [105, 20]) == 2
    assert loop.ask([5, 10], [105, 40], after_ms=STUCK_MS - 1) == 2
    assert loop.ask([5, 20], [105, 60], after_ms=1) == 2  # 40 of the other; 100 are stuck
    assert loop.ask([5, 60], [105, 60], after_ms=1) == 0
    assert loop.active
    assert loop.ask([6, 60], [105, 60], after_ms=1) == 2


def test_asking_often_makes_nothing_stuck() -> None:
    loop = Loop(ScalerTrigger("g", "t", lag_threshold=10, exclude_persistent_lag=True))
    assert [loop.ask([5, 0], [105, 0], after_ms=1_000) for _ in range(10)] == [2] * 10


def test_the_figure_of_before_counts_while_the_group_rebalances() -> None:
    loop = Loop(ScalerTrigger("g", lag_threshold=10))
    assert loop.ask([0, 0, 0], [10, 10, 0]) == 2
    assert loop.ask([0, 0, 0], [0, 0, 0], rebalancing=True) == 2
    assert loop.active
    assert loop.ask([0, 0, 0], [10, 10, 10], rebalancing=True) == 2
    assert loop.ask([0, 0, 0], [10, 10, 10]) == 3


def test_a_rebalance_that_never_ends_holds_nothing_for_good() -> None:
    loop = Loop(ScalerTrigger("g", lag_threshold=10))
    loop.ask([0], [10])
    assert loop.ask([0], [0], rebalancing=True) == 1
    assert loop.ask([0], [0], rebalancing=True, after_ms=HELD_AT_MOST_MS - 1) == 1
    assert loop.ask([0], [0], rebalancing=True, after_ms=1) == 0


def test_the_figure_of_before_counts_for_as_long_as_a_deploy_is_on() -> None:
    """Members come and go by somebody's hand then, and the coordinator ends it."""
    loop = Loop(ScalerTrigger("g", lag_threshold=10))
    assert loop.ask([0] * 5, [4] * 5) == 2
    assert loop.ask([0] * 5, [8] * 5, deploying=True) == 2
    assert loop.ask([0] * 5, [0] * 5, deploying=True, after_ms=HELD_AT_MOST_MS) == 2
    assert loop.active
    assert loop.ask([0] * 5, [8] * 5) == 4


def test_nothing_is_held_where_it_is_not_wanted_or_nothing_was_decided() -> None:
    loop = Loop(ScalerTrigger("g", lag_threshold=10, hold_during_rebalance=False))
    loop.ask([0], [10])
    assert loop.ask([0], [0], rebalancing=True) == 0
    assert Loop(ScalerTrigger("g", lag_threshold=10)).ask([0], [10], rebalancing=True) == 1


def test_a_step_a_minute() -> None:
    loop = Loop(ScalerTrigger("g", lag_threshold=10, max_step=2))
    many = ([0] * 20, [10] * 20)
    assert loop.ask(*many, members=3) == 5
    assert loop.ask(*many, members=5) == 5
    assert loop.ask(*many, members=5, after_ms=STEP_MS) == 7
    assert loop.ask([0] * 20, [0] * 20, members=7, after_ms=STEP_MS) == 5


class TestByRates:
    """Two members read 40 a second together; 100 a second are written, and 12 partitions are there."""

    def busy(self, **more: int) -> Loop:
        loop = Loop(ScalerTrigger("g", lag_threshold=10, drain_target_s=100, **more))
        for at in range(4):
            loop.ask([at * 600] + [0] * 11, [10_000 + at * 1_500] + [0] * 11, members=2, produced=100.0)
        return loop

    def test_before_anything_is_measured_those_that_are_there_stay(self) -> None:
        loop = Loop(ScalerTrigger("g", lag_threshold=10, drain_target_s=100))
        assert loop.ask([0] * 12, [500] * 12, members=2, produced=None) == 2
        assert loop.ask([0] * 12, [0] * 12, members=3, produced=5.0) == 3

    def test_with_nobody_there_the_lag_says_how_many(self) -> None:
        loop = Loop(ScalerTrigger("g", lag_threshold=10, drain_target_s=100))
        assert loop.ask([0] * 12, [5] * 12, members=0, produced=100.0) == 6

    def test_as_many_as_keep_up_and_are_through_in_time(self) -> None:
        loop = self.busy()
        assert loop.memory.capacity == 20.0
        # 100 a second, and 2,000 in 100 s: 120 a second of 20 each, with a tenth to spare.
        loop.memory.needs.clear()
        loop.memory.value = None
        assert loop.ask([20_000] + [0] * 11, [22_000] + [0] * 11, members=9, produced=100.0) == 7

    def test_down_only_to_a_fifth_above_the_most_that_was_needed_in_the_last_half_hour(self) -> None:
        loop = self.busy()
        place = [20_000] + [0] * 11
        assert loop.ask(place, place, members=12, produced=60.0) == 12
        assert loop.ask(place, place, members=12, produced=20.0, after_ms=CALM_MS) == 5  # 4, when 60 were written
        assert loop.ask(place, place, members=5, produced=20.0, after_ms=CALM_MS) == 2

    def test_members_that_wait_for_records_or_have_just_come_show_no_capacity(self) -> None:
        loop = self.busy()
        # Ten members that read ten a second, for that is all there is.
        for at in range(5):
            place = [20_000 + at * 150] + [0] * 11
            loop.ask(place, place, members=10, produced=10.0)
        assert loop.memory.capacity == 20.0
        loop.ask([30_000] + [0] * 11, [50_000] + [0] * 11, members=11, produced=10.0)
        assert loop.memory.capacity == 20.0

    def test_consumers_that_became_slower_are_noticed(self) -> None:
        loop = self.busy()
        for at in range(30):
            loop.ask([20_000 + at * 150] + [0] * 11, [50_000] + [0] * 11, members=2, produced=10.0)
        assert loop.memory.capacity is not None
        assert abs(loop.memory.capacity - 5.0) < 0.1

    def test_offsets_that_are_set_back_measure_nothing(self) -> None:
        loop = self.busy()
        loop.ask([0] * 12, [50_000] + [0] * 11, members=2, produced=10.0)
        assert loop.memory.capacity == 20.0

    def test_partitions_are_dealt_out_evenly_where_that_is_wanted(self) -> None:
        loop = self.busy()
        loop.trigger = ScalerTrigger("g", "t", lag_threshold=10, drain_target_s=100, ensure_even_distribution=True)
        loop.memory.needs.clear()
        assert loop.ask([20_000] + [0] * 11, [22_000] + [0] * 11, members=9, produced=100.0) == 12
