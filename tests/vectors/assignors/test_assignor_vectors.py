"""Every reference problem, judged: exact where Java is deterministic, optimal where it is not."""

from __future__ import annotations

import pytest
from verdict import bare, faults, hand_over, metrics_worth, vectors, worth

from muster.assignors.tools.problem import solve


def without_empty(plan):
    return {member: share for member, share in plan.items() if share}


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "lag"])
def test_equals_java(assignor):
    different = [
        problem["id"]
        for problem in vectors(assignor)
        if without_empty(solve(bare(problem))) != without_empty(problem["expected"])
    ]
    assert different == []


def test_sticky_is_valid_and_optimal_on_every_vector():
    count = 0
    for problem in vectors("sticky"):
        plan = solve(bare(problem))
        assert faults(problem, plan) == [], problem["id"]
        assert worth(problem, plan) == metrics_worth(problem["optimum"]), problem["id"]
        if not problem.get("java_invalid"):
            assert worth(problem, plan) <= metrics_worth(problem["metrics"]), problem["id"]
        count += 1
    assert count == 240


def test_cooperative_is_safe_and_optimal_within_two_rounds_on_every_vector():
    count = 0
    for problem in vectors("cooperative-sticky"):
        plan, _ = hand_over(bare(problem), solve)
        assert faults(problem, plan) == [], problem["id"]
        assert worth(problem, plan) == metrics_worth(problem["optimum"]), problem["id"]
        count += 1
    assert count == 240


def test_uniform_is_as_good_as_sticky():
    for problem in vectors("sticky"):
        settled, _ = hand_over(bare(problem), lambda question: solve(question, "uniform"))
        assert faults(problem, settled) == [], problem["id"]
        assert worth(problem, settled) == metrics_worth(problem["optimum"]), problem["id"]
