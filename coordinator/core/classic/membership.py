"""JoinGroup, SyncGroup and LeaveGroup: who may join, under which id, who gets which share, and what follows from it.

KIP-62 (rebalance timeout), KIP-394 (a dynamic newcomer is sent back once with its id). LeaveGroup comes from a member
itself or from an operator for others; one rebalance follows for the whole batch. A static member is replaced by its
next incarnation (KIP-345, KIP-814). In a SyncGroup the leader hands in the plan, and every member fetches its share.
"""

import dataclasses
from typing import assert_never

from muster.coordinator.core.classic import rebalance, rebalance_ledger, replanning, server_side_assignment
from muster.coordinator.core.classic.group import (
    ClassicGroup,
    ClassicMember,
    check_generation,
    check_not_dead,
    check_protocols,
    check_room,
    require_member,
)
from muster.coordinator.core.classic.rebalance import (
    elect_protocol,
    join_reply,
    let_plan_stand,
    maybe_complete_join,
    prepare_rebalance,
    rebalance_or_wait,
    remove_member,
    roster,
    subscribed_topics,
)
from muster.coordinator.core.classic.rebalance_ledger import accept_plan, answer_sync, disarm_when_complete
from muster.coordinator.core.groups import member_causes
from muster.coordinator.core.groups.group import group_id_given
from muster.coordinator.core.groups.member_causes import (
    amend_closed,
    amend_late_fetch,
    cause_from_reason,
    describe_former,
    describe_refused,
    evidence_of_refused,
    record_calm_restart,
    record_contested_instance_id,
)
from muster.coordinator.core.groups.member_history import connection_after
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import JoinReply, LeaveReply, MemberReply, refused_join, refused_sync
from muster.coordinator.core.model.events import (
    ConnectionClosed,
    FetchedAfterLeaving,
    JoinGroup,
    LeaveGroup,
    LedgerFact,
    SyncGroup,
)
from muster.coordinator.core.model.ledger import Departure, RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.plan import (
    FIXED_BYTES,
    assignment_of,
    check_fits_log,
    shares_of,
    text_bytes,
    topics_of,
)
from muster.coordinator.core.model.records import GroupStored
from muster.coordinator.core.model.rights import readable_topics
from muster.coordinator.core.model.types import (
    Cause,
    Certainty,
    GroupState,
    Incarnation,
    Limits,
    MemberIdentity,
    MemberPlan,
    WaitEnd,
)
from muster.coordinator.errors import CoordinatorError, ErrorCode

# JoinGroup
# ---------


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
    if request.remote_assignor:
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
    told = 0
    for protocol in request.protocols:
        told += len(protocol.metadata)
    if told > limits.max_group_bytes:
        check_fits_log(request.group_id, "a member's protocols", told, limits)


def join_group(group: ClassicGroup, request: JoinGroup, step: Step) -> None:
    """Take the member in, park it until the join phase is over, or say why not. The request is `check_join_request`."""
    check_not_dead(group)
    if group.id in step.state.holds and rebalance.must_wait(group, request, step):
        rebalance.park_newcomer(group, request, rebalance_timeout(request), step)
        return
    try:
        check_room(group, request.member_id, step.state.limits.max_group_size)
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
            replace_static_member(group, request, member_id, step)
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
    assignor = ""
    if request.remote_assignor:
        assignor = server_side_assignment.requested_assignor(request, step.state.limits)
    changed = member.protocols != request.protocols or member.remote_assignor != assignor
    if group.planner.assignor:
        changed = bool(server_side_assignment.take_rights(group, member, request.rights, step.state)) or changed
    else:
        member.rights = request.rights
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
            trigger = rebalance_ledger.trigger_of_rejoin(group, member, request.protocols, request.reason, step)
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
    if group.rebalance is not None:
        group.rebalance.arrived(member.id, step.now_ms)


def apply_join_request(member: ClassicMember, request: JoinGroup, step: Step) -> None:
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = rebalance_timeout(request)
    member.client_id = request.client_id
    member.client_host = request.client_host
    member.client_software = request.client_software
    member.rights = request.rights
    member.remote_assignor = ""
    if request.remote_assignor:
        member.remote_assignor = server_side_assignment.requested_assignor(request, step.state.limits)
    member.last_seen_ms = step.now_ms
    member.connection = connection_after(member.connection, request.connection)


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
    trigger = rebalance_ledger.with_roll_out(group, member, trigger)
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


# SyncGroup
# ---------


def sync_group(group: ClassicGroup, request: SyncGroup, step: Step) -> None:
    """Answer with the member's share, or park the request until the leader has spoken."""
    check_not_dead(group)
    member = require_member(group, request.member_id, request.group_instance_id)
    check_generation(group, member, request.generation)
    if request.protocol_type is not None or request.protocol_name is not None:
        check_same_protocol(group, request)

    match group.state:
        case GroupState.STABLE:
            # The first answer was lost, or the leader was faster. The plan stands, so say it.
            member.last_seen_ms = step.now_ms
            answer_sync(group, member, request.request_id, step)
            group.pending_syncs.discard(member.id)
            if not group.pending_syncs:
                disarm_when_complete(group, step)

        case GroupState.COMPLETING_REBALANCE:
            leads = member.id == group.acting_leader
            if leads:
                check_plan_fits_log(group, request, step)
            park_sync(member, request, step)
            group.pending_syncs.discard(member.id)
            if leads:
                accept_leader_plan(group, request, step)
            if not group.pending_syncs:
                disarm_when_complete(group, step)

        case GroupState.PREPARING_REBALANCE:
            raise CoordinatorError(ErrorCode.REBALANCE_IN_PROGRESS)

        case GroupState.EMPTY | GroupState.DEAD:
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)

        case _:
            assert_never(group.state)


def check_same_protocol(group: ClassicGroup, request: SyncGroup) -> None:
    """None means that the client is too old to say (SyncGroup before v5)."""
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"protocol_type {request.protocol_type!r} is not {group.protocol_type!r}, the one of group {group.id!r}",
        )
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"protocol_name {request.protocol_name!r} is not {group.protocol_name!r}, which group {group.id!r} chose",
        )


def check_plan_fits_log(group: ClassicGroup, request: SyncGroup, step: Step) -> None:
    size = group.stored_bytes(dict(request.assignments))
    check_fits_log(group.id, "the plan and the subscriptions", size, step.state.limits)


def park_sync(member: ClassicMember, request: SyncGroup, step: Step) -> None:
    if member.sync_request is not None:
        step.reply(member.sync_request, refused_sync(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_request = request.request_id
    step.state.parked[request.request_id] = member.id
    member.last_seen_ms = step.now_ms


def accept_leader_plan(group: ClassicGroup, request: SyncGroup, step: Step) -> None:
    snapshot = rebalance_ledger.NO_PROVENANCE
    if request.snapshot or request.scheduled_delay_ms > 0:
        snapshot = rebalance_ledger.PlanProvenance(
            request.snapshot.decode("utf-8", "replace"), delayed=request.scheduled_delay_ms > 0
        )
    accept_plan(group, dict(request.assignments), snapshot, step)
    ledger = step.state.ledgers.get(group.id)
    if request.leader_state or (ledger is not None and ledger.delay is not None):
        rebalance.keep_delay(group, request, step)
    step.state.extensions.leader_plan_adopted(group.id, step)


def sync_timer_fired(group: ClassicGroup, step: Step) -> None:
    """Whoever has not fetched its share in time is out, static members and the leader included."""
    assert group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
    late = [member for member in group.members.values() if member.id in group.pending_syncs]
    trigger = replanning.suspend_for_insisting_client(group, late, sync_timeout(late), step)
    for member in late:
        departure = Departure(
            "its owner did not sync within the rebalance timeout", member.last_seen_ms, WaitEnd.EXPIRED
        )
        remove_member(group, member, departure, step)
    if not let_plan_stand(group, trigger, step):
        prepare_rebalance(group, trigger, step)


def sync_timeout(late: list[ClassicMember]) -> RebalanceTrigger:
    first = late[0]
    names = ", ".join(member.id for member in late[:5]) + (f" and {len(late) - 5} more" if len(late) > 5 else "")
    return RebalanceTrigger(
        cause=Cause.SYNC_TIMEOUT,
        detail=f"{names} did not fetch the plan within the rebalance timeout",
        culprit=first.id,
        client_id=first.client_id,
        client_host=first.client_host,
    )


# Static members
# --------------


def takeover_sentence(instance_id: str) -> str:
    """What the newcomer did, as its trigger and its answer say."""
    return f"took over group.instance.id {instance_id}"


def replace_static_member(group: ClassicGroup, request: JoinGroup, member_id: str, step: Step) -> None:
    """Hand the place of the old member id, its share included, to the new one; fence the old one at once."""
    check_protocols(group, request.protocol_type, request.protocols)
    old_id = group.static[request.group_instance_id or ""]
    check_incarnation_fits_log(group, request, old_id, step)
    was_leader = group.leader == old_id
    contested = group.history.takes_turns(group.members[old_id].seen, request.connection)
    note_replaced(group, old_id, member_id, step)
    away_ms = step.now_ms - group.members[old_id].last_seen_ms
    member = rename_static_member(group, old_id, member_id, step)
    replaced = Departure("its owner was replaced by its next incarnation", member.last_seen_ms, WaitEnd.REPLACED)
    update_static_member(group, member, request, step)
    step.arm(group.session_timer(member_id), member.session_timeout_ms)
    cause, what = trigger_of_replacement(group, member, step)
    trigger = trigger_by_member(
        cause, member, f"{takeover_sentence(member.group_instance_id or '')}{what}", request.reason
    )
    match group.state:
        case GroupState.STABLE if cause is Cause.STATIC_MEMBER_REPLACED:
            group.members.unpark(member)
            if contested:
                other = describe_former(group, old_id)
                record_contested_instance_id(group, member.seen, member_plan(member), other, step)
            else:
                incarnation = Incarnation(member.id, old_id, away_ms, "replaced")
                record_calm_restart(group, member.seen, member_plan(member), incarnation, step)
            if rebalance.is_frozen(group, step):
                rebalance.cut_unread_share(group, member)
            group.subscribed_topics = subscribed_topics(group)
            step.keep(group.record(step.now_ms))
            step.reply(request.request_id, reply_without_rebalance(group, member, old_id, was_leader, request, trigger))

        case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
            # KAFKA-9801: the leader may have made its plan for the old id already.
            rebalance_ledger.note_departure(group, old_id, replaced, step)
            group.arrived_again.append(Incarnation(member.id, old_id, away_ms, "replaced"))
            prepare_rebalance(group, trigger, step, arriving=member)

        case GroupState.PREPARING_REBALANCE:
            group.arrived_again.append(Incarnation(member.id, old_id, away_ms, "replaced"))
            rebalance_ledger.note_trigger(group, trigger, step)
            rebalance_ledger.note_departure(group, old_id, replaced, step)
            rebalance_ledger.note_arrival(group, member, step)
            maybe_complete_join(group, step)

        case GroupState.EMPTY | GroupState.DEAD:
            raise AssertionError(f"group {group.id!r} is {group.state.value} and has a static member")

        case _:
            assert_never(group.state)


def note_replaced(group: ClassicGroup, old_id: str, new_id: str, step: Step) -> None:
    """The old id is fenced from here on: whoever still speaks by it is a second process."""
    group.history.note_gone(group.members[old_id].seen, WaitEnd.REPLACED, step.now_ms)
    group.history.succeed(old_id, new_id)


def member_plan(member: ClassicMember) -> MemberPlan:
    return MemberPlan(
        member.id,
        member.client_id,
        member.client_host,
        member.group_instance_id,
        tuple(sorted(assignment_of(member.assignment).items())),
    )


def explain(group: ClassicGroup, event: LedgerFact, step: Step) -> None:
    """Write down what only the ledger has to know."""
    if isinstance(event, ConnectionClosed):
        amend_closed(group, event.connection, step)
        return
    if isinstance(event, FetchedAfterLeaving):
        amend_late_fetch(group, event, step)
        return
    holder = group.members.get(group.static.get(event.group_instance_id or "", ""))
    if holder is not None:
        other, evidence = describe_refused(group, event), evidence_of_refused(event)
        record_contested_instance_id(group, holder.seen, member_plan(holder), other, step, evidence)


def check_incarnation_fits_log(group: ClassicGroup, request: JoinGroup, old_id: str, step: Step) -> None:
    """A calm takeover writes the group at once, with the newcomer's subscription and the share of the old one."""
    told = max(len(protocol.metadata) for protocol in request.protocols)
    told += text_bytes(request.fresh_id, request.group_instance_id, request.client_id, request.client_id)
    told += text_bytes(request.client_host) + FIXED_BYTES + len(group.members[old_id].assignment)
    size = group.stored_bytes(without=old_id) + told
    check_fits_log(group.id, "the members' subscriptions and shares", size, step.limits)


def trigger_of_replacement(group: ClassicGroup, member: ClassicMember, step: Step) -> tuple[Cause, str]:
    """Why the place was taken over, and what of it calls for a new plan while the group is stable."""
    if rebalance.is_frozen(group, step):
        return Cause.STATIC_MEMBER_REPLACED, ""
    if group.state is GroupState.STABLE and elect_protocol(group) != group.protocol_name:
        return Cause.PROTOCOL_CHANGED, f" and turned the vote from {group.protocol_name} to {elect_protocol(group)}"
    if group.state is GroupState.STABLE and not rebalance.covers_topics(group, step):
        return Cause.PARTITIONS_CHANGED, " and reads partitions that the plan does not reach"
    if group.state is GroupState.STABLE and group.remote and holds_unread_topics(member, group.protocol_name):
        # Java's client rejects a share with a topic that it does not read, and joins again for ever.
        return Cause.STATIC_MEMBER_METADATA_CHANGED, " and does not read all topics of its share any more"
    return Cause.STATIC_MEMBER_REPLACED, ""


def holds_unread_topics(member: ClassicMember, protocol: str | None) -> bool:
    reads = topics_of(member.metadata(protocol))
    return reads is not None and not shares_of(member.assignment).keys() <= readable_topics(member.rights, reads)


def rename_static_member(group: ClassicGroup, old_id: str, new_id: str, step: Step) -> ClassicMember:
    """The same member under a new id, in the same place of the order."""
    old = group.members[old_id]
    fence_parked(group, old, step)
    step.disarm(group.session_timer(old_id))
    group.members.rename(old, new_id)
    if old.group_instance_id is not None:
        group.static[old.group_instance_id] = new_id
    if old_id in group.pending_syncs:
        group.pending_syncs = (group.pending_syncs - {old_id}) | {new_id}
    if group.leader == old_id:
        group.leader = new_id
    rebalance_ledger.rename_member(group, old_id, new_id)
    return old


def fence_parked(group: ClassicGroup, member: ClassicMember, step: Step) -> None:
    join_request = group.members.unpark(member)
    if join_request is not None:
        step.reply(join_request, refused_join(ErrorCode.FENCED_INSTANCE_ID, member.id))
    if member.sync_request is not None:
        step.reply(member.sync_request, refused_sync(ErrorCode.FENCED_INSTANCE_ID))
        member.sync_request = None


def update_static_member(group: ClassicGroup, member: ClassicMember, request: JoinGroup, step: Step) -> None:
    # KAFKA-14009: the new incarnation's own timeouts count.
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = (
        request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
    )
    member.client_id = request.client_id
    member.client_host = request.client_host
    member.client_software = request.client_software
    member.rights = request.rights
    member.remote_assignor = server_side_assignment.requested_assignor(request, step.limits)
    group.members.offer(member, request.protocols)
    group.members.park(member, request.request_id)
    member.is_new = False  # it has a session from the start: only a newcomer is given five minutes
    member.last_seen_ms = step.now_ms
    member.connection = request.connection


def reply_without_rebalance(
    group: ClassicGroup,
    member: ClassicMember,
    old_id: str,
    was_leader: bool,
    request: JoinGroup,
    trigger: RebalanceTrigger,
) -> JoinReply:
    """No rebalance: the share it had is still its own. A leader is told not to assign anew (KIP-814)."""
    member.generation = group.generation
    was_leader = was_leader and not group.remote
    leads = was_leader and request.supports_skip_assignment
    # A client too old for skip_assignment is shown the old leader id, so that it acts as a follower.
    leader = old_id if was_leader and not request.supports_skip_assignment else group.acting_leader
    return JoinReply(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader,
        skip_assignment=leads,
        member_id=member.id,
        members=roster(group) if leads else (),
        cause=trigger.cause,
        cause_detail=trigger.detail,
    )
