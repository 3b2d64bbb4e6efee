"""What counts as a partition of a group."""

from muster.coordinator.observability.views.formatting import Names
from muster.coordinator.rpc.v1.coordinator_service_pb2 import DescribedGroup, OffsetFetchResponse
from muster.coordinator.web.pages.group_view import SampledFigures, find_group_problems, make_group_view
from muster.coordinator.web.pages.page_data import GroupPageData, PartitionPosition, positions_of


def owners(facts: GroupPageData) -> dict[tuple[str, int], str]:
    return {(each.topic, each.partition): each.owner for each in facts.holdings()}


def test_what_nobody_owns_is_unowned_only_where_somebody_wants_it() -> None:
    positions = {place: PartitionPosition(0, 0, 5) for place in (("now", 0), ("now", 1), ("once", 0))}
    facts = GroupPageData(
        DescribedGroup(), "classic", [], shares={"a": [("now", 0)]}, positions=positions, wanted={"a": {"now"}}
    )
    assert owners(facts) == {("now", 0): "a", ("now", 1): ""}


def test_a_group_without_members_shows_what_it_has_read() -> None:
    facts = GroupPageData(DescribedGroup(), "classic", [], positions={("once", 0): PartitionPosition(3, 0, 5)})
    assert owners(facts) == {("once", 0): ""}
    assert facts.lag == 2


def test_of_a_partition_without_a_position_everything_there_is_waits() -> None:
    assert PartitionPosition(None, 2, 9).lag == 7
    assert PartitionPosition(11, 2, 9).lag == 0, "a log that was cut has no negative lag"


def test_when_a_position_was_committed_is_known_to_the_doctor_s_rules_on_the_page() -> None:
    """Without it nothing on a page was ever old: a group that stood still for hours had no finding."""
    hour_ms = 3_600_000
    answer = OffsetFetchResponse()
    row = answer.topics.add(name="t").partitions.add(partition_index=0, committed_offset=3)
    row.commit_timestamp_ms, row.log_start_offset, row.log_end_offset = hour_ms, 0, 9
    group = DescribedGroup(group_id="g", group_state="Stable")
    group.members.add(member_id="a", client_id="a")
    facts = GroupPageData(
        group, "classic", [], shares={"a": [("t", 0)]}, positions=positions_of([answer]), wanted={"a": {"t"}}
    )
    found = find_group_problems(facts, Names(["a"]), 3 * hour_ms)
    assert [finding.what for finding in found] == ["the group makes no progress: it is 6 records behind in 1 partition"]
    (member,) = make_group_view(facts, SampledFigures(), 3 * hour_ms).members
    assert member.committed_ms == hour_ms
