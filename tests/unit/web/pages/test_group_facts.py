"""What counts as a partition of a group."""

from muster.coordinator.rpc.v1.coordinator_service_pb2 import DescribedGroup
from muster.coordinator.web.pages.asking import GroupFacts, Position


def owners(facts: GroupFacts) -> dict[tuple[str, int], str]:
    return {(each.topic, each.partition): each.owner for each in facts.holdings()}


def test_what_nobody_owns_is_unowned_only_where_somebody_wants_it() -> None:
    positions = {place: Position(0, 0, 5) for place in (("now", 0), ("now", 1), ("once", 0))}
    facts = GroupFacts(
        DescribedGroup(), "classic", [], shares={"a": [("now", 0)]}, positions=positions, wanted={"a": {"now"}}
    )
    assert owners(facts) == {("now", 0): "a", ("now", 1): ""}


def test_a_group_without_members_shows_what_it_has_read() -> None:
    facts = GroupFacts(DescribedGroup(), "classic", [], positions={("once", 0): Position(3, 0, 5)})
    assert owners(facts) == {("once", 0): ""}
    assert facts.lag == 2


def test_of_a_partition_without_a_position_everything_there_is_waits() -> None:
    assert Position(None, 2, 9).lag == 7
    assert Position(11, 2, 9).lag == 0, "a log that was cut has no negative lag"
