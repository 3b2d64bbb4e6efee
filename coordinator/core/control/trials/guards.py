"""What ends a canary before its time: figures of the group, held against how it did before.

`moves > 2x` is over twice the baseline, `moves > 40` over forty. Figures are those of the group since the canary began.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from muster.coordinator.core.model.ledger import GroupLedger, settle_entry
from muster.coordinator.core.model.trial_records import CanaryBaseline, CanaryGuardRule, CanaryStored, CanaryTally
from muster.coordinator.core.model.types import Outcome

PLAN_FAILURES, MOVES, UNOWNED, LAG, EXPIRED = "plan-failures", "moves", "unowned", "lag", "expired"

MEANINGS = {
    PLAN_FAILURES: "plans that the assignor failed to make",
    MOVES: "partitions that changed hands in a rebalance",
    UNOWNED: "partition-seconds without an owner in a rebalance",
    LAG: "records that wait, all together",
    EXPIRED: "members lost to session or poll timeout",
}
COMPARED = frozenset({MOVES, UNOWNED, LAG})
"""Those that have a baseline."""

DEFAULTS = (
    CanaryGuardRule(PLAN_FAILURES, 0),
    CanaryGuardRule(UNOWNED, 2, True),
    CanaryGuardRule(LAG, 2, True),
    CanaryGuardRule(EXPIRED, 0),
)
DEFAULT_LAG_FLOOR = 1_000
"""Records. Less lag than that trips no guard."""

LEAST_UNOWNED_S = 1.0
"""Partition-seconds in a rebalance. A group that hands over within milliseconds may take twice as many of them."""

HELD_SAMPLES = 3
"""So many samples in a row have to be over the limit before a lag counts."""
LEAST_REBALANCES = 3
BASELINE_LEAST_MS = 600_000
HOUR_MS = 3_600_000

FORM = re.compile(r"\s*([a-z-]+)\s*>\s*(\d{1,12}(?:\.\d{1,6})?)\s*(x?)\s*")


@dataclass(frozen=True, slots=True)
class GuardTrip:
    """A guard that was tripped: by what figure, and against which."""

    guard: CanaryGuardRule
    figure: float
    limit: float

    def sentence(self, baseline: CanaryBaseline) -> str:
        unit = UNITS[self.guard.figure]
        said = f"guard {guard_text(self.guard)!r} tripped: {self.figure:.6g}{unit}"
        if not self.guard.relative:
            return said
        basis = guard_basis(self.guard, baseline)
        return f"{said} are over {self.guard.limit:g} x {basis:.6g}, {describe_basis(self.guard, baseline)}"


UNITS = {
    PLAN_FAILURES: " failed plans",
    MOVES: " moves a rebalance",
    UNOWNED: " partition-seconds a rebalance",
    LAG: " records that wait",
    EXPIRED: " lost members",
}


def guard_of(text: str) -> CanaryGuardRule:
    """Read one. Raises ValueError with what was expected.

    >>> guard_of("lag>2.5x")
    CanaryGuardRule(figure='lag', limit=2.5, relative=True)
    """
    found = FORM.fullmatch(text)
    if found is None or found[1] not in MEANINGS:
        raise ValueError(
            f"guard {text!r} cannot be read; expected FIGURE > NUMBER, or NUMBERx for so many times the group's own "
            f"last hour, FIGURE being one of {', '.join(MEANINGS)}"
        )
    if found[3] and found[1] not in COMPARED:
        raise ValueError(
            f"guard {text!r} compares with the group's last hour, where {found[1]!r} is counted from none; "
            f"expected {found[1]} > NUMBER"
        )
    return CanaryGuardRule(found[1], float(found[2]), bool(found[3]))


def guards_of(texts: Sequence[str]) -> tuple[CanaryGuardRule, ...]:
    """Those that are named, or else the usual ones. Raises ValueError."""
    guards = tuple(guard_of(text) for text in texts) or DEFAULTS
    figures = [guard.figure for guard in guards]
    for figure in figures:
        if figures.count(figure) > 1:
            raise ValueError(f"{figure!r} has two guards; expected one for each figure")
    return guards


def guard_text(guard: CanaryGuardRule) -> str:
    return f"{guard.figure} > {guard.limit:g}{'x' if guard.relative else ''}"


def idle_reason(guard: CanaryGuardRule, baseline: CanaryBaseline) -> str:
    """Why the guard does not count, in words; empty when it does."""
    if not guard.relative:
        return ""
    if guard.figure == LAG:
        if baseline.lag_span_ms < BASELINE_LEAST_MS:
            return f"the group's lag is known for {minutes(baseline.lag_span_ms)}, 10 min are needed"
        return ""
    count = baseline.rebalances if guard.figure == MOVES else baseline.settled
    if count < LEAST_REBALANCES:
        return f"the group's last hour has {count} rebalances to compare with, {LEAST_REBALANCES} are needed"
    if baseline.span_ms < BASELINE_LEAST_MS:
        return f"the group's rebalances are known for {minutes(baseline.span_ms)}, 10 min are needed"
    return ""


def minutes(ms: int) -> str:
    return f"{ms / 60_000:.1f} min"


def guard_basis(guard: CanaryGuardRule, baseline: CanaryBaseline) -> float:
    """What the guard compares with."""
    match guard.figure:
        case "moves":
            return baseline.moves
        case "unowned":
            return baseline.unowned_ms / 1000
        case _:
            return baseline.lag


def describe_basis(guard: CanaryGuardRule, baseline: CanaryBaseline) -> str:
    if guard.figure == LAG:
        return f"its mean over {minutes(baseline.lag_span_ms)} before"
    count = baseline.rebalances if guard.figure == MOVES else baseline.settled
    return f"the mean of {count} rebalances in {minutes(baseline.span_ms)} before"


def figure_of(guard: CanaryGuardRule, tally: CanaryTally) -> float | None:
    """How the group does, by what has been counted; None where nothing says it yet. Lag is measured elsewhere."""
    match guard.figure:
        case "plan-failures":
            return tally.plan_failures
        case "expired":
            return tally.expired
        case "moves":
            return tally.moves / tally.rebalances if tally.rebalances else None
        case "unowned":
            return tally.unowned_ms / 1000 / tally.settled if tally.settled else None
        case _:
            return None


def tripped_guard(canary: CanaryStored) -> GuardTrip | None:
    """The first guard that what has been counted is over."""
    for guard in canary.guards:
        if (trip := trip_if_over(guard, figure_of(guard, canary.tally), canary.baseline)) is not None:
            return trip
    return None


def tripped_lag_guard(canary: CanaryStored, lag: int) -> GuardTrip | None:
    """The guard that this sample of the group's total lag is over."""
    guard = next((guard for guard in canary.guards if guard.figure == LAG), None)
    return None if guard is None or lag < canary.lag_floor else trip_if_over(guard, lag, canary.baseline)


def trip_if_over(guard: CanaryGuardRule, figure: float | None, baseline: CanaryBaseline) -> GuardTrip | None:
    if figure is None or idle_reason(guard, baseline):
        return None
    if guard.relative and guard.figure == UNOWNED and figure < LEAST_UNOWNED_S:
        return None
    limit = guard.limit * guard_basis(guard, baseline) if guard.relative else guard.limit
    return GuardTrip(guard, figure, limit) if figure > limit else None


def baseline_of(ledger: GroupLedger | None, lag: tuple[float, int], now_ms: int) -> CanaryBaseline:
    """The group's own last hour. `lag` is the mean of its total lag, and over how long that is.

    Entries that are said to end later than now are of a clock that was set back since: they are no part of it.
    """
    entries = list(ledger.entries.values()) if ledger is not None else []
    hour = [entry for entry in entries if 0 <= now_ms - entry.ended_at_ms <= HOUR_MS]
    plans = [entry for entry in hour if entry.outcome is Outcome.COMPLETED]
    known = [settle_entry(entry, ledger.settlements.get(entry.number)) for entry in plans] if ledger is not None else []
    unowned = [entry.unowned_partition_ms for entry in known if entry.unowned_partition_ms >= 0]
    mean, lag_span_ms = lag
    # The group may be older than what is kept of it; before its first entry nothing is known.
    since_ms = min((entry.started_at_ms for entry in entries if entry.started_at_ms <= now_ms), default=now_ms)
    return CanaryBaseline(
        rebalances=len(plans),
        span_ms=min(now_ms - since_ms, HOUR_MS),
        moves=sum(len(entry.moves) for entry in plans) / len(plans) if plans else 0.0,
        settled=len(unowned),
        unowned_ms=sum(unowned) / len(unowned) if unowned else 0.0,
        lag=mean,
        lag_span_ms=min(lag_span_ms, HOUR_MS),
    )
