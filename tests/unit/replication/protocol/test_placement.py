"""CL-A2: where the replicas of a topic go."""

from collections import Counter

import pytest

from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.replication.protocol.replica_placement import NodeRack, check_assignment, place_replicas

FIVE = [NodeRack(each) for each in range(5)]


def test_the_example_of_the_rule_a2() -> None:
    placed = place_replicas(FIVE, 7, 3)
    assert [placed[each] for each in (0, 1, 4, 5, 6)] == [(0, 1, 2), (1, 2, 3), (4, 0, 1), (0, 2, 3), (1, 3, 4)]


def test_more_partitions_go_on_where_the_first_ended_a2() -> None:
    assert place_replicas(FIVE, 12, 3)[7:] == place_replicas(FIVE, 5, 3, first=7, shift=1)


@pytest.mark.parametrize("factor", [1, 2, 3, 5])
def test_each_node_leads_and_holds_as_many_as_the_others_a2(factor: int) -> None:
    placed = place_replicas(FIVE, 20, factor, start=3, shift=2)
    assert set(Counter(each[0] for each in placed).values()) == {4}
    assert set(Counter(node for each in placed for node in each).values()) == {4 * factor}
    assert all(len(set(each)) == factor for each in placed)


@pytest.mark.parametrize("racks", ["aabb", "abab", "aaab", "aabc", "abcd"])
@pytest.mark.parametrize("factor", [2, 3, 4])
def test_replicas_go_to_as_many_racks_as_there_are_a2(racks: str, factor: int) -> None:
    nodes = [NodeRack(number, rack) for number, rack in enumerate(racks)]
    for each in place_replicas(nodes, 40, factor, start=1):
        assert len({racks[node] for node in each}) == min(factor, len(set(racks)))
        assert len(set(each)) == factor


@pytest.mark.parametrize("factor", [0, 6])
def test_too_few_nodes_a2(factor: int) -> None:
    with pytest.raises(CoordinatorError) as refused:
        place_replicas(FIVE, 1, factor)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ({0: [1, 1]}, "twice"),
        ({0: [1, 9]}, "node 9 is not there"),
        ({0: [1, 2], 1: [3]}, "as many"),
        ({0: []}, "at least"),
        ({0: [1], 2: [2]}, "gap"),
    ],
)
def test_an_assignment_that_cannot_be_a2(assignment: dict[int, list[int]], said: str) -> None:
    with pytest.raises(CoordinatorError, match=said) as refused:
        check_assignment(assignment, range(5))
    assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_an_assignment_that_can_be_a2() -> None:
    check_assignment({3: [1, 2], 4: [0, 4]}, range(5), first=3)
