"""Operator commands that begin and end overrides: one record and one ledger entry for each change.

What follows for the group's plan is a rebalance of its own, or nothing. A dry run takes the same path up to its
sentence. Overrides end by command, by time, or, for a deploy, when every member is back. After a replay no share
waits that its former owner has again, and all ends are watched.

Sentences say what partitions that would move carry: as the group's balance has measured it, otherwise as the node has
seen it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from muster.assignors.api import TopicPartition
from muster.coordinator.core.control.overrides import overrides
from muster.coordinator.core.control.overrides.forecast import (
    UNDER_WAY,
    MoveForecast,
    forecast_moves,
    forecast_question,
    plan_now,
    wait_for_plan,
)
from muster.coordinator.core.groups.bookkeeping import keep_audit_entry
from muster.coordinator.core.groups.group import GroupData, group_id_given
from muster.coordinator.core.groups.kind import GroupKind
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.kinds.registry import KINDS
from muster.coordinator.core.model.effects import HoldsReply
from muster.coordinator.core.model.events import (
    AskDeploy,
    AskDrain,
    AskFreeze,
    AskPin,
    DescribeHolds,
    EndDeploy,
    EndFreeze,
    HoldGroup,
    OverrideEnd,
    Planned,
    ResumeGroup,
    Undrain,
    Unpin,
)
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.plan_correction import (
    GroupSituation,
    correct_with_overrides,
    drained_members,
    partition_owner_map,
    partition_set,
)
from muster.coordinator.core.model.records import (
    By,
    Deploy,
    Drain,
    Freeze,
    HeldShare,
    HoldsEnded,
    HoldsStored,
    MeasuredRates,
    Orphans,
    Pin,
    Until,
)
from muster.coordinator.core.model.types import Cause, Outcome, TimerKey
from muster.coordinator.core.settings.setting import HOLD_MS
from muster.coordinator.errors import CoordinatorError, ErrorCode

# What moving partitions carry
# ----------------------------


def measured_rates(state: ShardState, group_id: str) -> MeasuredRates | None:
    """What the group's balance knows by now; None where it is off, or has not looked twice."""
    balancing = state.balancing.get(group_id)
    loads = None if balancing is None else balancing.loads
    if loads is None or not loads.rated:
        return None
    carried = loads.last()
    rates, lags = (loads.by_topic(column) for column in (carried.pace, carried.lag))
    return {topic: (rates[topic].tolist(), lags[topic].astype(int).tolist()) for topic in rates}


def describe_load(moved: Collection[TopicPartition], group: Iterable[TopicPartition], seen: MeasuredRates) -> str:
    """What `moved` carries of all that the group has; empty where nobody has looked, or nothing moves.

    >>> seen = {"t": ([10.0, 2.5], [0, 400])}
    >>> describe_load([("t", 1)], [("t", 0), ("t", 1)], seen)
    '; what moves carries 2.5 of 12.5 records/s, and 400 of 400 records that wait'
    >>> describe_load([("t", 0)], [("t", 0)], {"t": ([0.0], [0])})
    '; nothing is written or waits in the whole group now'
    """
    if not moved or not any(topic in seen for topic, _ in moved):
        return ""
    (rate, lag), (of_rate, of_lag) = total_load(moved, seen), total_load(group, seen)
    if not (of_rate or of_lag):
        return "; nothing is written or waits in the whole group now"
    return f"; what moves carries {rate:.4g} of {of_rate:.4g} records/s, and {lag} of {of_lag} records that wait"


def total_load(cells: Iterable[TopicPartition], seen: MeasuredRates) -> tuple[float, int]:
    """Of partitions that nobody has looked at nothing is known."""
    rate, lag = 0.0, 0
    for topic, partition in cells:
        rates, lags = seen.get(topic, ((), ()))
        if partition < len(rates):
            rate, lag = rate + rates[partition], lag + lags[partition]
    return rate, lag


# The group that a command is for
# -------------------------------


@dataclass(slots=True)
class OverrideContext:
    """One group and its holds. `operator` is who asks, and from where; "the coordinator" when time does."""

    group: GroupData
    holds: HoldsStored
    operator: str
    step: Step
    seen: MeasuredRates | None = None
    """What partitions carry, if the node has looked."""
    situation: GroupSituation = field(init=False)
    """Who its members are, what they read and what they have."""

    def __post_init__(self) -> None:
        self.situation = self.kind.situation(self.group, self.step)

    @property
    def kind(self) -> GroupKind[Any]:
        return KINDS[type(self.group)]

    @property
    def plans_itself(self) -> bool:
        return self.kind.plans_itself(self.group)

    @property
    def at_rest(self) -> bool:
        return self.kind.at_rest(self.group)

    @property
    def owners(self) -> dict[TopicPartition, str]:
        return {cell: member_id for member_id, cell in partition_owner_map(self.situation.had)}

    def owners_under(self, after: HoldsStored, budget: int | None = None) -> dict[TopicPartition, str]:
        """Who would have what if the plan that holds were made under these; `budget` None: the group's own."""
        situation = self.situation if budget is None else replace(self.situation, budget=budget)
        return {
            cell: member_id
            for member_id, cell in partition_owner_map(correct_with_overrides(situation.had, after, situation).plan)
        }

    def moved_by(self, after: HoldsStored, budget: int | None = None) -> dict[TopicPartition, str]:
        """What would change hands then: partition -> its next owner."""
        had, then = self.owners, self.owners_under(after, budget)
        return {cell: member_id for cell, member_id in then.items() if cell in had and had[cell] != member_id}

    def carrying(self, moved: Collection[TopicPartition]) -> str:
        """What these carry of all that the group has, to be said after what moves; empty where nobody knows."""
        seen = measured_rates(self.step.state, self.group.id) or self.seen
        return describe_load(moved, self.owners, seen) if seen else ""

    def planned_here(self, verb: str) -> None:
        """Raises for a group whose members make their plans: the coordinator has no hand in those."""
        if self.plans_itself:
            raise CoordinatorError(
                ErrorCode.GROUP_PLANS_ITSELF,
                f"group {self.group.id!r} is planned by its own leader, so the coordinator cannot {verb}; let the "
                f"coordinator plan (muster groups set {self.group.id} assignor=NAME), or use KIP-848 "
                "(group.protocol=consumer)",
            )


def override_context(group_id: str, operator: str, step: Step, seen: MeasuredRates | None = None) -> OverrideContext:
    """Raises GROUP_ID_NOT_FOUND: what does not exist cannot be held."""
    group = step.state.logged(group_id)
    if group is None:
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    return OverrideContext(group, overrides.overrides_of(step.state, group_id), operator, step, seen)


def count_of(count: int, what: str) -> str:
    """
    >>> count_of(1, "partition"), count_of(2, "partition")
    ('1 partition', '2 partitions')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


# How overrides begin
# -------------------

DEPLOY_MS = 15 * 60_000
"""A deploy that nobody ends is over then."""
DEPLOY_HOLD_MS = 120_000
"""How long a share waits for its heir in a deploy, where the group's `hold.ms` says nothing."""

MAX_FOR_MS = 366 * 86_400_000
MAX_DRAINS = 1_000
MAX_PINS = 1_000
MAX_EXPECTED = 100_000
MAX_NAME_CHARS = 249


@dataclass(frozen=True, slots=True)
class BegunOverride:
    """`cause` None: the plan that holds still does. `said`: partitions whose move the sentence tells."""

    after: HoldsStored
    sentence: str
    cause: Cause | None = None
    said: frozenset[TopicPartition] = frozenset()


def begin_override(ask: Any, context: OverrideContext, for_ms: int | None) -> BegunOverride:
    """Raises CoordinatorError for what cannot be."""
    if for_ms is not None and not 0 < for_ms <= MAX_FOR_MS:
        raise invalid_override(f"for_ms is {for_ms}; expected 1 to {MAX_FOR_MS} (a year), or nothing for no end")
    return VERBS[type(ask)](ask, context, for_ms)


def override_end(context: OverrideContext, for_ms: int | None) -> Until | None:
    return None if for_ms is None else Until(context.step.now_ms + for_ms, for_ms)


def begin_freeze(ask: AskFreeze, context: OverrideContext, for_ms: int | None) -> BegunOverride:
    itself = context.plans_itself
    if itself and ask.orphans is Orphans.GIVE:
        context.planned_here("reassign partitions that lose their owner (it can with --orphans keep)")
    orphans = ask.orphans or (Orphans.KEEP if itself else Orphans.GIVE)
    after = replace(context.holds, freeze=Freeze(orphans, override_end(context, for_ms)))
    owners = context.owners
    living = len(set(owners.values()))
    words = [
        f"{count_of(living, 'member')} {'keeps' if living == 1 else 'keep'} {count_of(len(owners), 'partition')}",
        "new members wait" if itself else "new members get none",
        "partitions that lose their owner "
        f"{'stay unowned' if orphans is Orphans.KEEP else 'go to the member with the fewest'}",
    ]
    if context.at_rest:
        return BegunOverride(after, "; ".join(words))
    if itself:
        return BegunOverride(after, "; ".join([*words, "it takes effect when the current rebalance has ended"]))
    return BegunOverride(
        after, "; ".join([*words, "partitions that were on their way stay where they are"]), Cause.OPERATOR
    )


def begin_deploy(ask: AskDeploy, context: OverrideContext, for_ms: int | None) -> BegunOverride:
    if not 0 < ask.expect <= MAX_EXPECTED:
        raise invalid_override(f"expect is {ask.expect}; expected how many members restart, 1 to {MAX_EXPECTED}")
    context.planned_here("keep a member's partitions for its replacement")
    hold_ms = HOLD_MS.of(context.step.state, context.group.id) or DEPLOY_HOLD_MS
    ends = override_end(context, DEPLOY_MS if for_ms is None else for_ms)
    after = replace(context.holds, deploy=Deploy(ask.expect, hold_ms, until=ends))
    owners = context.owners
    return BegunOverride(
        after,
        f"{ask.expect} of {count_of(len(context.situation.who), 'member')} may restart: the partitions of each "
        f"wait {hold_ms} ms for the next member that joins; otherwise none of "
        f"{count_of(len(owners), 'partition')} moves",
    )


def begin_drain(ask: AskDrain, context: OverrideContext, for_ms: int | None) -> BegunOverride:
    check_name("name", ask.name)
    context.planned_here("take a member's partitions away")
    others = tuple(each for each in context.holds.drains if (each.by, each.name) != (ask.by, ask.name))
    check_at_most("drains", len(others) + 1, MAX_DRAINS)
    after = replace(context.holds, drains=(*others, Drain(ask.by, ask.name, override_end(context, for_ms))))
    who = context.situation.who
    drained = drained_members(after, context.situation.who)
    if who and len(drained) == len(who):
        raise invalid_override(
            f"group {context.group.id!r} would have no member left: all {len(who)} members would be drained"
        )
    meant = [member_id for member_id, each in who.items() if each.is_named(ask.by, ask.name)]
    if not meant:
        return BegunOverride(
            after,
            f"no member has {ask.by.value} {ask.name!r} at the moment; members that join with it get no partitions",
        )
    owners = context.owners
    held = [cell for cell, member_id in owners.items() if member_id in meant]
    leaving = [cell for cell in context.moved_by(after) if owners[cell] in meant]
    pace = f", at most {context.situation.budget} at a time" if context.situation.budget else ""
    sentence = (
        f"{count_of(len(meant), 'member')} with {ask.by.value} {ask.name!r} {'has' if len(meant) == 1 else 'have'} "
        f"{count_of(len(held), 'partition')}: {len(leaving)} move now{pace}, "
        f"to {count_of(len(who) - len(drained), 'member')}{context.carrying(leaving)}"
    )
    return BegunOverride(after, sentence, Cause.DRAINED if leaving and not after.calm else None, frozenset(leaving))


def begin_pin(ask: AskPin, context: OverrideContext, for_ms: int | None) -> BegunOverride:
    check_name("name", ask.name)
    context.planned_here("give a partition to a certain member")
    where = f"{ask.topic}-{ask.partition}"
    state = context.step.state
    if state.catalog_known and not 0 <= ask.partition < state.partitions.get(ask.topic, 0):
        raise CoordinatorError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"there is no {where}: topic {ask.topic!r} has {state.partitions.get(ask.topic, 0)} partitions",
        )
    others = tuple(each for each in context.holds.pins if (each.topic, each.partition) != (ask.topic, ask.partition))
    check_at_most("pins", len(others) + 1, MAX_PINS)
    after = replace(
        context.holds, pins=(*others, Pin(ask.topic, ask.partition, ask.name, override_end(context, for_ms)))
    )
    meant = [member_id for member_id, each in context.situation.who.items() if each.is_named(By.ANY, ask.name)]
    owner = context.owners.get((ask.topic, ask.partition))
    if not meant:
        return BegunOverride(
            after,
            f"no member is called {ask.name!r} at the moment; {where} goes to the first that joins with that name",
        )
    if owner in meant:
        return BegunOverride(after, f"{owner} has {where}, and keeps it")
    taker = context.owners_under(after).get((ask.topic, ask.partition))
    if taker not in meant:
        why = "nothing moves for now" if after.calm else f"{' and '.join(meant)} cannot have it"
        return BegunOverride(after, f"{where} stays with {owner or 'no member'}: {why}")
    # What else moves, moves for other reasons: drains go on meanwhile.
    back = {cell for cell in context.moved_by(after) if context.owners[cell] == taker}
    more = f", and {count_of(len(back), 'partition')} the other way" if back else ""
    moved = back | {(ask.topic, ask.partition)}
    sentence = f"{where} moves from {owner or 'no member'} to {taker}{more}{context.carrying(moved)}"
    return BegunOverride(after, sentence, Cause.PIN_CHANGED, frozenset(moved))


VERBS: Mapping[type[Any], Callable[[Any, OverrideContext, int | None], BegunOverride]] = {
    AskFreeze: begin_freeze,
    AskDeploy: begin_deploy,
    AskDrain: begin_drain,
    AskPin: begin_pin,
}


def check_name(field: str, value: str) -> None:
    if not 0 < len(value) <= MAX_NAME_CHARS:
        raise invalid_override(f"{field} has {len(value)} characters; it needs 1 to {MAX_NAME_CHARS}")


def check_at_most(what: str, count: int, most: int) -> None:
    if count > most:
        raise CoordinatorError(ErrorCode.POLICY_VIOLATION, f"a group may have {most} {what}; end some first")


def invalid_override(message: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_REQUEST, message)


# How overrides end
# -----------------


@dataclass(frozen=True, slots=True)
class EndedOverrides:
    """What is left. `sentences` empty: nothing ended. `cause` None: the plan that holds still does."""

    after: HoldsStored
    sentences: tuple[str, ...] = ()
    cause: Cause | None = None


def end_by_hand(end: OverrideEnd | None, context: OverrideContext) -> EndedOverrides:
    """What the operator names; all of it for None. What is not held ends without a word."""
    holds = context.holds
    match end:
        case None:
            return describe_end(holds, HoldsStored(holds.group_id))
        case EndFreeze():
            return describe_end(holds, replace(holds, freeze=None))
        case EndDeploy():
            return describe_end(holds, replace(holds, deploy=None, shares=()))
        case Undrain(by, name):
            drains = tuple(each for each in holds.drains if (each.by, each.name) != (by, name))
            return describe_end(holds, replace(holds, drains=drains))
        case Unpin(topic, partition):
            pins = tuple(each for each in holds.pins if (each.topic, each.partition) != (topic, partition))
            return describe_end(holds, replace(holds, pins=pins))


def end_by_time(context: OverrideContext, now_ms: int) -> EndedOverrides:
    """Whatever is due; a deploy also when everybody is back and has what it is to have."""
    holds, deploy, freeze = context.holds, context.holds.deploy, context.holds.freeze
    all_back = deploy is not None and deploy.back >= deploy.expect and context.at_rest
    over = deploy is not None and (all_back or is_due(deploy.until, now_ms))
    after = replace(
        holds,
        freeze=None if freeze is not None and is_due(freeze.until, now_ms) else freeze,
        deploy=None if over else deploy,
        drains=tuple(each for each in holds.drains if not is_due(each.until, now_ms)),
        pins=tuple(each for each in holds.pins if not is_due(each.until, now_ms)),
        shares=() if over else tuple(each for each in holds.shares if not is_due(each.until, now_ms)),
    )
    return describe_end(holds, after)


def is_due(until: Until | None, now_ms: int) -> bool:
    return until is not None and until.at_ms <= now_ms


def describe_end(before: HoldsStored, after: HoldsStored) -> EndedOverrides:
    """What the difference means: a sentence for each verb that is over, and the first cause that calls for a plan."""
    told: list[tuple[str, Cause | None]] = []
    if before.freeze is not None and after.freeze is None:
        told.append(("the freeze is over", Cause.THAW))
    if before.deploy is not None and after.deploy is None:
        back, expect = before.deploy.back, before.deploy.expect
        told.append((f"the deploy is over: {back} of {expect} came back", Cause.DEPLOY_OVER))
    told += [
        (f"{drain.by.value} {drain.name!r} is no longer drained", Cause.DRAINED)
        for drain in entries_gone(before.drains, after.drains)
    ]
    told += [
        (f"{pin.topic}-{pin.partition} is no longer pinned to {pin.name!r}", None)
        for pin in entries_gone(before.pins, after.pins)
    ]
    told += [(unclaimed(share), Cause.MEMBER_LEFT) for share in entries_gone(before.shares, after.shares)]
    causes = [cause for _, cause in told if cause is not None]
    # While nobody may lose anything, a plan could at most give out what nobody has.
    still = after.freeze is not None and after.freeze.orphans is Orphans.KEEP
    return EndedOverrides(after, tuple(text for text, _ in told), causes[0] if causes and not still else None)


def unclaimed(share: HeldShare) -> str:
    who = f"{share.member_id} ({share.client_id or 'no client id'})"
    return f"{count_of(share.size, 'partition')} that {who} left no longer wait for a replacement"


T = TypeVar("T", Drain, Pin, HeldShare)


def entries_gone(before: Sequence[T], after: Sequence[T]) -> list[T]:
    return [each for each in before if each not in after]


# Commands
# --------

THE_COORDINATOR = "the coordinator"


def hold_group(request: HoldGroup, step: Step, planned: Planned | None = None) -> None:
    """Freeze, deploy, drain or pin, if the version is still the expected one. Refusals change nothing.

    A dry run waits for a plan that cannot be made at once, and comes again with it (`planned`).
    """
    group_id_given(request.group_id)
    found = override_context(request.group_id, request.operator, step, request.seen)
    check_version(request, found)
    begun = begin_override(request.ask, found, request.for_ms)
    foreseen = foresee_moves(found, begun.after, begun.cause, request, planned)
    if foreseen is None:
        return
    sentence = begun.sentence + foreseen.describe_others(begun.said)
    after = begun.after
    if not request.validate_only:
        after = change_overrides(found, begun.after, (sentence,), begun.cause)
    draining = remaining_drains(found, after)
    told = HoldsReply(
        holds=after, sentence=sentence, draining=draining, moves=foreseen.moves, moves_unknown=foreseen.unknown
    )
    step.reply(request.request_id, told)


def resume_group(request: ResumeGroup, step: Step, planned: Planned | None = None) -> None:
    """End what is named, or all of it. What is not held has ended before. A dry run waits as for `hold_group`."""
    group_id_given(request.group_id)
    found = override_context(request.group_id, request.operator, step)
    check_version(request, found)
    ended = end_by_hand(request.end, found)
    foreseen = foresee_moves(found, ended.after, ended.cause, request, planned)
    if foreseen is None:
        return
    sentence = ("; ".join(ended.sentences) or "there is nothing to end") + foreseen.describe_others(())
    after = ended.after
    if ended.sentences and not request.validate_only:
        after = change_overrides(found, ended.after, (sentence,), ended.cause)
    told = HoldsReply(
        holds=none_if_nothing(after), sentence=sentence, moves=foreseen.moves, moves_unknown=foreseen.unknown
    )
    step.reply(request.request_id, told)


def foresee_moves(
    found: OverrideContext,
    after: HoldsStored,
    cause: Cause | None,
    request: HoldGroup | ResumeGroup,
    planned: Planned | None,
) -> MoveForecast | None:
    """What a change to `after` moves. None: a dry run waits for the plan; `planned` brings it.

    A command that is carried out does not wait: of a plan that cannot be made at once it says nothing.
    """
    if cause is None:
        return MoveForecast()
    if found.plans_itself:
        return MoveForecast(unknown="the group's own members plan it", unsaid=True)
    question = forecast_question(found.kind, found.group, after, found.situation, found.step)
    if question is None:
        return MoveForecast()
    if (answer := planned or plan_now(question, found.step)) is not None:
        return forecast_moves(question, answer, after, found.situation)
    if not request.validate_only:
        return MoveForecast(unknown=UNDER_WAY, unsaid=True)
    if wait_for_plan(question.asked, request, found.step):
        return None
    return MoveForecast(unknown="too many dry runs wait for a plan; try again")


def describe_holds(request: DescribeHolds, step: Step) -> None:
    """What is held; of a group that nobody knows, nothing."""
    group_id_given(request.group_id)
    holds = step.state.holds.get(request.group_id)
    known = holds is not None and step.state.logged(request.group_id) is not None
    left = remaining_drains(override_context(request.group_id, "", step), holds) if holds is not None and known else ()
    step.reply(request.request_id, HoldsReply(holds=holds, draining=left))


def fire_override_timer(key: TimerKey, step: Step) -> None:
    """Something ends by itself, or the group has come to rest and the next partitions of a drain may go."""
    group_id = key[1]
    if group_id not in step.state.holds:
        return
    if step.state.logged(group_id) is None:
        # What of the log was damaged was all that there was of the group.
        overrides.forget_overrides(group_id, step)
        return
    found = override_context(group_id, THE_COORDINATOR, step)
    ended = end_by_time(found, step.now_ms)
    if ended.sentences:
        change_overrides(found, ended.after, ended.sentences, ended.cause)
    else:
        overrides.watch_override_ends(found.holds, step)
        continue_drain(found, step)


def continue_drain(found: OverrideContext, step: Step) -> None:
    """The next partitions of drained members, once those before have arrived. No leader would hear of it."""
    holds, owners = found.holds, found.owners
    if not holds.drains or holds.calm or found.plans_itself or not found.at_rest:
        return
    drained = drained_members(holds, found.situation.who)
    if any(owners[cell] in drained for cell in found.moved_by(holds)):
        left = sum(owner in drained for owner in owners.values())
        found.kind.replan(
            found.group, RebalanceTrigger(Cause.DRAINED, f"{left} partitions are still to be drained"), step
        )


def check_version(request: HoldGroup | ResumeGroup, found: OverrideContext) -> None:
    if request.expected_version not in (None, found.holds.version):
        raise CoordinatorError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"what is held of group {request.group_id!r} is at version {found.holds.version}, version "
            f"{request.expected_version} was expected: somebody else changed it; look at it again",
        )


def change_overrides(
    found: OverrideContext, after: HoldsStored, sentences: tuple[str, ...], cause: Cause | None
) -> HoldsStored:
    """Keep it, tell the ledger, and plan anew where that is called for. Returns what is held then."""
    step, group = found.step, found.group
    detail = f"{found.operator}: {'; '.join(sentences)}"
    culprit = "" if found.operator == THE_COORDINATOR else found.operator
    number = keep_audit_entry(group, Outcome.HELD, RebalanceTrigger(cause or Cause.OPERATOR, detail, culprit), step)
    after = replace(after, version=0 if after.nothing else number)
    overrides.keep_overrides(after, step)
    if cause is not None:
        found.kind.replan(group, RebalanceTrigger(cause, detail, culprit), step)
    elif after.drains:  # what a pin kept with a drained member may go now
        overrides.note_settled(group.id, step)
    return after


def remaining_drains(found: OverrideContext, holds: HoldsStored) -> tuple[int, ...]:
    """How many partitions each drain has still to move: neither what is pinned, nor what nobody else reads."""
    if not holds.drains:
        return ()
    owners, who = found.owners, found.situation.who
    leaving = [who[owners[cell]] for cell in found.moved_by(replace(holds, freeze=None, deploy=None, shares=()), 0)]
    return tuple(sum(each.is_named(drain.by, drain.name) for each in leaving) for drain in holds.drains)


def none_if_nothing(holds: HoldsStored) -> HoldsStored | None:
    return None if holds.nothing else holds


# After a replay
# --------------


def load_overrides(step: Step) -> None:
    """Groups have been loaded: nothing waits that its former owner has, and all ends are watched."""
    for holds in list(step.state.holds.values()):
        if holds.shares:
            without_returned_shares(holds, step)
    overrides.rewatch_overrides(step)


def take_lost_overrides(tombstone: HoldsEnded, step: Step) -> None:
    """The record of what was held cannot be read: nobody knows what the last plan kept for whom, or until when.

    Nothing else would call for another plan, so it is over now; the ledger tells, for another crash may come first.
    """
    group = step.state.logged(tombstone.group_id)
    if group is not None:
        trigger = RebalanceTrigger(Cause.THAW, "what was held of the group is lost: its record in the log is damaged")
        keep_audit_entry(group, Outcome.HELD, trigger, step)
        KINDS[type(group)].replan(group, trigger, step)
    step.keep(tombstone)


def without_returned_shares(holds: HoldsStored, step: Step) -> None:
    """A classic member that goes during a rebalance leaves no record but its share. If a crash takes the rebalance the
    member is in the group again, with all that it had: nobody may be its heir. It may even live."""
    group = step.state.logged(holds.group_id)
    if group is None:
        return
    had = set(partition_owner_map(KINDS[type(group)].situation(group, step).had))
    waiting = tuple(
        share for share in holds.shares if not any((share.member_id, cell) in had for cell in partition_set(share))
    )
    if waiting != holds.shares:
        overrides.keep_overrides(replace(holds, shares=waiting), step)
