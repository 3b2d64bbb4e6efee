"""Heartbeats and what their absence means."""

from typing import assert_never

from muster.coordinator.core.classic import again, door
from muster.coordinator.core.classic.checks import check_generation, check_not_dead, require_member
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.classic.rebalance import maybe_complete_join, rebalance_or_wait, remove_member
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.core_events import Heartbeat
from muster.coordinator.core.model.effects import HeartbeatReply
from muster.coordinator.core.model.ledger import Departure, trigger_by_member
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import Cause, GroupState, RequestId
from muster.coordinator.errors import CoordinatorError, ErrorCode

ALIVE = HeartbeatReply()


def heartbeat(group: ClassicGroup, request: Heartbeat, step: Step) -> None:
    """Keep the member's session alive and tell it when the group calls it back."""
    check_not_dead(group)
    member = require_member(group, request.member_id, request.group_instance_id)
    check_generation(group, member, request.generation)
    if request.rights is not None:
        again.take_said_rights(group, member, request.rights, step)
    match group.state:
        case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
            renew_session(group, member, step)
            step.reply(request.request_id, ALIVE)

        case GroupState.PREPARING_REBALANCE:
            renew_session(group, member, step)
            step.reply(request.request_id, call_back_reply(group))

        case GroupState.EMPTY | GroupState.DEAD:
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)

        case _:
            assert_never(group.state)


def call_back_reply(group: ClassicGroup) -> HeartbeatReply:
    """The group rebalances: join again, and this is why."""
    code, trigger = ErrorCode.REBALANCE_IN_PROGRESS, group.rebalance.trigger if group.rebalance else None
    if trigger is None:
        return HeartbeatReply(code, code.meaning)
    return HeartbeatReply(code, code.meaning, trigger.cause, trigger.detail)


def take_steady_heartbeat(
    group: ClassicGroup, member_id: str, generation: int, rights: Rights, state: ShardState, now_ms: int
) -> bool:
    """Take a heartbeat that gives no reason to think: a stable group, the right generation, a session under way.

    It does what `heartbeat` does then, at a fraction of the price: nearly every message of a quiet node is one of
    these. False: nothing was done, and `heartbeat` has to say what it means. So it is when the session would end
    earlier than before: of a deadline that moves forward the runtime has to be told; and when a member that is planned
    for may read other topics than is known of it.
    """
    member = group.members.get(member_id)
    if member is None or group.state is not GroupState.STABLE:
        return False
    if generation != group.generation or generation != member.generation:
        return False
    if rights is not None and group.remote and rights != member.rights:
        return False
    key, deadlines = group.session_timer(member_id), state.deadlines
    at_ms = now_ms + member.session_timeout_ms
    if at_ms < deadlines.get(key, at_ms + 1):
        return False
    member.last_seen_ms = now_ms
    deadlines[key] = at_ms
    return True


def renew_session(group: ClassicGroup, member: ClassicMember, step: Step) -> None:
    if not step.on_behalf:
        member.last_seen_ms = step.now_ms
    step.arm(group.session_timer(member.id), member.session_timeout_ms)


def renew_unread(group: ClassicGroup, member_id: str, step: Step) -> None:
    """It lives, though what it said was not read. A newcomer's session is longer than its own, and stays so."""
    member = group.members.get(member_id)
    deadline_ms = step.state.deadlines.get(group.session_timer(member_id))
    if member is not None and deadline_ms is not None and deadline_ms < step.now_ms + member.session_timeout_ms:
        renew_session(group, member, step)


def session_ms(group: ClassicGroup, member_id: str, step: Step) -> int:
    member = group.members.get(member_id)
    return member.session_timeout_ms if member is not None else 0


def forget_parked_sync(group: ClassicGroup, member_id: str, request: RequestId, step: Step) -> None:
    """Whoever waited for its share is gone. The member lives on until its session ends."""
    door.forget_newcomer(group, request, step)
    member = group.members.get(member_id)
    if member is not None and member.sync_request == request:
        member.sync_request = None
        rearm_session(group, member, step)


def rearm_session(group: ClassicGroup, member: ClassicMember, step: Step) -> None:
    """It no longer waits for us. Its session may have run out meanwhile and been let pass: start it afresh then."""
    if group.session_timer(member.id) not in step.state.deadlines:
        step.arm(group.session_timer(member.id), member.session_timeout_ms)


def expire_session(group: ClassicGroup, member_id: str, step: Step) -> None:
    """Nothing was heard of the member for its session timeout: take it out, static or not."""
    if member_id in group.pending_joins:
        group.pending_joins.discard(member_id)
        maybe_complete_join(group, step)
        return
    member = group.members[member_id]
    if (member.joining or member.syncing) and not member.is_new:
        # It waits for us, not we for it. Answering it arms the session again.
        return
    silent_ms = step.now_ms - member.last_seen_ms
    trigger = trigger_by_member(
        Cause.SESSION_EXPIRED,
        member,
        f"was not heard of for {silent_ms} ms (session timeout {member.session_timeout_ms} ms)",
    )
    step.lost_member(group.id, trigger.detail)
    departure = Departure("its owner's session expired", member.last_seen_ms)
    remove_member(group, member, departure, step)
    rebalance_or_wait(group, trigger, step)
