"""What counts as a partition of a group."""

from dataclasses import replace

import pytest

from muster.assignors.data.values import readable_lag
from muster.coordinator.observability.read_model.group_mapper import map_lags
from muster.coordinator.observability.read_model.groups import (
    GroupDescription,
    GroupListing,
    MemberDescription,
    PartitionLag,
    TopicPartition,
)
from muster.coordinator.observability.views.member_names import Names
from muster.coordinator.rpc.v1.coordinator_service_pb2 import OffsetFetchResponse
from muster.coordinator.web.pages.group_view import (
    FindingView,
    SampledFigures,
    agreed_health,
    find_group_problems,
    make_group_view,
)
from muster.coordinator.web.pages.listing_view import GroupListQuery, select_groups
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
    found = find_group_problems(facts, Names.of_ids(["a"]), 3 * hour_ms)
    assert [finding.what for finding in found] == ["the group makes no progress: it is 6 records behind in 1 partition"]
    (member,) = make_group_view(facts, SampledFigures(), 3 * hour_ms).members
    assert member.committed_ms == hour_ms


@pytest.mark.parametrize(
    ("health", "kind", "agreed"),
    [
        ("OK", "bad", ("ERR", "a thing is wrong")),
        ("OK", "warn", ("WARN", "a thing is wrong")),
        ("WARN", "bad", ("ERR", "a thing is wrong")),
        ("WARN", "warn", ("WARN", "sampled")),
        ("ERR", "warn", ("ERR", "sampled")),
        ("OK", "change", ("OK", "sampled")),
        ("IDLE", "warn", ("IDLE", "sampled")),
    ],
)
def test_a_group_never_says_ok_and_error_on_one_page(health: str, kind: str, agreed: tuple[str, str]) -> None:
    finding = FindingView("error", kind, "a thing is wrong", "", "", ())
    assert agreed_health(SampledFigures(health=health, reason="sampled"), [finding]) == agreed
    assert agreed_health(SampledFigures(health=health, reason="sampled"), []) == (health, "sampled")


def test_idle_groups_stand_behind_live_ones_and_can_be_left_out() -> None:
    """290 idle groups filled three pages before the first live one."""
    groups = [
        GroupListing(f"g{n}", state, "consumer", "Classic") for n, state in enumerate(("Empty", "Stable", "Dead"))
    ]
    lags = {"g0": 37_924, "g1": 1, "g2": 5}

    def shown(**wanted: object) -> list[str]:
        return [each.group_id for each in select_groups(groups, lags, {}, {}, GroupListQuery(**wanted))]  # type: ignore[arg-type]

    assert [shown(sort=sort) for sort in ("trouble", "lag")] == [["g1", "g0", "g2"]] * 2
    assert shown(with_members=True) == ["g1"]


def test_a_group_without_members_is_idle_on_its_page() -> None:
    lag = position("once", 0, 3, 0, 5)
    facts = GroupPageData(GROUP, "classic", [], positions={lag.partition: lag})
    view = make_group_view(facts, SampledFigures(health="IDLE", reason="idle since 14:02 UTC, 2 behind"), 1_000)
    assert (view.health_class, view.reason) == ("idle", "Idle since 14:02 UTC, 2 behind.")
    assert view.headline == "No member is in this group. It has positions in 1 partition."
    assert view.map.unowned is not None
    assert (view.map.idle, view.map.unowned.name) == (True, "no member")
    assert 'class="cell unowned"' not in str(view.map.unowned.topics[0].picture), "it is no trouble"


def test_a_page_says_one_lag_of_an_idle_group() -> None:
    lag = position("once", 0, 3, 0, 5)
    facts = GroupPageData(GROUP, "classic", [], positions={lag.partition: lag})
    view = make_group_view(facts, SampledFigures(health="IDLE", reason="of before", idle=(0, 1)), 60_000)
    assert view.reason == "Idle since 00:00 UTC, 2 behind, growing."
