"""Replays and scores: worked out by hand where they can be, equal under any hash seed where they cannot."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from muster.assignors.api import Assignor, AssignorError, Plan, RebalanceProtocol, Snapshot
from muster.spark.assignor_deadline import run_in_time
from muster.spark.pipelines.backtest import (
    Backtest,
    BacktestCandidate,
    BacktestRow,
    HandoverModel,
    ReplayScore,
    are_same_rows,
    parse_candidates,
    rank_candidates,
    replay,
    run_here,
    work_off,
)
from muster.spark.pipelines.traces import LOADS, SCENARIOS, GroupTrace, TraceMember, TraceStep, write_lines
from muster.spark.pipelines.traces import SyntheticPlan as Made

MODEL = HandoverModel(round_ms=1_000)


class Swapping:
    """Never comes to rest: whenever one partition is free, the other one must change hands."""

    name = "swapping"
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, snapshot: Snapshot) -> Plan:
        first, other = (member.id for member in snapshot.ordered_members())
        owners = snapshot.owners()
        shares: dict[str, dict[str, list[int]]] = {first: {"t": []}, other: {"t": []}}
        moving = 0 if ("t", 0) in owners else 1
        for partition in (0, 1):
            owner = owners.get(("t", partition), first)
            if ("t", partition) in owners and partition == moving:
                owner = other if owner == first else first
            shares[owner]["t"].append(partition)
        return shares


class Failing:
    name = "failing"
    protocol = RebalanceProtocol.EAGER

    def assign(self, snapshot: Snapshot) -> Plan:
        raise RuntimeError("no idea")


def trace(*steps: TraceStep, load: list[list[int]], counts: tuple[int, ...] = (4,), drain: int = 0) -> GroupTrace:
    """A group of up to three members on one topic, for ten seconds after its last step."""
    members = tuple(TraceMember(name) for name in ("a", "b", "c"))
    topics = tuple("tuvw"[: len(counts)])
    rows = np.array(load, dtype=np.int64)
    return GroupTrace("hand", topics, counts, members, (topics,), steps, rows, steps[-1].at_ms + 10_000, drain)


def step(at_ms: int, cause: str, *present: int, lost: tuple[tuple[int, int], ...] = (), count: int = 4) -> TraceStep:
    return TraceStep(at_ms, cause, present, (0,) * len(present), (count,), lost)


def one(word: str) -> BacktestCandidate:
    return parse_candidates(word)[0]


def test_a_recorded_lag_is_scored_by_time() -> None:
    """Range gives a [0, 1] and b [2, 3]; for ten seconds a has 30 of 40 records, for ten more 10 of 20."""
    history = trace(step(0, "start", 0, 1), step(10_000, "", 0, 1), load=[[20, 10, 5, 5], [5, 5, 5, 5]])
    score = replay(history, one("range"), MODEL)
    assert score.lag_ratio == (30 + 10) / (20 + 10)
    assert score.mean_lag == 30.0
    assert score.worst_lag == 30
    assert score.count_ratio == 1.0
    assert (score.decisions, score.rounds, score.moves) == (1, 1, 0)


def test_an_eager_rebalance_stops_everything_and_a_cooperative_one_what_moves() -> None:
    """b joins: two of four partitions move. Start-up is not counted."""
    history = trace(step(0, "start", 0), step(10_000, "member joined", 0, 1), load=[[1] * 4, [8, 4, 2, 1]])
    eager = replay(history, one("sticky"), MODEL)
    assert (eager.rounds, eager.moves, eager.avoidable_moves) == (2, 2, 2)
    assert (eager.unowned_s, eager.unowned_eager_s, eager.unowned_cooperative_s) == (4.0, 4.0, 2.0)
    cooperative = replay(history, one("cooperative-sticky"), MODEL)
    assert (cooperative.rounds, cooperative.moves) == (3, 2)
    assert (cooperative.unowned_s, cooperative.unowned_eager_s) == (2.0, 4.0)
    assert 3 <= cooperative.moved_lag <= 12, "two of 8, 4, 2 and 1"


def test_what_a_crashed_member_held_was_unowned_since_it_fell_silent() -> None:
    """b is silent from 12 s on and missed at 20 s: two partitions wait nine seconds, and had to move."""
    crash = step(20_000, "session expired", 0, lost=((1, 12_000),))
    history = trace(step(0, "start", 0, 1), crash, load=[[1] * 4, [1] * 4])
    score = replay(history, one("cooperative-sticky"), MODEL)
    assert score.unowned_s == 2 * 9.0
    assert score.unowned_eager_s == 2 * 9.0 + 2 * 1.0
    assert (score.moves, score.avoidable_moves) == (2, 0)


def test_new_partitions_are_given_out_after_one_round() -> None:
    first, second = step(0, "start", 0, count=2), step(10_000, "partitions changed", 0)
    score = replay(trace(first, second, load=[[1, 1, 0, 0], [1] * 4]), one("cooperative-sticky"), MODEL)
    assert (score.unowned_s, score.moves) == (2.0, 0)


def test_a_modelled_load_is_worked_off_by_its_owner_only() -> None:
    """One member, ten records a second, everything arrives at the start."""
    history = trace(step(0, "start", 0), step(2_000, "", 0), load=[[30, 10, 0, 0], [0] * 4], drain=10)
    assert replay(history, one("range"), MODEL).mean_lag == (40 * 2_000 + 20 * 10_000) / 12_000


def test_nothing_is_worked_off_while_a_partition_stands_still() -> None:
    """The eager rebalance at 1 s stops both members for one of the two seconds until 3 s."""
    steps = (step(0, "start", 0, 1), step(1_000, "operator", 0, 1), step(3_000, "", 0, 1))
    history = trace(*steps, load=[[100] * 4, [0] * 4, [0] * 4], drain=10)
    assert replay(history, one("range"), MODEL).mean_lag == (400 * 1_000 + 380 * 2_000 + 360 * 10_000) / 13_000
    assert replay(history, one("cooperative-sticky"), MODEL).mean_lag < 366


def test_a_silent_member_works_on_nothing() -> None:
    silent = replace(step(1_000, "", 0, 1), silent=(1,))
    history = trace(step(0, "start", 0, 1), silent, step(2_000, "", 0, 1), load=[[100] * 4, [0] * 4, [0] * 4], drain=10)
    assert replay(history, one("range"), MODEL).worst_lag == 200
    assert replay(history, one("range"), MODEL).mean_lag == (400 * 1_000 + 380 * 1_000 + 370 * 10_000) / 12_000


def test_work_is_shared_out_exactly_and_a_product_beyond_64_bits_does_not_wrap() -> None:
    lag = np.array([10**12, 10**12], dtype=np.int64)
    owner = np.zeros(2, dtype=np.int64)
    left = work_off(lag, owner, np.ones(2, dtype=np.bool_), 10**12)
    assert left.tolist() == [5 * 10**11] * 2


def test_a_group_that_nobody_is_left_in_has_no_owners() -> None:
    steps = (step(0, "start", 0), step(5_000, "member left", lost=((0, 5_000),)), step(9_000, "member joined", 1))
    score = replay(trace(*steps, load=[[1] * 4] * 3), one("range"), MODEL)
    assert score.unassigned_s == 16.0
    assert score.unowned_s == 4 * 5.0


def test_a_cooldown_hears_when_partitions_moved() -> None:
    """With the group's own cooldown of half an hour the second look moves nothing back."""
    steps = [step(at, "lag imbalance", 0, 1) for at in range(60_000, 1_200_000, 60_000)]
    load = [[100, 0, 100, 0] if number % 2 else [100, 100, 0, 0] for number in range(len(steps))]
    calm = replay(trace(*steps, load=load), one("lag-sticky[dampening=1]"), MODEL)
    busy = replay(trace(*steps, load=load), one("lag-sticky[cooldown.ms=0,dampening=1]"), MODEL)
    assert (calm.moves, busy.moves) == (2, 18)


def test_an_assignor_that_never_comes_to_rest_is_counted_and_placed_last() -> None:
    steps = (step(0, "start", 0, 1, count=2), step(5_000, "operator", 0, 1, count=2))
    history = trace(*steps, load=[[1, 1]] * 2, counts=(2,))
    word = f"{__name__}:Swapping"
    test = Backtest((history,), (BacktestCandidate("swapping", word), one("sticky")), (0,), MODEL)
    rows = list(run_here(test))
    assert rows[0].score is not None
    assert rows[0].score.unsettled == 1
    assert [standing.candidate for standing in rank_candidates(rows)] == ["sticky", "swapping"]


def test_an_assignor_that_fails_has_an_error_and_no_score_and_the_others_go_on() -> None:
    history = trace(step(0, "start", 0, 1), load=[[1] * 4])
    test = Backtest((history,), (BacktestCandidate("failing", f"{__name__}:Failing"), one("range")), (0, 1), MODEL)
    rows = list(run_here(test))
    assert [row.score is None for row in rows] == [True, False, True, False]
    assert "no idea" in rows[0].error
    assert rank_candidates(rows)[1].failed == 2


def test_an_assignor_that_hangs_is_given_up_once_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(assignor: Assignor, *given: Any) -> Any:
        asked.append(assignor.name)
        return run_in_time(assignor, *given)

    monkeypatch.setattr("muster.spark.pipelines.backtest.run_in_time", counted)
    hanging = BacktestCandidate("hanging", "tests.support.plugins:Hangs")
    plan = Made(scenario="steady", load="even", members=2, topics=1, partitions=2, minutes=20)
    test = Backtest((plan,), (hanging, *parse_candidates("range")), tuple(range(5)), deadline_ms=20)
    rows = list(run_here(test))
    assert [row.score is None for row in rows] == [True, False] * 5
    (error,) = {row.error for row in rows if row.candidate == "hanging"}
    assert error.startswith("assignor 'hangs': was not done after 20 ms; mend it, or give it longer by --deadline; at ")
    assert asked.count("hangs") == 1, "each further job would cost the deadline again"


def test_seeds_rename_the_members_of_a_recorded_history_and_nothing_else() -> None:
    history = trace(step(0, "start", 0, 1), load=[[1, 2, 3, 4]])
    assert history.renamed(0) is history
    other = history.renamed(7)
    assert {member.id for member in other.members}.isdisjoint(member.id for member in history.members)
    assert other.renamed(0) == history.renamed(7).renamed(0)
    assert other.steps == history.steps


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("load", LOADS)
def test_every_scenario_makes_histories_that_every_kind_of_assignor_can_replay(scenario: str, load: str) -> None:
    plan = Made(scenario=scenario, load=load, members=3, partitions=5, minutes=40)
    assert list(write_lines(plan.make(1))) != list(write_lines(plan.make(2)))
    test = Backtest((plan,), tuple(parse_candidates("range,cooperative-sticky,lag-sticky")), (0, 1), MODEL)
    rows = list(run_here(test))
    assert [row.error for row in rows] == [""] * 6
    assert all(row.score is not None and row.score.decisions and row.score.mean_lag > 0 for row in rows)
    assert are_same_rows(rows, list(run_here(test)))


PROGRAM = """
import json
from muster.spark.assignor_deadline import run_in_time
from muster.spark.pipelines.backtest import Backtest, row_digits, run_here
from muster.spark.pipelines.backtest import parse_candidates
from muster.spark.pipelines.traces import SCENARIOS, SyntheticPlan
plans = tuple(SyntheticPlan(scenario=name, load="bursty", members=3, partitions=6, minutes=30) for name in SCENARIOS)
test = Backtest(plans, tuple(parse_candidates("range,roundrobin,cooperative-sticky,lag,lag-sticky")), (0, 1))
print(json.dumps([row_digits(row) for row in run_here(test)]))
"""


def test_the_figures_are_the_same_under_any_hash_seed() -> None:
    def told(seed: str) -> str:
        environment = os.environ | {"PYTHONHASHSEED": seed}
        return subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True
        ).stdout

    first = told("1")
    assert len(json.loads(first)) == 7 * 5 * 2
    assert first == told("2")


def test_a_small_history_has_the_score_it_has_always_had() -> None:
    """The golden row: whoever changes it can say why."""
    plan = Made(scenario="churn", load="zipf", members=3, topics=2, partitions=4, minutes=20)
    test = Backtest((plan,), (one("cooperative-sticky"),), (3,))
    (row,) = run_here(test)
    assert row.score == GOLDEN


GOLDEN = ReplayScore(
    decisions=6,
    rounds=8,
    lag_ratio=2.0480505376604206,
    lag_spread=0.9188162335366015,
    count_ratio=1.065325847818762,
    count_spread=0.09238469995881413,
    moves=11,
    avoidable_moves=4,
    moved_lag=10263,
    unowned_s=33.0,
    unowned_eager_s=120.0,
    unowned_cooperative_s=33.0,
    mean_lag=7495.684945,
    worst_lag=34244,
    unassigned_s=0.0,
    unsettled=0,
)


def test_who_is_level_shares_the_places_and_weights_decide() -> None:
    def row(job: int, name: str, **scores: float) -> BacktestRow:
        return BacktestRow(job, "h", 0, name, "", replace(GOLDEN, **scores))

    rows = [
        row(0, "even", lag_ratio=1.0, moves=50),
        row(1, "quiet", lag_ratio=2.0, moves=0),
        row(2, "both", lag_ratio=1.0, moves=0),
    ]
    assert [(one.candidate, one.rank) for one in rank_candidates(rows, {"lag": 1.0})] == [
        ("both", 1.5),
        ("even", 1.5),
        ("quiet", 3.0),
    ]
    assert rank_candidates(rows, {"lag": 1.0, "moves": 1.0})[0].candidate == "both"
    assert [one.candidate for one in rank_candidates(rows, {"moves": 2.0, "lag": 1.0})][-1] == "even"


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"speed": 1.0}, "'speed' is not a criterion"),
        ({"lag": -1.0}, "expected 0 or more"),
        ({"lag": 0.0}, "all weights are 0"),
    ],
)
def test_weights_that_cannot_be_are_refused(weights: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        rank_candidates([], weights)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lag-sticky[move.bugdet=2]", "has no option 'move.bugdet'; its options are"),
        ("range[a=1]", "it has no options"),
        ("lag-sticky[move.budget]", "'move.budget' is not an option"),
        ("lag-sticky[move.budget=2", "ends without"),
        ("lag-sticky[move.budget=two]", "'two'"),
        ("rnge", "did you mean 'range'"),
        ("", "no assignor was named"),
    ],
)
def test_candidates_that_cannot_be_are_refused_at_once(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        parse_candidates(text)
    assert isinstance(raised.value, ValueError | AssignorError)


def test_candidates_have_one_name_however_they_are_written() -> None:
    words = [
        "RangeAssignor, range",
        'lag-sticky[ seed=1, member.capacity={"a": 2} ],lag-sticky[member.capacity={"a":2},seed=1]',
    ]
    assert [found.label for found in parse_candidates(words)] == ["range", 'lag-sticky[member.capacity={"a":2},seed=1]']
