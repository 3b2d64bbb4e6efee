"""LeaveGroup, by a member for itself or by an operator for others."""

import dataclasses

from muster.coordinator.core.classic import history
from muster.coordinator.core.classic.checks import check_not_dead
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.classic.rebalance import maybe_complete_join, rebalance_or_wait, remove_member
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.core_events import LeaveGroup
from muster.coordinator.core.model.effects import LeaveReply, MemberReply
from muster.coordinator.core.model.ledger import Departure, RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.types import Cause, MemberIdentity
from muster.coordinator.errors import CoordinatorError, ErrorCode


def leave_group(group: ClassicGroup, request: LeaveGroup, step: Step) -> None:
    """Take the listed members out; one rebalance follows for the whole batch."""
    check_not_dead(group)
    leavers = is_everyone(group) if request.everyone else request.members
    triggers: list[RebalanceTrigger] = []
    replies = tuple(remove_listed_member(group, who, request.operator, triggers, step) for who in leavers)
    step.reply(request.request_id, LeaveReply(members=replies))
    if triggers:
        rebalance_or_wait(group, combine_triggers(triggers), step)
    elif any(reply.code is ErrorCode.NONE for reply in replies):
        maybe_complete_join(group, step)


def is_everyone(group: ClassicGroup) -> tuple[MemberIdentity, ...]:
    return tuple(MemberIdentity(member.id) for member in group.members.values())


def remove_listed_member(
    group: ClassicGroup, who: MemberIdentity, operator: str, triggers: list[RebalanceTrigger], step: Step
) -> MemberReply:
    """Remove one member, or say why not; the answer echoes the identity of the request."""
    if who.member_id in group.pending_joins and who.group_instance_id is None:
        group.pending_joins.discard(who.member_id)
        step.disarm(group.session_timer(who.member_id))
        return MemberReply(who.member_id, None, ErrorCode.NONE)
    try:
        member = find_listed_member(group, who)
    except CoordinatorError as refusal:
        return refuse_listed_member(who, refusal.code, refusal.message)
    trigger = leave_trigger(member, who.reason, operator)
    if trigger.cause is Cause.POLL_TIMEOUT:
        step.lost_member(group.id, trigger.detail)
    triggers.append(trigger)
    remove_member(group, member, departure_of_member(member, operator, step), step)
    return MemberReply(who.member_id, who.group_instance_id, ErrorCode.NONE)


def departure_of_member(member: ClassicMember, operator: str, step: Step) -> Departure:
    if operator:
        # Operators mostly remove the dead: it owned its partitions until it was last heard of.
        return Departure("its owner was removed by an operator", member.last_seen_ms)
    return Departure("its owner left the group", step.now_ms)


def find_listed_member(group: ClassicGroup, who: MemberIdentity) -> ClassicMember:
    """The member meant. A static one may be named by its instance id alone."""
    member_id = who.member_id
    if who.group_instance_id is not None:
        holder = group.static.get(who.group_instance_id)
        if holder is None:
            raise CoordinatorError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {group.id!r} has no member with group.instance.id {who.group_instance_id!r}",
            )
        if member_id and member_id != holder:
            raise CoordinatorError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"group.instance.id {who.group_instance_id!r} belongs to member {holder!r}, not to {member_id!r}",
            )
        member_id = holder
    if member_id not in group.members:
        raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id!r} has no member {member_id!r}")
    return group.members[member_id]


def leave_trigger(member: ClassicMember, reason: str, operator: str) -> RebalanceTrigger:
    if operator:
        return RebalanceTrigger(
            cause=Cause.OPERATOR,
            detail=f"member {member.id} was removed by {operator}",
            culprit=member.id,
            client_id=member.client_id,
            client_host=member.client_host,
            client_reason=reason,
        )
    return trigger_by_member(history.cause_from_reason(reason, Cause.MEMBER_LEFT), member, "left", reason)


def combine_triggers(triggers: list[RebalanceTrigger]) -> RebalanceTrigger:
    """One trigger for the whole batch."""
    if len(triggers) == 1:
        return triggers[0]
    others = ", ".join(trigger.culprit for trigger in triggers[1:6])
    more = f" and {len(triggers) - 6} more" if len(triggers) > 6 else ""
    return dataclasses.replace(triggers[0], detail=f"{triggers[0].detail}; with it {others}{more}")


def refuse_listed_member(who: MemberIdentity, code: ErrorCode, message: str) -> MemberReply:
    return MemberReply(who.member_id, who.group_instance_id, code, message)
