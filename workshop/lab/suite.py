"""All traces under all policies, by seeds; and whether the goals are met."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from muster.coordinator.core.settings.rules import BalanceRules
from muster.workshop.lab.plays import EVEN, TraceScore, play_trace
from muster.workshop.lab.policies import POLICIES
from muster.workshop.lab.traces import PARTITIONS, WRITTEN, make_trace

MUSTER, ANEW, OTHERS = "muster", "anew", ("kcl-3", "kafka-5337")


@dataclass(frozen=True, slots=True)
class PolicyScore:
    """One policy on one trace; of several seeds the mean, and the worst peak."""

    trace: str
    policy: str
    score: TraceScore


@dataclass(frozen=True, slots=True)
class BalanceGoal:
    """What was promised, what came of it."""

    goal: str
    figure: str
    met: bool


def score_policies(seeds: int, rules: BalanceRules, traces: Sequence[str] = tuple(WRITTEN)) -> list[PolicyScore]:
    return [
        PolicyScore(
            name,
            policy,
            mean_score(
                [
                    play_trace(make_trace(name, seed), POLICIES[policy](PARTITIONS, rules), rules)
                    for seed in range(seeds)
                ]
            ),
        )
        for name in traces
        for policy in POLICIES
    ]


def mean_score(scores: Sequence[TraceScore]) -> TraceScore:
    return TraceScore(
        even=float(np.mean([score.even for score in scores])),
        p90=float(np.mean([score.p90 for score in scores])),
        moves=round(float(np.mean([score.moves for score in scores]))),
        twice=sum(score.twice for score in scores),
        peak_lag=max(score.peak_lag for score in scores),
    )


def judge_goals(rows: Iterable[PolicyScore]) -> list[BalanceGoal]:
    """The goals of continuous balance, with figures, met or missed."""
    by = {(row.trace, row.policy): row.score for row in rows}
    mine = {name: by[name, MUSTER] for name, policy in by if policy == MUSTER}
    moved, anew = sum(score.moves for score in mine.values()), sum(by[name, ANEW].moves for name in mine)
    zipf = mine["zipf-1.2"].even
    twice, short = sum(score.twice for score in mine.values()), mine["bursts-20s"].moves
    found = [
        BalanceGoal(f"zipf 1.2: heaviest over mean <= {EVEN} for 90 % of the time", f"{zipf:.1%}", zipf >= 0.9),
        BalanceGoal("no partition moves twice within the cooldown", f"{twice} moves", twice == 0),
        BalanceGoal("bursts shorter than the rounds move nothing", f"{short} moves", short == 0),
        BalanceGoal("moves <= 1/5 of planning anew at each sample", f"{moved} of {anew}", moved * 5 <= anew),
    ]
    for other in OTHERS:
        for name, score in mine.items():
            rival = by[name, other]
            found.append(
                BalanceGoal(
                    f"{name}: fewer moves than {other} at no higher peak lag",
                    f"{score.moves} to {rival.moves} moves, {score.peak_lag} to {rival.peak_lag} records",
                    score.moves <= rival.moves and score.peak_lag <= rival.peak_lag,
                )
            )
    return found
