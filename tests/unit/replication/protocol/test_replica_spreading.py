"""Replicas spread over all nodes, as little moved as that takes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.coordinator.replication.protocol.replica_placement import NodeRack, spread_replicas

ONE_TO_THREE = [NodeRack(1), NodeRack(2), NodeRack(3)]


def units(topic: str, *replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(topic, number): each for number, each in enumerate(replicas)}


def test_what_is_even_already_stays() -> None:
    assert spread_replicas(units("t", (1, 2), (2, 3), (3, 1)), ONE_TO_THREE) == {}


def test_a_node_that_had_everything_gives_two_thirds_of_the_leads_away_and_keeps_a_copy_of_all() -> None:
    """CL-A10: one node becomes many."""
    planned = spread_replicas(units("t", *[(1,)] * 6), ONE_TO_THREE, factor=3)
    assert {tuple(sorted(each)) for each in planned.values()} == {(1, 2, 3)}
    assert Counter(each[0] for each in planned.values()) == {1: 2, 2: 2, 3: 2}


def test_a_fourth_node_gets_its_share_and_nothing_else_moves() -> None:
    before = units("t", (1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 2, 3))
    planned = spread_replicas(before, [*ONE_TO_THREE, NodeRack(4)])
    moved = sum(len(set(each) - set(before[unit])) for unit, each in planned.items())
    assert moved == 3, "of twelve replicas a quarter"


def test_who_is_left_out_has_nothing_afterwards() -> None:
    planned = spread_replicas(units("t", (1, 2), (2, 3), (3, 1)), [NodeRack(1), NodeRack(2), NodeRack(4)])
    assert planned.keys() == {TopicPartition("t", 1), TopicPartition("t", 2)}
    assert all(3 not in each for each in planned.values())


def test_replicas_go_to_as_many_racks_as_there_are() -> None:
    nodes = [NodeRack(1, "a"), NodeRack(2, "a"), NodeRack(3, "b"), NodeRack(4, "b")]
    rack = {each.node: each.rack for each in nodes}
    for before, factor in ((units("t", *[(1, 2)] * 4), 2), (units("u", *[(1,)] * 4), 2), (units("v", (1, 2, 3)), 2)):
        after = {**before, **spread_replicas(before, nodes, factor=factor)}
        assert all(len({rack[node] for node in each}) == len(each) == 2 for each in after.values())


def test_more_replicas_than_nodes_are_refused_with_both_figures() -> None:
    with pytest.raises(CoordinatorError, match=r"replication factor 4.*the 3 nodes") as refused:
        spread_replicas(units("t", (1,)), ONE_TO_THREE, factor=4)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@given(
    st.integers(1, 6).flatmap(
        lambda count: st.lists(
            st.tuples(
                st.sampled_from("ab"),
                st.lists(st.integers(0, count - 1), min_size=1, max_size=3, unique=True).map(tuple),
            ),
            max_size=12,
        ).map(lambda drawn: (count, drawn))
    )
)
def test_afterwards_no_node_has_two_more_than_another_and_a_second_time_changes_nothing(
    drawn: tuple[int, list[tuple[str, tuple[int, ...]]]],
) -> None:
    count, rows = drawn
    nodes = [NodeRack(node) for node in range(count)]
    before = {TopicPartition(topic, number): replicas for number, (topic, replicas) in enumerate(rows)}
    after = {**before, **spread_replicas(before, nodes)}
    assert all(len(after[unit]) == len(before[unit]) == len(set(after[unit])) for unit in before)
    for topics in ("a", "b", "ab"):
        load = Counter(dict.fromkeys(range(count), 0))
        load.update(node for unit, each in after.items() if unit.topic in topics for node in each)
        assert max(load.values()) - min(load.values()) < 2
    assert spread_replicas(after, nodes) == {}


def test_no_replica_is_given_up_unasked() -> None:
    """While a node is down for a moment: all of the cluster would have had a copy less, and nothing left to lose."""
    with pytest.raises(CoordinatorError, match="t-1 has 3 replicas, and 2 nodes are up that would take them"):
        spread_replicas(units("t", (1,), (1, 2, 3)), [NodeRack(1), NodeRack(2)])
    assert spread_replicas(units("t", (1, 2, 3)), [NodeRack(1), NodeRack(2)], factor=2)
