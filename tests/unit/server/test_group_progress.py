"""What DescribeGroups tells of how a group gets on, and the words that the command line makes of it."""

import asyncio

import pytest

from muster.coordinator.observability.history.group_history import GroupHistory, Sample
from muster.coordinator.observability.read_model.group_mapper import map_progress
from muster.coordinator.observability.read_model.groups import GroupProgress
from muster.coordinator.observability.views.groups import progress_words
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.services.group_coordinator import add_progress, build_progress, progress_changed

PLACE = ("t", 0)


def looked(*looks: tuple[int, int]) -> GroupHistory:
    """A history of `g`, looked at every 10 s: (log end, committed)."""
    history = GroupHistory(10_000)
    for at, (end, committed) in enumerate(looks, 1):
        history.record_sample("g", Sample([PLACE], [end], [committed], [at * 10_000]), at * 10_000)
        history.settle("g", at * 10_000)
    return history


def test_a_group_that_was_seen_twice_has_a_trend() -> None:
    found = build_progress(looked((100, 0), (200, 140)), "g")
    assert found is not None
    assert (found.sampled_ms, found.lag, found.trend, found.eta_seconds) == (20_000, 60, -4.0, 15.0)
    assert (found.health, found.reason) == ("OK", "it keeps up")


def test_what_is_not_known_is_absent() -> None:
    once = build_progress(looked((100, 0)), "g")
    assert once is not None
    assert not once.HasField("trend")
    assert not once.HasField("eta_seconds")
    assert build_progress(looked((100, 0)), "other") is None


def test_a_group_that_falls_behind_has_no_end_and_is_not_well() -> None:
    found = build_progress(looked((100, 0), (200, 10), (300, 20)), "g")
    assert found is not None
    assert not found.HasField("eta_seconds")
    assert (found.health, found.reason[:25]) == ("WARN", "t-0 falls behind (WARN): ")


def test_only_groups_that_were_seen_are_told_of() -> None:
    groups = [pb.DescribedGroup(group_id="g"), pb.DescribedGroup(group_id="other")]
    asyncio.run(add_progress(groups, looked((5, 0))))
    assert [map_progress(group) is None for group in groups] == [False, True]


def test_another_time_of_the_look_is_no_news() -> None:
    def of(*looks: tuple[int, int]) -> pb.GroupProgress:
        found = build_progress(looked(*looks), "g")
        assert found is not None
        return found

    first = of((100, 0))
    later = pb.GroupProgress()
    later.CopyFrom(first)
    later.sampled_ms += 10_000
    assert not progress_changed(first, later)
    assert progress_changed(first, of((101, 0)))
    assert progress_changed(pb.GroupProgress(), first)
    assert progress_changed(first, None)
    assert not progress_changed(pb.GroupProgress(), None)


@pytest.mark.parametrize(
    ("lag", "trend", "eta_s", "said"),
    [
        (0, None, 0.0, "everything is read"),
        (1, None, None, "1 record behind; how fast that changes is not known yet"),
        (60, -4.0, 15.0, "60 records behind, 4.0 fewer each second over the last 100 s: caught up in about 15.00 s"),
        (60, 0.0, None, "60 records behind, unchanged over the last 100 s"),
        (
            60,
            2.5,
            None,
            "60 records behind, 2.5 more each second over the last 100 s: it does not catch up at this pace",
        ),
    ],
)
def test_words(lag: int, trend: float | None, eta_s: float | None, said: str) -> None:
    assert progress_words(GroupProgress(1, lag, trend, eta_s, "OK", "", trend_window_ms=100_000)) == said
