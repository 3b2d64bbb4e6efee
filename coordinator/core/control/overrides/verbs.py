"""Freeze, deploy, drain and pin, asked for and ended: one record and one entry of the ledger for each change.

What follows for the group's plan is a rebalance of its own, or nothing. A dry run goes the same way as far as its
sentence.
"""

from dataclasses import replace

from muster.coordinator.core.control.overrides import asking, ending, standing
from muster.coordinator.core.control.overrides.ground import OverrideContext, override_context
from muster.coordinator.core.groups.entries import keep_audit_entry
from muster.coordinator.core.groups.group import group_id_given
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.control_events import DescribeHolds, HoldGroup, ResumeGroup
from muster.coordinator.core.model.correction import drained_members
from muster.coordinator.core.model.effects import HoldsReply
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.types import Cause, Outcome, TimerKey
from muster.coordinator.core.model.values import HoldsStored
from muster.coordinator.errors import CoordinatorError, ErrorCode

THE_COORDINATOR = "the coordinator"


def hold_group(request: HoldGroup, step: Step) -> None:
    """Freeze, deploy, drain or pin, if the version is still the expected one. Refusals change nothing."""
    group_id_given(request.group_id)
    found = override_context(request.group_id, request.operator, step, request.seen)
    check_version(request, found)
    begun = asking.begin_override(request.ask, found, request.for_ms)
    after = begun.after
    if not request.validate_only:
        after = change_overrides(found, begun.after, (begun.sentence,), begun.cause)
    step.reply(
        request.request_id, HoldsReply(holds=after, sentence=begun.sentence, draining=remaining_drains(found, after))
    )


def resume_group(request: ResumeGroup, step: Step) -> None:
    """End what is named, or all of it. What is not held has ended before."""
    group_id_given(request.group_id)
    found = override_context(request.group_id, request.operator, step)
    check_version(request, found)
    ended = ending.end_by_hand(request.end, found)
    after = ended.after
    if ended.sentences and not request.validate_only:
        after = change_overrides(found, ended.after, ended.sentences, ended.cause)
    sentence = "; ".join(ended.sentences) or "nothing of the kind is held"
    step.reply(request.request_id, HoldsReply(holds=none_if_nothing(after), sentence=sentence))


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
        standing.forget_overrides(group_id, step)
        return
    found = override_context(group_id, THE_COORDINATOR, step)
    ended = ending.end_by_time(found, step.now_ms)
    if ended.sentences:
        change_overrides(found, ended.after, ended.sentences, ended.cause)
    else:
        standing.watch_override_ends(found.holds, step)
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
    standing.keep_overrides(after, step)
    if cause is not None:
        found.kind.replan(group, RebalanceTrigger(cause, detail, culprit), step)
    elif after.drains:  # what a pin kept with a drained member may go now
        standing.note_settled(group.id, step)
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
