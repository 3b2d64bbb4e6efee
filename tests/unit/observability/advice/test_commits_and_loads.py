"""Advice from positions over time: too many commits, members that commit nothing, and loads that are not even."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from muster.coordinator.observability.advice.load_replay import replay_loads
from muster.coordinator.observability.advice.model import Advice, read_record
from muster.coordinator.observability.advice.table import advise_group
from muster.coordinator.observability.doctor.model import ExaminedGroup
from muster.coordinator.observability.read_model.commit_history import (
    CommitHistory,
    CommitTraffic,
    CommitTrail,
    SeenPosition,
    count_commits,
)
from muster.coordinator.observability.read_model.groups import PartitionLag
from tests.support.doctor import MINUTE, NOW, at, described_as, entry, group, member, tp

HOUR = 60 * MINUTE


def moving(rate: float, commits_a_second: float = 0.2, *, until_ms: int = NOW, for_ms: int = HOUR) -> CommitTrail:
    """A position that moves by so many records a second."""
    begin_ms = until_ms - for_ms
    steps = range(0, for_ms + 1, for_ms // 6)
    return CommitTrail(
        tuple(
            SeenPosition(begin_ms + step, int(rate * step / 1000), 1 + int(commits_a_second * step / 1000))
            for step in steps
        )
    )


def history(rates: Mapping[int, float], commits_a_second: float = 0.2, **more: int) -> CommitHistory:
    trails = {tp(number): moving(rate, commits_a_second) for number, rate in rates.items()}
    records, from_ms, to_ms = count_commits(trails.values())
    traffic = CommitTraffic(records, from_ms, to_ms, "__consumer_offsets-12", **more)
    return CommitHistory(trails, traffic)


def advised(examined: ExaminedGroup, partitions: int = 4) -> list[Advice]:
    return list(advise_group(examined, {"t": partitions}, NOW).advice)


def kinds(examined: ExaminedGroup, partitions: int = 4) -> list[str]:
    return [each.kind for each in advised(examined, partitions)]


def at_rest(commits: CommitHistory, lags: Mapping[int, int] | None = None) -> ExaminedGroup:
    """Two members with two partitions each, since two hours."""
    positions = {tp(number): at(50, 50 + (lags or {}).get(number, 0)) for number in range(4)}
    ledger = (entry(1, ago_ms=2 * HOUR),)
    two = member("a", [0, 1]), member("b", [2, 3])
    return group(*two, positions=positions, ledger=ledger, commits=commits)


# Too many commits
# ----------------


def test_a_group_that_commits_each_record_is_told_what_less_would_save() -> None:
    commits = history(dict.fromkeys(range(4), 50.0), 50.0, own=90, partition_records=100, topic_records=3_000)
    (found,) = advised(at_rest(commits))
    assert found.kind == "frequent-commits"
    assert found.sentence == (
        "Commit less often: 200 positions a second are committed, each a record for the brokers to keep and copy. "
        "Every 5 s it would be 0.8 a second."
    )
    assert found.settings == ("enable.auto.commit=true", "auto.commit.interval.ms=5000")
    assert found.saves.share == pytest.approx(0.996, abs=0.001)
    assert "90% of all records in __consumer_offsets-12 are its own, 3.0% of all of the topic's" in found.proof
    assert "one commit for each 1.0 records that were read" in found.proof
    assert "4 partitions, each committed every 20 ms on average; by default it is every 5 s" in found.proof
    assert found.proof[0].startswith("600,000 records in 50 min to __consumer_offsets-12: 200 a second, 17,280,000 a")


def test_who_commits_each_five_seconds_is_well() -> None:
    assert kinds(at_rest(history(dict.fromkeys(range(4), 50.0), 0.2))) == []


def test_many_partitions_that_are_committed_as_by_default_are_well() -> None:
    """200 records a second, for 1,000 partitions."""
    commits = history(dict.fromkeys(range(1_000), 5.0), 0.2)
    assert commits.traffic is not None
    assert commits.traffic.rate == pytest.approx(200, rel=0.01)
    many = group(member("a", range(500)), member("b", range(500, 1_000)), commits=commits)
    assert kinds(many, 1_000) == []


def test_few_commits_are_well_however_often_each_record_is_committed() -> None:
    assert kinds(at_rest(history(dict.fromkeys(range(4), 1.0), 1.0))) == []


def test_who_has_not_committed_for_a_day_does_not_commit_too_often() -> None:
    commits = history(dict.fromkeys(range(4), 50.0), 50.0)
    later = advise_group(at_rest(commits), {"t": 4}, NOW + 25 * HOUR).advice
    assert "frequent-commits" not in [each.kind for each in later]


def test_a_node_that_has_just_begun_to_count_says_nothing() -> None:
    trails = {tp(number): moving(50.0, 50.0, for_ms=30_000) for number in range(4)}
    records, from_ms, to_ms = count_commits(trails.values())
    assert kinds(at_rest(CommitHistory(trails, CommitTraffic(records, from_ms, to_ms)))) == []


# Members that commit nothing
# ---------------------------


def without_commits(*silent: int) -> ExaminedGroup:
    positions = {tp(n): PartitionLag(tp(n), None, 0, 50, 50) if n in silent else at(49, 50) for n in range(4)}
    return group(
        member("a", [0]),
        member("b", [1]),
        member("c", [2, 3]),
        positions=positions,
        ledger=(entry(1, ago_ms=20 * MINUTE),),
    )


def test_a_member_that_commits_none_of_its_partitions_is_named() -> None:
    (found,) = advised(without_commits(0))
    assert found.kind == "silent-member"
    assert found.sentence.startswith("See why a at h commits nothing: of 1 partition no position is on record")
    assert found.saves.share == 0.25


def test_half_of_them_are_no_exception() -> None:
    assert kinds(without_commits(0, 1)) == []


def test_one_partition_without_a_position_is_not_yet_a_member_without() -> None:
    assert kinds(without_commits(2)) == []


def test_a_stuck_member_of_another_brokers_group_is_not_muster_to_remove() -> None:
    old = 20 * MINUTE
    positions = {tp(0): at(5, 50, old), tp(1): at(5, 50, old), tp(2): at(49, 50), tp(3): at(49, 50)}
    members = member("a", [0, 1]), member("b", [2]), member("c", [3])
    watched = described_as(group(*members, positions=positions), watched="the Kafka at b1:9092")
    (found,) = advised(watched)
    assert (found.kind, found.settings) == ("stuck-member", ())
    assert "Once the process of a has ended, its partitions go to the others" in found.how


# Loads
# -----

UNEVEN = {0: 90.0, 1: 60.0, 2: 5.0, 3: 5.0}


def test_a_skewed_group_is_told_what_plans_by_load_would_have_made_of_it() -> None:
    (found,) = advised(at_rest(history(UNEVEN), {0: 40_000, 1: 9_000}))
    assert found.kind == "skew"
    assert found.sentence == (
        "Plan by load: the heaviest member read 150 records a second, 1.9 times the mean; by lag-sticky it would have "
        "been 90, with 1 move."
    )
    assert found.settings == ("muster groups set g assignor=lag-sticky",)
    assert found.saves.share == pytest.approx(1 - 90 / 150, abs=0.001)
    assert "a: 2 partitions, 150.0 records a second, 90.0 of them of t-0" in found.proof
    assert [line.partition(":")[0] for line in found.proof[2:5]] == ["lag", "lag-sticky", "balance"]


def test_a_skewed_group_of_another_broker_may_be_taken_over() -> None:
    watched = described_as(at_rest(history(UNEVEN), {0: 40_000, 1: 9_000}), watched="the Kafka at b1:9092")
    (found,) = advised(watched)
    assert found.settings == ("muster engine adopt g", "muster groups set g assignor=lag-sticky")


def test_who_keeps_up_is_well_however_uneven_it_is() -> None:
    assert kinds(at_rest(history(UNEVEN), {0: 500})) == []


def test_where_nobody_knows_how_long_logs_are_it_is_said_so() -> None:
    unknown = {tp(number): PartitionLag(tp(number), 50, -1, -1, 0) for number in range(4)}
    (found,) = advised(replace(at_rest(history(UNEVEN)), positions=unknown))
    assert found.proof[-1].endswith("whether it keeps up is not known, for nobody knows here where logs end")


def test_a_partition_that_no_plan_can_share_is_named() -> None:
    (found,) = advised(at_rest(history({0: 300.0, 1: 1.0, 2: 1.0, 3: 1.0}), {0: 90_000}))
    assert found.kind == "hot-partition"
    assert found.sentence == (
        "Spread the keys of t-0: 99% of all records that the group reads are in it, and no assignor can share it "
        "among 2 members."
    )


def test_even_loads_are_well() -> None:
    assert kinds(at_rest(history(dict.fromkeys(range(4), 90.0)), {0: 90_000})) == []


def test_a_plan_is_judged_by_what_came_after_it() -> None:
    """The load moves to another member in the middle: what was learned before helps nobody."""
    first, second = (0, 1), (2, 3)
    turn = {number: 100.0 if number in first else 0.0 for number in range(4)}
    trails = {}
    for number, rate in turn.items():
        half = HOUR // 2
        middle = int(rate * half / 1000)
        end = middle + int((100.0 if number in second else 0.0) * half / 1000)
        trails[tp(number)] = CommitTrail(
            (SeenPosition(NOW - HOUR, 0, 1), SeenPosition(NOW - half, middle, 2), SeenPosition(NOW, end, 3))
        )
    examined = at_rest(CommitHistory(trails), {2: 90_000})
    replay = replay_loads(read_record(examined, {"t": 4}, NOW, 0))
    assert (replay.heaviest, replay.mean) == (200.0, 100.0)
    # What took one of the busy partitions from its member gave both that were busy later to the other one.
    assert (replay.plans["lag-sticky"].heaviest, replay.plans["lag-sticky"].moves) == (200.0, 1)
    assert replay.plans["balance"].moves == 1


def test_too_little_that_is_known_tells_nothing() -> None:
    assert kinds(at_rest(history({0: 150.0, 1: 150.0, 2: 1.0}), {0: 50_000, 1: 40_000})) == ["lag-aware"]
