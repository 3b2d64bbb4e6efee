"""Balance on made-up load: what is promised of its calm holds, by seed; others' rules are what they are said to be."""

import numpy as np
import pytest

from muster.coordinator.core.control.balance.rules import Rules
from muster.coordinator.lab.balance.plays import Score, play
from muster.coordinator.lab.balance.policies import Balance, Kcl3
from muster.coordinator.lab.balance.suite import POLICIES, Row, goals_of
from muster.coordinator.lab.balance.traces import PARTITIONS, WRITTEN, trace

RULES = Rules()


def scored(name: str, seed: int) -> Score:
    return play(trace(name, seed), Balance(PARTITIONS, RULES), RULES)


def test_a_trace_is_the_same_for_the_same_seed() -> None:
    assert np.array_equal(trace("wandering", 3).written, trace("wandering", 3).written)
    assert not np.array_equal(trace("wandering", 3).written, trace("wandering", 4).written)


@pytest.mark.parametrize("seed", [0, 1])
def test_zipf_load_is_even_and_nothing_moves_twice(seed: int) -> None:
    score = scored("zipf-1.2", seed)
    assert score.even >= 0.9
    assert 0 < score.moves < PARTITIONS
    assert score.twice == 0


def test_short_bursts_move_nothing() -> None:
    assert scored("bursts-20s", 0).moves == 0


def test_kcl_sheds_six_tenths_of_the_excess_to_whoever_has_most_room() -> None:
    owner = np.array([0] * 10 + [1, 2], dtype=np.int32)
    load = np.array([10.0] * 10 + [40.0, 10.0])
    # The mean is 50: member 0 has 50 too much, and sheds 30; the others have 40 and 10.
    after = Kcl3(12, RULES).moved(owner.copy(), load)
    assert np.bincount(after, weights=load).tolist() == [70.0, 40.0, 40.0]
    assert Kcl3(2, RULES).moved(np.array([0, 1], dtype=np.int32), np.array([10.0, 10.5])).tolist() == [0, 1]


def test_a_goal_that_is_missed_is_told_as_missed() -> None:
    good, bad = Score(1.0, 1.1, 1, 0, 10), Score(0.5, 2.0, 9, 3, 5)
    rows = [Row(name, policy, good) for name in WRITTEN for policy in POLICIES]
    rows = [Row(r.trace, r.policy, bad) if (r.trace, r.policy) == ("zipf-1.2", "muster") else r for r in rows]
    missed = [goal.goal for goal in goals_of(rows) if not goal.met]
    assert missed[:3] == [
        "zipf 1.2: heaviest over mean <= 1.25 for 90 % of the time",
        "no partition moves twice within the cooldown",
        "bursts shorter than the rounds move nothing",
    ]
