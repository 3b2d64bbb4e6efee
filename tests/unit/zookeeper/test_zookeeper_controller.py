"""Who leads a partition, and who is in sync, as brokers die and return."""

from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.zookeeper.controller import OFFLINE, next_partition_state
from muster.coordinator.zookeeper.layout import PartitionStateZnode

brokers = st.integers(1, 5)


def test_the_first_living_replica_leads_a_new_partition() -> None:
    assert next_partition_state((3, 1, 2), frozenset({1, 2}), None, 7) == PartitionStateZnode(1, (1, 2), 0, 7)


def test_a_leader_that_lives_keeps_its_epoch() -> None:
    old = PartitionStateZnode(2, (2, 1), 4, 1)
    assert next_partition_state((1, 2), frozenset({1, 2}), old, 9) == old


def test_one_in_sync_takes_over_and_the_dead_one_leaves_the_set() -> None:
    old = PartitionStateZnode(1, (1, 2, 3), 4, 1)
    assert next_partition_state((1, 2, 3), frozenset({2, 3}), old, 9) == PartitionStateZnode(2, (2, 3), 5, 9)


def test_a_replica_that_lives_but_is_not_in_sync_may_not_lead() -> None:
    old = PartitionStateZnode(1, (1,), 4, 1)
    assert next_partition_state((1, 2), frozenset({2}), old, 9) == PartitionStateZnode(OFFLINE, (1,), 5, 9)


def test_the_last_one_in_sync_is_waited_for() -> None:
    offline = PartitionStateZnode(OFFLINE, (1,), 5, 9)
    assert next_partition_state((1, 2), frozenset({2}), offline, 9) == offline
    assert next_partition_state((1, 2), frozenset({1, 2}), offline, 9) == PartitionStateZnode(1, (1,), 6, 9)


@given(st.lists(brokers, min_size=1, max_size=4, unique=True), st.lists(st.frozensets(brokers), max_size=8))
def test_through_any_deaths_and_returns(replicas: list[int], turns: list[frozenset[int]]) -> None:
    state = None
    for epoch, alive in enumerate(turns):
        before, state = state, next_partition_state(replicas, alive, state, epoch)
        assert state.isr
        assert set(state.isr) <= set(replicas)
        assert state.leader == OFFLINE or (state.leader in alive and state.leader in state.isr)
        assert (state.leader == OFFLINE) is not any(replica in alive for replica in state.isr)
        if before is not None:
            changed = (before.leader, before.isr) != (state.leader, state.isr)
            assert state.leader_epoch == before.leader_epoch + changed
        assert next_partition_state(replicas, alive, state, epoch + 1) == state
