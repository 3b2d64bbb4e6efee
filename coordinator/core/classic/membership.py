"""JoinGroup and LeaveGroup: which member may join, under which id, and what its coming and going sets off.

KIP-62 (rebalance timeout), KIP-394 (a dynamic newcomer is sent back once with its id). LeaveGroup comes from a member
itself or from an operator for others; one rebalance follows for the whole batch.
"""

import dataclasses
from typing import assert_never

from muster.coordinator.core.classic import (
    rebalance,
    rebalance_causes,
    rebalance_ledger,
    server_side_assignment,
    static_members,
)
from muster.coordinator.core.classic.group import (
    ClassicGroup,
    check_not_dead,
    check_protocols,
    check_room,
    require_member,
)
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.classic.rebalance import (
    join_reply,
    maybe_complete_join,
    prepare_rebalance,
    rebalance_or_wait,
    remove_member,
)
from muster.coordinator.core.groups import member_causes
from muster.coordinator.core.groups.group import group_id_given
from muster.coordinator.core.groups.member_causes import cause_from_reason
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import JoinReply, LeaveReply, MemberReply, refused_join
from muster.coordinator.core.model.events import JoinGroup, LeaveGroup
from muster.coordinator.core.model.ledger import Departure, RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.plan import check_fits_log
from muster.coordinator.core.model.records import GroupStored
from muster.coordinator.core.model.types import Cause, Certainty, GroupState, Limits, MemberIdentity
from muster.coordinator.errors import CoordinatorError, ErrorCode


def open_group(request: JoinGroup, step: Step) -> None:
    """The first member of a new group joins. The request is `check_join_request`."""
    group = new_group(request)
    # What a refused request asked for is not kept: nobody would ever let go of it.
    group.offsets = step.state.offsets.get(group.id, group.offsets)
    join_group(group, request, step)
    step.state.offsets[group.id] = group.offsets
    step.state.put(group)
    # The group must survive a failover even though nothing else of it is on record yet.
    step.keep(GroupStored(group.id, "", 0, None, None, step.now_ms, ()))


def check_join_request(request: JoinGroup, limits: Limits) -> None:
    """The request makes sense by itself, whatever the group's kind and state. Raises what it is refused with."""
    group_id_given(request.group_id)
    check_session_timeout(request, limits)
    check_protocols_fit_log(request, limits)
    server_side_assignment.check_assignor_allowed(request, limits)


def new_group(request: JoinGroup) -> ClassicGroup:
    if request.member_id:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"there is no group {request.group_id!r} that member {request.member_id!r} could be of; "
            f"join with an empty member id",
        )
    return ClassicGroup(request.group_id)


def check_may_open(group: ClassicGroup, request: JoinGroup) -> None:
    """The request would be taken by a group without members. Raises what it would be refused with."""
    new_group(request)
    check_protocols(group, request.protocol_type, request.protocols)


def check_session_timeout(request: JoinGroup, limits: Limits) -> None:
    low, high = limits.min_session_timeout_ms, limits.max_session_timeout_ms
    if not low <= request.session_timeout_ms <= high:
        raise CoordinatorError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session_timeout_ms {request.session_timeout_ms} is outside {low}..{high} "
            f"(group.min.session.timeout.ms, group.max.session.timeout.ms)",
        )


def check_protocols_fit_log(request: JoinGroup, limits: Limits) -> None:
    told = sum(len(protocol.metadata) for protocol in request.protocols)
    check_fits_log(request.group_id, "a member's protocols", told, limits)


def join_group(group: ClassicGroup, request: JoinGroup, step: Step) -> None:
    """Take the member in, park it until the join phase is over, or say why not. The request is `check_join_request`."""
    check_not_dead(group)
    if group.id in step.state.holds and rebalance.must_wait(group, request, step):
        rebalance.park_newcomer(group, request, rebalance_timeout(request), step)
        return
    try:
        check_room(group, request.member_id, step.limits.max_group_size)
    except CoordinatorError as full:
        turn_away(group, request, full, step)
        return
    if request.member_id:
        join_with_id(group, request, step)
    else:
        join_without_id(group, request, step)


def turn_away(group: ClassicGroup, request: JoinGroup, full: CoordinatorError, step: Step) -> None:
    """The group is full: whoever asked loses the place it had, too."""
    known = request.member_id in group.members or request.member_id in group.pending_joins
    group.pending_joins.discard(request.member_id)
    step.disarm(group.session_timer(request.member_id))
    member = group.members.get(request.member_id)
    if member is not None:
        rebalance_ledger.note_trigger(
            group, trigger_by_member(Cause.GROUP_OVER_SIZE, member, "was turned away: the group is full"), step
        )
        remove_member(group, member, Departure("its owner lost its place: the group is full", step.now_ms), step)
    step.reply(request.request_id, JoinReply(full.code, full.message))
    if known:
        # One less to wait for.
        maybe_complete_join(group, step)


def join_without_id(group: ClassicGroup, request: JoinGroup, step: Step) -> None:
    """A newcomer. Dynamic ones are sent back once, so that a lost answer leaves no ghost in the group (KIP-394)."""
    check_protocols(group, request.protocol_type, request.protocols)
    member_id = f"{request.group_instance_id or request.client_id}-{request.fresh_id}"
    if request.group_instance_id is not None:
        if request.group_instance_id in group.static:
            static_members.replace_static_member(group, request, member_id, step)
        else:
            add_member(group, request, member_id, step)
    elif request.require_known_member_id:
        group.pending_joins.add(member_id)
        step.arm(group.session_timer(member_id), request.session_timeout_ms)
        step.reply(
            request.request_id,
            JoinReply(ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.MEMBER_ID_REQUIRED.meaning, member_id=member_id),
        )
    else:
        add_member(group, request, member_id, step)


def join_with_id(group: ClassicGroup, request: JoinGroup, step: Step) -> None:
    """A member that was here before, or one that comes back with the id it was given."""
    if request.member_id in group.pending_joins:
        if request.group_instance_id is not None:
            raise CoordinatorError(
                ErrorCode.INVALID_REQUEST,
                f"member id {request.member_id!r} was given to a dynamic member; "
                f"drop group_instance_id {request.group_instance_id!r} or join with an empty member id",
            )
        check_protocols(group, request.protocol_type, request.protocols)
        add_member(group, request, request.member_id, step)
        return
    if group.members:
        check_protocols(group, request.protocol_type, request.protocols)
    member = require_member(group, request.member_id, request.group_instance_id)
    rejoin(group, member, request, step)


def rejoin(group: ClassicGroup, member: ClassicMember, request: JoinGroup, step: Step) -> None:
    if group.id in step.state.holds and rebalance.take_back_member(group, member, request, step):
        return
    changed = (
        member.protocols != request.protocols
        or member.remote_assignor != server_side_assignment.requested_assignor(request, step.limits)
    )
    changed = bool(server_side_assignment.take_rights(group, member, request.rights, step.state)) or changed
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            update_member(group, member, request, step)
            maybe_complete_join(group, step)

        case GroupState.COMPLETING_REBALANCE if not changed:
            # The answer to its join was lost. The generation stands, so say it again.
            step.reply(request.request_id, join_reply(group, member, step))

        case GroupState.STABLE if not changed and member.id != group.acting_leader:
            step.reply(request.request_id, join_reply(group, member, step))

        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            trigger = rebalance_causes.trigger_of_rejoin(group, member, request.protocols, request.reason, step)
            start_rebalance_with(group, member, request, trigger, step)

        case GroupState.EMPTY | GroupState.DEAD:
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)

        case _:
            assert_never(group.state)


def start_rebalance_with(
    group: ClassicGroup, member: ClassicMember, request: JoinGroup, trigger: RebalanceTrigger, step: Step
) -> None:
    """Start a rebalance in which this member has already joined."""
    group.members.offer(member, request.protocols)
    group.members.park(member, request.request_id)
    apply_join_request(member, request, step)
    prepare_rebalance(group, trigger, step, arriving=member)


def update_member(group: ClassicGroup, member: ClassicMember, request: JoinGroup, step: Step) -> None:
    """A re-sent join replaces the parked one."""
    if member.join_request is not None and member.join_request != request.request_id:
        step.reply(member.join_request, refused_join(ErrorCode.REBALANCE_IN_PROGRESS, member.id))
    group.members.offer(member, request.protocols)
    group.members.park(member, request.request_id)
    apply_join_request(member, request, step)
    rebalance_ledger.note_arrival(group, member, step)


def apply_join_request(member: ClassicMember, request: JoinGroup, step: Step) -> None:
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = rebalance_timeout(request)
    member.client_id = request.client_id
    member.client_host = request.client_host
    member.client_software = request.client_software
    member.rights = request.rights
    member.remote_assignor = server_side_assignment.requested_assignor(request, step.limits)
    member.last_seen_ms = step.now_ms
    member.connection = request.connection


def rebalance_timeout(request: JoinGroup) -> int:
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def add_member(group: ClassicGroup, request: JoinGroup, member_id: str, step: Step) -> None:
    """A new member: parked at once, and given five minutes whatever its session timeout."""
    member = ClassicMember(
        id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        client_software=request.client_software,
        rights=request.rights,
        rebalance_timeout_ms=rebalance_timeout(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
        is_new=True,
        join_request=request.request_id,
        remote_assignor=server_side_assignment.requested_assignor(request, step.limits),
        last_seen_ms=step.now_ms,
        noticed_ms=step.now_ms,
        connection=request.connection,
    )
    trigger = member_causes.trigger_of_newcomer(group, member.seen, request.reason, step)
    trigger = rebalance_causes.with_roll_out(group, member, trigger)
    if not group.members:
        group.leader = member_id
        group.protocol_type = request.protocol_type
    group.members.add(member)
    if member.group_instance_id is not None:
        group.static[member.group_instance_id] = member_id
    group.pending_joins.discard(member_id)
    step.arm(group.session_timer(member_id), step.limits.new_member_join_timeout_ms)
    if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
        group.new_member_added = True
    rebalance_or_wait(group, trigger, step, arriving=member)


# LeaveGroup
# ----------


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
    trigger = trigger_by_member(cause_from_reason(reason, Cause.MEMBER_LEFT), member, "left", reason)
    if trigger.cause is Cause.MEMBER_LEFT:
        return trigger
    said = f'the client\'s own words: "{reason}"'
    return dataclasses.replace(trigger, certainty=Certainty.INFERRED, evidence=said)


def combine_triggers(triggers: list[RebalanceTrigger]) -> RebalanceTrigger:
    """One trigger for the whole batch."""
    if len(triggers) == 1:
        return triggers[0]
    others = ", ".join(trigger.culprit for trigger in triggers[1:6])
    more = f" and {len(triggers) - 6} more" if len(triggers) > 6 else ""
    return dataclasses.replace(triggers[0], detail=f"{triggers[0].detail}; with it {others}{more}")


def refuse_listed_member(who: MemberIdentity, code: ErrorCode, message: str) -> MemberReply:
    return MemberReply(who.member_id, who.group_instance_id, code, message)
