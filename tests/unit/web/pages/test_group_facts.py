"""What counts as a partition of a group."""

from dataclasses import replace

from muster.assignors.data.values import readable_lag
from muster.coordinator.observability.read_model.group_mapper import map_lags
from muster.coordinator.observability.read_model.groups import (
    GroupDescription,
    MemberDescription,
    PartitionLag,
    TopicPartition,
)
from muster.coordinator.observability.views.formatting import Names
from muster.coordinator.rpc.v1.coordinator_service_pb2 import OffsetFetchResponse
from muster.coordinator.web.pages.group_view import SampledFigures, find_group_problems, make_group_view
from muster.coordinator.web.pages.page_data import GroupPageData

GROUP = GroupDescription("g", "Stable", "consumer", "range", 1, "", "here:1", ())
MEMBER = MemberDescription("a", None, "a", "", ("now",), (TopicPartition("now", 0),))


def position(topic: str, partition: int, committed: int | None, log_start: int, log_end: int) -> PartitionLag:
    lag = readable_lag(committed, log_start, log_end)
    return PartitionLag(TopicPartition(topic, partition), committed, log_start, log_end, lag)


def owners(facts: GroupPageData) -> dict[tuple[str, int], str]:
    return {(each.topic, each.partition): each.owner for each in facts.holdings()}


def test_what_nobody_owns_is_unowned_only_where_somebody_wants_it() -> None:
    lags = [position(*place, 0, 0, 5) for place in (("now", 0), ("now", 1), ("once", 0))]
    positions = {lag.partition: lag for lag in lags}
    facts = GroupPageData(replace(GROUP, members=(MEMBER,)), "classic", [], positions=positions)
    assert owners(facts) == {("now", 0): "a", ("now", 1): ""}


def test_a_group_without_members_shows_what_it_has_read() -> None:
    lag = position("once", 0, 3, 0, 5)
    facts = GroupPageData(GROUP, "classic", [], positions={lag.partition: lag})
    assert owners(facts) == {("once", 0): ""}
    assert facts.lag == 2


def test_of_a_partition_without_a_position_everything_there_is_waits() -> None:
    assert readable_lag(None, 2, 9) == 7
    assert readable_lag(11, 2, 9) == 0, "a log that was cut has no negative lag"


def test_when_a_position_was_committed_is_known_to_the_doctor_s_rules_on_the_page() -> None:
    """Without it nothing on a page was ever old: a group that stood still for hours had no finding."""
    hour_ms = 3_600_000
    answer = OffsetFetchResponse()
    row = answer.topics.add(name="t").partitions.add(partition_index=0, committed_offset=3)
    row.commit_timestamp_ms, row.log_start_offset, row.log_end_offset = hour_ms, 0, 9
    member = replace(MEMBER, topics=("t",), assignment=(TopicPartition("t", 0),))
    group = replace(GROUP, members=(member,))
    facts = GroupPageData(group, "classic", [], positions=map_lags([answer], group.owners()))
    found = find_group_problems(facts, Names(["a"]), 3 * hour_ms)
    assert [finding.what for finding in found] == ["the group makes no progress: it is 6 records behind in 1 partition"]
    (member,) = make_group_view(facts, SampledFigures(), 3 * hour_ms).members
    assert member.committed_ms == hour_ms
