"""A canary: another assignor plans the group for a while, is watched by guards, and is promoted or rolled back.

It lies over the group's settings and changes none of them until it is promoted: a roll-back has nothing to restore,
and `chosen_assignor` is the only rule that it changes. Its record holds all that it is judged by, so a crash costs
only the lag samples counted in a row. While an operator freezes or deploys the group it rests.

Guards end a canary early: `moves > 2x` is over twice the baseline, `moves > 40` over forty. Figures are those of the
group since the canary began.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from muster.assignors.api import JsonValue
from muster.assignors.registry import BUILT_IN
from muster.coordinator.core.control.overrides.forecast import (
    TRIED,
    UNDER_WAY,
    MoveForecast,
    forecast_moves,
    forecast_question,
    plan_now,
    plugin_trial,
    wait_for_plan,
)
from muster.coordinator.core.control.overrides.overrides import are_members_protected
from muster.coordinator.core.groups.bookkeeping import audit_entry, keep_entry, next_number
from muster.coordinator.core.groups.state import Incident, Step
from muster.coordinator.core.kinds.registry import KINDS
from muster.coordinator.core.model.effects import CanaryReply
from muster.coordinator.core.model.events import DescribeCanary, EndCanary, LagMeasured, Planned, StartCanary
from muster.coordinator.core.model.ledger import GroupLedger, RebalanceTrigger, settle_entry
from muster.coordinator.core.model.records import (
    CanaryBaseline,
    CanaryForgotten,
    CanaryGuardRule,
    CanaryState,
    CanaryStored,
    CanaryTally,
    HoldsStored,
    RebalanceDecided,
    RebalanceSettled,
    Record,
    SettingsStored,
)
from muster.coordinator.core.model.shadow_scoring import AssignorCandidate, candidate_of, check_may_run
from muster.coordinator.core.model.types import Cause, Outcome, RebalanceEntry, TimerKey
from muster.coordinator.core.settings.assignor_choice import ASSIGNOR, ASSIGNOR_OPTIONS, check_options_taken
from muster.coordinator.core.settings.setting import UNRECORDABLE, is_recordable
from muster.coordinator.errors import CoordinatorError, ErrorCode

# Guards
# ------

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
            f"guard {text!r} cannot be read; expected FIGURE > NUMBER, or NUMBERx for a multiple of the group's own "
            f"mean in the last hour; FIGURE is one of {', '.join(MEANINGS)}"
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


LEAST_MS, MOST_MS = 1_000, 30 * 86_400_000
REST_MS = 10_000
"""While a freeze or a deploy is on nothing is counted, and at its end it is looked so often whether that is over."""
MAX_ENDED = 500
"""Characters that are kept of why it ended."""


def describe_canary(request: DescribeCanary, step: Step) -> None:
    """The one that runs, or ran last."""
    step.reply(request.request_id, canary_reply(step.state.canaries.get(request.group_id)))


def canary_reply(canary: CanaryStored | None) -> CanaryReply:
    if canary is None:
        return CanaryReply()
    idle = {guard_text(guard): idle_reason(guard, canary.baseline) for guard in canary.guards}
    return CanaryReply(canary=canary, idle={guard: why for guard, why in idle.items() if why})


def start_canary(request: StartCanary, step: Step, planned: Planned | None = None) -> None:
    """The candidate plans the group from now on.

    A plugin is tried on the group first, off the loop, and a dry run waits for a plan that cannot be made at once: the
    request comes again with it (`planned`).
    """
    canary = check_canary(request, step)
    foreseen = foresee_candidate(canary, request, step, planned)
    if foreseen is None:
        return
    if not request.validate_only:
        step.keep(canary)
        step.arm(canary_timer(canary.group_id), canary.for_ms)
        ends = "is promoted" if canary.promotes else "waits for an operator"
        keep_canary_entry(
            canary,
            f"{canary.operator} began a canary: {candidate_word(canary)} in place of {canary.former}, then {ends}",
            step,
        )
        replan_for_canary(canary, f"a canary began: {candidate_word(canary)} in place of {canary.former}", step)
    told = replace(canary_reply(canary), moves=foreseen.moves, moves_unknown=foreseen.unknown)
    step.reply(request.request_id, told)


def foresee_candidate(
    canary: CanaryStored, request: StartCanary, step: Step, planned: Planned | None
) -> MoveForecast | None:
    """What its first plan moves, under what is held of the group. None: it waits for that plan; `planned` brings it.

    Raises CoordinatorError for a candidate that makes no plan.
    """
    group = step.state.logged(canary.group_id)
    assert group is not None
    kind, candidate = KINDS[type(group)], AssignorCandidate(canary.assignor, canary.options)
    holds, situation = (
        step.state.holds.get(canary.group_id) or HoldsStored(canary.group_id),
        kind.situation(group, step),
    )
    stays = kind.is_planned_by(group, candidate, step)
    question = None if stays else forecast_question(kind, group, holds, situation, step, candidate)
    trial = plugin_trial(canary.group_id, kind, group, candidate, step)
    answer = planned or (None if question is None else plan_now(question, step))
    if answer is None and (asked := question.asked if question is not None else trial) is not None:
        if trial is None and not request.validate_only:
            return MoveForecast(unknown=UNDER_WAY, unsaid=True)
        if not wait_for_plan(asked, request, step):
            raise CoordinatorError(ErrorCode.POLICY_VIOLATION, "too many requests wait for a plan; try again")
        return None
    if answer is not None and answer.plan is None:
        raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"the candidate {answer.error}; {TRIED}")
    if question is None:
        return MoveForecast()
    assert answer is not None
    return forecast_moves(question, answer, holds, situation)


def check_canary(request: StartCanary, step: Step) -> CanaryStored:
    """Refuse what cannot be tried, or not now."""
    group_id = request.group_id
    candidate = read_canary(request, step)
    group = step.state.logged(group_id)
    if group is None:
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    if (running := step.state.canaries.get(group_id)) is not None and running.runs:
        raise canary_conflict(
            f"group {group_id!r} has a canary already, {candidate_word(running)}; promote it or roll it back first"
        )
    kind = KINDS[type(group)]
    if kind.plans_itself(group):
        raise CoordinatorError(
            ErrorCode.GROUP_PLANS_ITSELF,
            f"group {group_id!r} is planned by its own members, so another assignor has no effect on it; set "
            f"{ASSIGNOR.name} first (muster groups set), or give its members group.protocol=consumer",
        )
    former = kind.assignor(group, step)
    if not former:
        raise invalid_canary(f"group {group_id!r} has no members to try an assignor with; start some first")
    if not LEAST_MS <= request.for_ms <= MOST_MS:
        raise invalid_canary(f"a canary of {request.for_ms} ms; expected {LEAST_MS} to {MOST_MS}")
    if request.lag_floor < 0:
        raise invalid_canary(f"lag floor {request.lag_floor}; expected 0 or more")
    try:
        wanted = guards_of(request.guards)
    except ValueError as error:
        raise invalid_canary(str(error)) from None
    return CanaryStored(
        group_id=group_id,
        state=CanaryState.CANARY,
        assignor=candidate.name,
        options=candidate.options,
        former=former,
        operator=request.operator,
        began_at_ms=step.now_ms,
        for_ms=request.for_ms,
        until_ms=step.now_ms + request.for_ms,
        promotes=request.promotes,
        guards=wanted,
        lag_floor=request.lag_floor,
        baseline=baseline_of(step.state.ledgers.get(group_id), (request.lag_mean, request.lag_span_ms), step.now_ms),
    )


def read_canary(request: StartCanary, step: Step) -> AssignorCandidate:
    try:
        candidate = candidate_of(request.assignor, step.limits)
        check_may_run(candidate, step.limits)
    except ValueError as error:
        raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"the candidate {error}") from None
    if not is_recordable(dict(candidate.options)):
        raise CoordinatorError(ErrorCode.INVALID_CONFIG, f"the candidate {candidate.name!r} has {UNRECORDABLE}")
    if candidate.name in BUILT_IN and candidate.options:
        check_options_taken(candidate.name, candidate.options, "the candidate")
    return candidate


def end_canary(request: EndCanary, step: Step) -> None:
    """By an operator: promoted, or rolled back."""
    canary = step.state.canaries.get(request.group_id)
    if canary is None or not canary.runs:
        was = f"; the last one, {candidate_word(canary)}, is {canary.state.value}" if canary is not None else ""
        raise canary_conflict(f"group {request.group_id!r} has no running canary{was}")
    if request.promote:
        promote_canary(canary, f"{request.operator} promoted it", step)
    else:
        roll_back_canary(canary, f"{request.operator} rolled it back", step)
    step.reply(request.request_id, canary_reply(step.state.canaries[request.group_id]))


def promote_canary(canary: CanaryStored, why: str, step: Step) -> None:
    """The candidate is the setting from here on. It plans already, so nobody has to be planned for anew."""
    finish_canary(canary, CanaryState.PROMOTED, why, step)
    before = step.state.settings.get(canary.group_id)
    values = promoted_settings(before.values if before else {}, canary)
    version = before.version + 1 if before else next_number(canary.group_id, step)
    step.keep(SettingsStored(canary.group_id, version, values))
    keep_canary_entry(canary, f"canary {candidate_word(canary)} was promoted, it is the setting now: {why}", step)


def promoted_settings(values: Mapping[str, JsonValue], canary: CanaryStored) -> dict[str, JsonValue]:
    """The settings with the candidate; options that the former assignor had are not its own."""
    others = {name: value for name, value in values.items() if name not in (ASSIGNOR.name, ASSIGNOR_OPTIONS.name)}
    options = {ASSIGNOR_OPTIONS.name: dict(canary.options)} if canary.options else {}
    return {**others, ASSIGNOR.name: canary.assignor, **options}


def roll_back_canary(canary: CanaryStored, why: str, step: Step) -> None:
    """What planned the group before plans it again."""
    finish_canary(canary, CanaryState.ROLLED_BACK, why, step)
    keep_canary_entry(canary, f"canary {candidate_word(canary)} was rolled back to {canary.former}: {why}", step)
    replan_for_canary(canary, f"canary {candidate_word(canary)} was rolled back: {why}", step)


def finish_canary(canary: CanaryStored, state: CanaryState, why: str, step: Step) -> None:
    step.disarm(canary_timer(canary.group_id))
    step.state.lag_over.pop(canary.group_id, None)
    step.keep(replace(canary, state=state, ended=why[:MAX_ENDED]))


def keep_canary_entry(canary: CanaryStored, detail: str, step: Step) -> None:
    """The ledger's entry, which those who watch the group hear of, too."""
    entry = replace(audit_entry(canary.group_id, Outcome.TRIAL, canary.operator, detail, step), cause=Cause.CANARY)
    keep_entry(canary.group_id, entry, step)
    if (group := step.state.groups.get(canary.group_id)) is not None:
        step.announce(group, entry=entry)


def replan_for_canary(canary: CanaryStored, detail: str, step: Step) -> None:
    group = step.state.logged(canary.group_id)
    KINDS[type(group)].settings_changed(group, RebalanceTrigger(Cause.CANARY, detail, canary.operator), step)


# What happens meanwhile.


CANARY_TIMER = "canary"


def canary_timer(group_id: str) -> TimerKey:
    """Fires when the canary's time is over."""
    return (CANARY_TIMER, group_id)


def forget_canary(group_id: str, step: Step) -> None:
    """Nothing is left that it could be tried on."""
    if group_id in step.state.canaries:
        step.disarm(canary_timer(group_id))
        step.state.lag_over.pop(group_id, None)
        step.keep(CanaryForgotten(group_id))


def end_canary_time(group_id: str, step: Step) -> None:
    canary = step.state.canaries.get(group_id)
    if canary is None or canary.state is not CanaryState.CANARY:
        return
    if are_members_protected(step.state, group_id):
        step.arm(canary_timer(group_id), REST_MS)
        return
    if canary.promotes:
        promote_canary(canary, "its time is over and no guard tripped", step)
        return
    waiting = replace(canary, state=CanaryState.WAITING)
    step.keep(waiting)
    keep_canary_entry(
        waiting,
        f"the time of canary {candidate_word(waiting)} is over, it goes on until it is promoted or rolled back",
        step,
    )


def load_canaries(step: Step) -> None:
    """After a replay each canary goes on with what is left of its time, by a clock that may have been set back."""
    for canary in list(step.state.canaries.values()):
        if canary.state is not CanaryState.CANARY:
            continue
        if canary.until_ms - step.now_ms > canary.for_ms:
            # On record, lest another crash gives it as much time again.
            canary = replace(canary, until_ms=step.now_ms + canary.for_ms)
            step.keep(canary)
        step.arm(canary_timer(canary.group_id), max(0, canary.until_ms - step.now_ms))


def check_no_canary(group_id: str, names: Collection[str], step: Step) -> None:
    """Nobody sets another assignor while one is on trial: it is tried against what was set when it began."""
    canary = step.state.canaries.get(group_id)
    if canary is None or not canary.runs:
        return
    for name in (ASSIGNOR.name, ASSIGNOR_OPTIONS.name):
        if name in names:
            raise canary_conflict(
                f"{name} cannot be changed while group {group_id!r} has a canary, {candidate_word(canary)}; "
                "promote it or roll "
                "it back first"
            )


def take_lag_sample(event: LagMeasured, step: Step) -> None:
    """A sample of the group's total lag."""
    canary = step.state.canaries.get(event.group_id)
    if canary is None or not canary.runs:
        return
    if are_members_protected(step.state, event.group_id):
        step.state.lag_over.pop(event.group_id, None)
        return
    trip = tripped_lag_guard(canary, event.lag)
    held = step.state.lag_over.get(canary.group_id, 0) + 1 if trip is not None else 0
    step.state.lag_over[canary.group_id] = held
    if trip is not None and held >= HELD_SAMPLES:
        roll_back_canary(canary, f"{trip.sentence(canary.baseline)}, {held} samples in a row", step)


def watch_canaries(step: Step) -> bool:
    """Let canaries see what the step has decided, once it is all there. True: a guard tripped, and decided more."""
    ended = False
    concerned = {getattr(record, "group_id", "") for record in step.out.records if isinstance(record, SEEN)}
    concerned |= {incident.group_id for incident in step.incidents}
    for group_id in sorted(concerned & step.state.canaries.keys()):
        canary = step.state.canaries[group_id]
        if not canary.runs:
            continue
        rests = are_members_protected(step.state, group_id)
        seen = tally_while_resting(canary.tally, group_id, step) if rests else tally_step(canary.tally, group_id, step)
        if seen == canary.tally:
            continue
        canary = replace(canary, tally=seen)
        step.keep(canary)
        if (trip := tripped_guard(canary)) is not None:
            roll_back_canary(canary, trip_reason(trip, group_id, canary, step), step)
            ended = True
    return ended


SEEN = (RebalanceDecided, RebalanceSettled)


def trip_reason(trip: GuardTrip, group_id: str, canary: CanaryStored, step: Step) -> str:
    said = trip.sentence(canary.baseline)
    words = [
        incident.detail
        for incident in step.incidents
        if incident.group_id == group_id and trip.guard.figure in (EXPIRED, PLAN_FAILURES)
    ]
    return f"{said} ({words[-1]})" if words else said


def tally_while_resting(tally: CanaryTally, group_id: str, step: Step) -> CanaryTally:
    """What is planned while the canary rests is no figure of it, nor is the time without an owner that comes of it."""
    decided = [record for record in step.out.records if isinstance(record, RebalanceDecided) and not record.amends]
    plans = [each.entry for each in decided if each.group_id == group_id and each.entry.outcome is Outcome.COMPLETED]
    return replace(tally, own_round=plans[-1].number) if plans else tally


def tally_step(tally: CanaryTally, group_id: str, step: Step) -> CanaryTally:
    """The tally with what this step has done to the group."""
    for record in step.out.records:
        tally = tally_record(tally, group_id, record)
    for incident in step.incidents:
        if incident.group_id == group_id:
            tally = tally_incident(tally, incident)
    return tally


def tally_incident(tally: CanaryTally, incident: Incident) -> CanaryTally:
    if incident.lost_member:
        return replace(tally, expired=tally.expired + 1)
    return replace(tally, plan_failures=tally.plan_failures + 1)


def tally_record(tally: CanaryTally, group_id: str, record: Record) -> CanaryTally:
    if isinstance(record, RebalanceDecided) and record.group_id == group_id and not record.amends:
        return tally_plan(tally, record.entry)
    if isinstance(record, RebalanceSettled) and record.group_id == group_id:
        settlement = record.settlement
        if tally.own_round and settlement.number > tally.own_round:
            unowned_ms = tally.unowned_ms + settlement.unowned_partition_ms
            return replace(tally, settled=tally.settled + 1, unowned_ms=unowned_ms)
    return tally


def tally_plan(tally: CanaryTally, entry: RebalanceEntry) -> CanaryTally:
    """The first plan is the round that the canary itself starts, with what is given out of it afterwards (KIP-429)."""
    if entry.outcome is not Outcome.COMPLETED:
        return tally
    follows = tally.own_round and not tally.rebalances and entry.cause is Cause.REVOCATION_FOLLOW_UP
    if not tally.own_round or follows:
        return replace(tally, own_round=entry.number)
    return replace(tally, rebalances=tally.rebalances + 1, moves=tally.moves + len(entry.moves))


def candidate_word(canary: CanaryStored) -> str:
    return AssignorCandidate(canary.assignor, canary.options).word


def canary_conflict(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_UPDATE_VERSION, message)


def invalid_canary(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_REQUEST, message)
