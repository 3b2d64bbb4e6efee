"""A canary: another assignor plans the group for a while, is watched, and stays or goes.

It lies over the group's settings and changes none of them until it is promoted: a roll-back has nothing to restore, and
`who.wanted_assignor` is the only rule that it bends. Its record holds all that it is judged by, so a crash in between
costs nothing but the samples of lag that were over in a row. While an operator freezes or deploys the group it rests.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from muster.assignors.api import JsonValue
from muster.assignors.registry import BUILT_IN
from muster.coordinator.core.control.overrides.standing import are_members_protected
from muster.coordinator.core.control.trials import guards
from muster.coordinator.core.groups.entries import audit_entry, keep_entry, next_number
from muster.coordinator.core.groups.gone import canary_timer
from muster.coordinator.core.groups.state import Incident, Step
from muster.coordinator.core.kinds.kinds import KINDS
from muster.coordinator.core.model.candidates import AssignorCandidate, candidate_of, check_may_run
from muster.coordinator.core.model.core_records import RebalanceDecided, RebalanceSettled, Record, SettingsStored
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.replies import CanaryReply
from muster.coordinator.core.model.trial_events import DescribeCanary, EndCanary, LagMeasured, StartCanary
from muster.coordinator.core.model.trial_records import CanaryState, CanaryStored, CanaryTally
from muster.coordinator.core.model.types import Cause, Outcome, RebalanceEntry
from muster.coordinator.core.settings.assignor import ASSIGNOR, ASSIGNOR_OPTIONS, check_options_taken
from muster.coordinator.core.settings.setting import UNRECORDABLE, is_recordable
from muster.coordinator.errors import CoordinatorError, ErrorCode

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
    idle = {guards.guard_text(guard): guards.idle_reason(guard, canary.baseline) for guard in canary.guards}
    return CanaryReply(canary=canary, idle={guard: why for guard, why in idle.items() if why})


def start_canary(request: StartCanary, step: Step) -> None:
    """The candidate plans the group from now on."""
    canary = check_canary(request, step)
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
    step.reply(request.request_id, canary_reply(canary))


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
        wanted = guards.guards_of(request.guards)
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
        baseline=guards.baseline_of(
            step.state.ledgers.get(group_id), (request.lag_mean, request.lag_span_ms), step.now_ms
        ),
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
        raise canary_conflict(f"group {request.group_id!r} has no canary that runs{was}")
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
    trip = guards.tripped_lag_guard(canary, event.lag)
    held = step.state.lag_over.get(canary.group_id, 0) + 1 if trip is not None else 0
    step.state.lag_over[canary.group_id] = held
    if trip is not None and held >= guards.HELD_SAMPLES:
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
        if (trip := guards.tripped_guard(canary)) is not None:
            roll_back_canary(canary, trip_reason(trip, group_id, canary, step), step)
            ended = True
    return ended


SEEN = (RebalanceDecided, RebalanceSettled)


def trip_reason(trip: guards.GuardTrip, group_id: str, canary: CanaryStored, step: Step) -> str:
    said = trip.sentence(canary.baseline)
    words = [
        incident.detail
        for incident in step.incidents
        if incident.group_id == group_id and trip.guard.figure in (guards.EXPIRED, guards.PLAN_FAILURES)
    ]
    return f"{said} ({words[-1]})" if words else said


def tally_while_resting(tally: CanaryTally, group_id: str, step: Step) -> CanaryTally:
    """What is planned while the canary rests is no figure of it, nor is the time without an owner that comes of it."""
    decided = [record for record in step.out.records if isinstance(record, RebalanceDecided)]
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
    if isinstance(record, RebalanceDecided) and record.group_id == group_id:
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
