"""LeaveGroup and RemoveMembers on a KIP-848 group: one epoch for the whole batch."""

import dataclasses

from muster.coordinator.core.classic.history import cause_from_reason
from muster.coordinator.core.consumer import removal
from muster.coordinator.core.consumer.group import ConsumerGroup, ConsumerMember
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.core_events import LeaveGroup
from muster.coordinator.core.model.effects import LeaveReply, MemberReply
from muster.coordinator.core.model.ledger import Departure, RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.types import Cause, MemberIdentity
from muster.coordinator.errors import CoordinatorError, ErrorCode


def leave_group(group: ConsumerGroup, request: LeaveGroup, step: Step) -> None:
    """Take the listed members out; each gets an answer of its own."""
    leavers = [MemberIdentity(member_id) for member_id in group.members] if request.everyone else request.members
    gone: dict[str, tuple[ConsumerMember, Departure]] = {}
    triggers: list[RebalanceTrigger] = []
    replies = []
    for who in leavers:
        try:
            member = find_listed_member(group, who)
            if member.id in gone:
                raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member.id!r} is named twice")
        except CoordinatorError as refusal:
            replies.append(MemberReply(who.member_id, who.group_instance_id, refusal.code, refusal.message))
            continue
        gone[member.id] = (member, departure_of_member(group, member, request.operator, step))
        triggers.append(trigger_of_leave(member, who.reason, request.operator))
        if cause_from_reason(who.reason, Cause.MEMBER_LEFT) is Cause.POLL_TIMEOUT and not request.operator:
            step.lost_member(group.id, triggers[-1].detail)
        replies.append(MemberReply(who.member_id, who.group_instance_id, ErrorCode.NONE))
    step.reply(request.request_id, LeaveReply(members=tuple(replies)))
    if gone:
        removal.remove_members(group, list(gone.values()), combine_triggers(triggers), step)


def find_listed_member(group: ConsumerGroup, who: MemberIdentity) -> ConsumerMember:
    """The member meant, of either protocol, as in Kafka, whose admin clients remove them by LeaveGroup."""
    member_id = who.member_id
    if who.group_instance_id is not None:
        holder = group.static.get(who.group_instance_id)
        if holder is None:
            raise unknown_member(group, f"group.instance.id {who.group_instance_id!r}")
        if member_id and member_id != holder:
            raise CoordinatorError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"group.instance.id {who.group_instance_id!r} belongs to member {holder!r}, not to {member_id!r}",
            )
        return group.members[holder]
    if member_id not in group.members:
        raise unknown_member(group, repr(member_id))
    return group.members[member_id]


def unknown_member(group: ConsumerGroup, what: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id!r} has no member {what}")


def departure_of_member(group: ConsumerGroup, member: ConsumerMember, operator: str, step: Step) -> Departure:
    if operator:
        # Operators mostly remove the dead: it owned its partitions until it was last heard of.
        seen_ms = group.progress.last_seen_ms.get(member.id, step.now_ms)
        return Departure("its owner was removed by an operator", seen_ms)
    return Departure("its owner left the group", step.now_ms)


def trigger_of_leave(member: ConsumerMember, reason: str, operator: str) -> RebalanceTrigger:
    if operator:
        return trigger_by_member(Cause.OPERATOR, member, f"was removed by {operator}")
    return trigger_by_member(Cause.MEMBER_LEFT, member, "left", reason)


def combine_triggers(triggers: list[RebalanceTrigger]) -> RebalanceTrigger:
    others = ", ".join(trigger.culprit for trigger in triggers[1:6])
    more = f" and {len(triggers) - 6} more" if len(triggers) > 6 else ""
    detail = triggers[0].detail + (f"; with it {others}{more}" if others else "")
    return dataclasses.replace(triggers[0], detail=detail)
