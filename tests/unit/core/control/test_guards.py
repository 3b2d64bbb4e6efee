"""Baselines of canaries, and when their guards count and trip."""

from dataclasses import replace

import pytest

from muster.coordinator.core.control.trials import canary as guards
from muster.coordinator.core.model.ledger import GroupLedger
from muster.coordinator.core.model.records import CanaryBaseline, CanaryState, CanaryStored, CanaryTally
from muster.coordinator.core.model.types import Cause, Outcome, PartitionMove, RebalanceEntry, Settlement

MINUTE = 60_000
SOLID = CanaryBaseline(
    rebalances=3, span_ms=10 * MINUTE, moves=4.0, settled=3, unowned_ms=2_000.0, lag=500.0, lag_span_ms=10 * MINUTE
)


def canary(*texts: str, baseline: CanaryBaseline = SOLID, tally: CanaryTally | None = None) -> CanaryStored:
    wanted = guards.guards_of(texts)
    about = ("g", CanaryState.CANARY, "lag", {}, "range", "x", 0, 1, 1, True)
    return CanaryStored(*about, wanted, 1_000, baseline, tally or CanaryTally())


def entry(number: int, ended_at_ms: int, moves: int, outcome: Outcome = Outcome.COMPLETED) -> RebalanceEntry:
    return RebalanceEntry(
        *(number, number, number + 1, "consumer", "range", Cause.MEMBER_JOINED, "", "", "", "", "", outcome),
        *(ended_at_ms - 100, ended_at_ms),
        moves=(PartitionMove("t", 0, "a", "b", 0, ""),) * moves,
    )


def test_the_baseline_is_the_last_hours_rebalances() -> None:
    now = 100 * MINUTE
    ledger = GroupLedger(
        {
            1: entry(1, now - 61 * MINUTE, 50),
            2: entry(2, now - 59 * MINUTE, 2),
            3: entry(3, now - 5 * MINUTE, 7, Outcome.SUPERSEDED),
            4: entry(4, now, 4),
            5: entry(5, now + 1, 90),
        },
        {4: Settlement(4, now, (), (), 3_000)},
    )
    found = guards.baseline_of(ledger, (7.5, 90 * MINUTE), now)
    assert found == CanaryBaseline(2, 60 * MINUTE, 3.0, 1, 3_000.0, 7.5, 60 * MINUTE)
    assert guards.baseline_of(None, (0.0, 0), now) == CanaryBaseline()


@pytest.mark.parametrize(
    ("guard", "thin", "why"),
    [
        ("moves > 2x", {"rebalances": 2}, "2 rebalances"),
        ("moves > 2x", {"span_ms": 10 * MINUTE - 1}, "10 min"),
        ("unowned > 2x", {"settled": 2}, "2 rebalances"),
        ("lag > 2x", {"lag_span_ms": 10 * MINUTE - 1}, "10 min"),
    ],
)
def test_a_thin_baseline_is_none(guard: str, thin: dict[str, int], why: str) -> None:
    wanted = guards.guard_of(guard)
    assert guards.idle_reason(wanted, SOLID) == ""
    assert why in guards.idle_reason(wanted, replace(SOLID, **thin))
    assert guards.idle_reason(guards.guard_of(guard.removesuffix("x")), CanaryBaseline()) == ""


@pytest.mark.parametrize(
    ("guard", "tally", "trips"),
    [
        ("moves > 2x", CanaryTally(rebalances=2, moves=16), False),
        ("moves > 2x", CanaryTally(rebalances=2, moves=17), True),
        ("moves > 8", CanaryTally(rebalances=1, moves=9), True),
        ("unowned > 2x", CanaryTally(settled=2, unowned_ms=8_000), False),
        ("unowned > 2x", CanaryTally(settled=2, unowned_ms=8_002), True),
        ("unowned > 0.1x", CanaryTally(settled=1, unowned_ms=999), False),
        ("unowned > 0.5", CanaryTally(settled=1, unowned_ms=999), True),
        ("expired > 0", CanaryTally(expired=1), True),
        ("plan-failures > 1", CanaryTally(plan_failures=1), False),
        ("plan-failures > 1", CanaryTally(plan_failures=2), True),
        ("moves > 0", CanaryTally(), False),
    ],
)
def test_what_is_counted_trips_a_guard_when_it_is_over(guard: str, tally: CanaryTally, trips: bool) -> None:
    assert (guards.tripped_guard(canary(guard, tally=tally)) is not None) == trips


@pytest.mark.parametrize(("lag", "trips"), [(999, False), (1_000, False), (1_001, True)])
def test_lag_has_a_floor(lag: int, trips: bool) -> None:
    assert (guards.tripped_lag_guard(canary("lag > 2x"), lag) is not None) == trips
    assert guards.tripped_lag_guard(canary("lag > 10", baseline=CanaryBaseline()), 999) is None


def test_the_usual_guards_are_four() -> None:
    usual = [guards.guard_text(guard) for guard in guards.guards_of(())]
    assert usual == ["plan-failures > 0", "unowned > 2x", "lag > 2x", "expired > 0"]
    assert [guards.guard_text(guard) for guard in guards.guards_of(("moves>3",))] == ["moves > 3"]
