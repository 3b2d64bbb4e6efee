"""Figures of plans that nobody acts upon: what they are measured against, and when there are none."""

from dataclasses import replace

import pytest

from muster.assignors.api import Member, Snapshot
from muster.coordinator.core.model.shadow_scoring import (
    AssignorCandidate,
    ShadowRequest,
    balance,
    candidate_of,
    score_candidates,
    split_candidates,
)
from muster.coordinator.core.model.types import Cause, Limits, MemberPlan, Outcome, PartitionMove, RebalanceEntry

A_AND_B = [Member("a", ("t",), owned={"t": [0, 1, 2, 3]}), Member("b", ("t",))]
SNAPSHOT = Snapshot({"t": 4}, A_AND_B, assignor="uniform")


def entry(source: str, *moves: PartitionMove, **shares: tuple[int, ...]) -> RebalanceEntry:
    return RebalanceEntry(
        *(7, 1, 2, "consumer", "uniform", Cause.MEMBER_JOINED, "", "", "", "", "", Outcome.COMPLETED, 0, 0),
        members=tuple(MemberPlan(name, name, "host", None, (("t", share),)) for name, share in shares.items()),
        moves=moves,
        snapshot_json=SNAPSHOT.to_json(),
        snapshot_source=source,
    )


def moved(partition: int, source: str, target: str) -> PartitionMove:
    return PartitionMove("t", partition, source, target, -1, "")


def asked(decision: RebalanceEntry, *words: str) -> ShadowRequest:
    return ShadowRequest("g", 1, tuple(candidate_of(word, Limits()) for word in words), decision)


def test_moves_are_counted_from_what_was_owned_before() -> None:
    decision = entry("target", moved(2, "a", "b"), moved(3, "a", "b"), a=(0, 1), b=(2, 3))
    real, kept = score_candidates(asked(decision, 'lag-sticky{"move.budget": 1}'), lambda: 5)
    assert (real.assignor, real.moves, real.differs, real.took_ms) == ("uniform", 2, 0, None)
    assert (kept.moves, kept.differs, kept.balance_count, kept.took_ms) == (1, 3, 1.5, 0)


def test_a_whole_target_hands_over_what_a_cooperative_round_holds_back() -> None:
    whole = entry("target", moved(2, "a", "b"), moved(3, "a", "b"), a=(0, 1), b=(2, 3))
    _, ranged = score_candidates(asked(whole, "range"), lambda: 0)
    assert (ranged.unassigned, ranged.differs) == (0, 0)
    round_one = entry("remote", moved(2, "a", ""), moved(3, "a", ""), a=(0, 1), b=())
    real, ranged = score_candidates(asked(round_one, "range"), lambda: 0)
    assert (real.unassigned, real.moves) == (2, 2)
    assert (ranged.unassigned, ranged.moves, ranged.differs) == (2, 2, 0)


def test_loads_that_nobody_knows_have_no_balance() -> None:
    decision = entry("target", a=(0, 1), b=(2, 3))
    real, _ = score_candidates(asked(decision, "range"), lambda: 0)
    assert (real.balance_lag, real.balance_rate) == (None, None)
    known = replace(asked(decision, "range"), lags={"t": [9, 0, 0, 0]}, rates={"t": [1.0, 1.0, 3.0, 3.0]})
    real, _ = score_candidates(known, lambda: 0)
    assert (real.balance_lag, real.balance_rate) == (2.0, 1.5)


@pytest.mark.parametrize(
    ("loads", "figure"), [(None, 4 / 3), ({"t": [0, 0, 0]}, 1.0), ({"t": [0, 0, 5]}, 2.0), ({}, 1.0)]
)
def test_balance(loads: dict[str, list[float]] | None, figure: float) -> None:
    assert balance({("t", 0): "a", ("t", 1): "a", ("t", 2): "b"}, loads, 2) == pytest.approx(figure, abs=1e-4)


def test_words_are_read_and_written_alike() -> None:
    for word in ("range", 'lag-sticky{"move.budget": 4}'):
        assert candidate_of(word, Limits()).word == word
    assert candidate_of("RangeAssignor", Limits()) == AssignorCandidate("range", {})
    assert split_candidates("") == []
    assert split_candidates('a{"x": [1, 2]},b') == ['a{"x": [1, 2]}', "b"]
