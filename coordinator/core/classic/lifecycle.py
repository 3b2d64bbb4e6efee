"""Classic groups over time: heartbeats, commits, expired sessions and positions, timers, load, unload and delete.

`take_steady_heartbeat` is the fast path of a heartbeat in a stable group; `heartbeat`, through the queue, is the
general way. tests/property/runtime/test_heartbeat_both_ways.py holds the two together. Replay leaves sessions to start
afresh, since no member could be heard meanwhile.
"""

from typing import assert_never

from muster.assignors.data.consumer_protocol import parse_assignment
from muster.coordinator.core.classic import rebalance, rebalance_ledger, replanning, server_side_assignment
from muster.coordinator.core.classic.group import (
    ClassicGroup,
    ClassicMember,
    ClassicMembers,
    check_generation,
    check_not_dead,
    require_member,
)
from muster.coordinator.core.classic.membership import sync_timer_fired
from muster.coordinator.core.classic.rebalance import (
    join_timer_fired,
    maybe_complete_join,
    prepare_rebalance,
    rebalance_or_wait,
    remove_member,
    subscribed_topics,
)
from muster.coordinator.core.groups import member_causes
from muster.coordinator.core.groups.bookkeeping import expired, forget_belongings, is_held
from muster.coordinator.core.groups.kind import Positions, RefusedPositions
from muster.coordinator.core.groups.member_history import NO_CONNECTION
from muster.coordinator.core.groups.state import ShardState, Step
from muster.coordinator.core.model.effects import DeleteReply, HeartbeatReply, refused_join, refused_sync
from muster.coordinator.core.model.events import ClaimFence, DeleteGroup, Heartbeat, OffsetCommit, OffsetFetch
from muster.coordinator.core.model.ledger import Departure, RebalanceTrigger
from muster.coordinator.core.model.plan import CONSUMER
from muster.coordinator.core.model.records import GroupDeleted, GroupStored, MemberRecord, OffsetDeleted
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import Cause, GroupState, Protocol, RequestId, StoredOffset, TimerKey, WaitEnd
from muster.coordinator.errors import CoordinatorError, ErrorCode

# Heartbeats and sessions
# -----------------------

ALIVE = HeartbeatReply()


def heartbeat(group: ClassicGroup, request: Heartbeat, step: Step) -> None:
    """Keep the member's session alive and tell it when the group calls it back."""
    check_not_dead(group)
    member = require_member(group, request.member_id, request.group_instance_id)
    check_generation(group, member, request.generation)
    if request.rights is not None:
        replanning.take_said_rights(group, member, request.rights, step)
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
    if rights is not None and group.planner.assignor and rights != member.rights:
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


def note_stream(group: ClassicGroup, member_id: str, connection: int) -> None:
    member = group.members.get(member_id)
    if member is not None:
        member.connection = connection


def forget_parked_sync(group: ClassicGroup, member_id: str, request: RequestId, step: Step) -> None:
    """Whoever waited for its share is gone. The member lives on until its session ends."""
    rebalance.forget_newcomer(group, request, step)
    member = group.members.get(member_id)
    if member is not None and member.sync_request == request:
        member.sync_request = None
        if member.connection < NO_CONNECTION:
            group.history.note_closed(member.connection, step.now_ms)
        rearm_session(group, member, step)


def rearm_session(group: ClassicGroup, member: ClassicMember, step: Step) -> None:
    """It no longer waits for us. Its session may have run out meanwhile and been let pass: start it afresh then."""
    if group.session_timer(member.id) not in step.state.deadlines:
        step.arm(group.session_timer(member.id), member.session_timeout_ms)


def expire_session(group: ClassicGroup, member_id: str, step: Step) -> None:
    """Nothing was heard of the member for its session timeout: take it out, static or not."""
    if member_id in group.pending_joins:
        group.pending_joins.discard(member_id)
        rebalance_ledger.note_departure(
            group, member_id, Departure("it never came back with its id", step.now_ms, WaitEnd.EXPIRED), step
        )
        maybe_complete_join(group, step)
        return
    member = group.members[member_id]
    if (member.joining or member.syncing) and not member.is_new:
        # It waits for us, not we for it. Answering it arms the session again.
        return
    trigger = member_causes.trigger_of_expiry(group, member.seen, step)
    step.lost_member(group.id, trigger.detail)
    departure = member_causes.departure_of_expired(group, member.id, member.last_seen_ms)
    remove_member(group, member, departure, step)
    rebalance_or_wait(group, trigger, step)


def load_group(group: ClassicGroup, step: Step) -> None:
    """The log has been replayed: bring the group to life. Nobody could be heard meanwhile: sessions start afresh."""
    if group.stored is not None:
        restore_group(group, group.stored, step)
    if len(group.members) > step.limits.max_group_size:
        prepare_rebalance(group, is_over_size(group, step.limits.max_group_size), step)
    else:
        replanning.replan_after_load(group, step)


def restore_group(group: ClassicGroup, stored: GroupStored, step: Step) -> None:
    """The group as its last completed generation left it, and from now on its members have to be heard."""
    restore_members(group, stored, step)
    rebalance_ledger.restore_withheld(group, step)
    server_side_assignment.restore_last_plan(group, step)
    for member in group.members.values():
        step.arm(group.session_timer(member.id), member.session_timeout_ms)


def restore_members(group: ClassicGroup, stored: GroupStored, step: Step) -> None:
    """The group as its last completed generation left it: Stable with members, Empty without."""
    group.generation = stored.generation
    group.protocol_type = stored.protocol_type or None
    group.protocol_name = stored.protocol
    group.leader = stored.leader
    group.state_timestamp_ms = stored.state_timestamp_ms if stored.state_timestamp_ms >= 0 else None
    group.restored = bool(stored.members)
    group.planned_at_ms = step.now_ms
    group.members = ClassicMembers()
    for record in stored.members:
        group.members.add(restored_member(record, stored, step.now_ms))
    group.static = {m.group_instance_id: m.id for m in group.members.values() if m.group_instance_id is not None}
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    group.subscribed_topics = subscribed_topics(group) if group.members else frozenset()
    if group.members and group.leader not in group.members:
        group.leader = next(iter(group.members))


def restored_member(record: MemberRecord, stored: GroupStored, now_ms: int) -> ClassicMember:
    timeout_ms = record.session_timeout_ms if record.rebalance_timeout_ms < 0 else record.rebalance_timeout_ms
    return ClassicMember(
        id=record.member_id,
        group_instance_id=record.group_instance_id,
        client_id=record.client_id,
        client_host=record.client_host,
        rebalance_timeout_ms=timeout_ms,
        session_timeout_ms=record.session_timeout_ms,
        protocols=(Protocol(stored.protocol or "", record.subscription),),
        assignment=record.assignment,
        generation=stored.generation,
        last_seen_ms=now_ms,
    )


def is_over_size(group: ClassicGroup, limit: int) -> RebalanceTrigger:
    return RebalanceTrigger(
        Cause.GROUP_OVER_SIZE, f"the group was loaded with {len(group.members)} members, group.max.size is {limit}"
    )


def unload_group(group: ClassicGroup, step: Step) -> None:
    dissolve_group(group, ErrorCode.NOT_COORDINATOR, step)


def fire_timer(group: ClassicGroup, key: TimerKey, step: Step) -> None:
    match key:
        case ("join", _):
            join_timer_fired(group, step)
        case ("assign", _):
            replanning.retry_plan(group, step)
        case ("sync", _):
            sync_timer_fired(group, step)
        case ("handoff", _):
            replanning.remove_overdue_members(group, step)
        case ("follow", _):
            replanning.start_follow_up_round(group, step)
        case ("door", _, request_id):
            rebalance.refuse_newcomer(group, int(request_id), step)
        case ("session", _, member_id):
            expire_session(group, member_id, step)
        case _:
            raise AssertionError(f"no timer is called {key}")


def dissolve_group(group: ClassicGroup, code: ErrorCode, step: Step) -> None:
    """Nobody is of this group any more: whoever is parked is refused."""
    rebalance.refuse_newcomers(group, code, step)
    for member in group.members.values():
        join_request = group.members.unpark(member)
        if join_request is not None:
            step.reply(join_request, refused_join(code, member.id))
        if member.sync_request is not None:
            step.reply(member.sync_request, refused_sync(code))
            member.sync_request = None
    if group.state is not GroupState.DEAD:
        group.become(GroupState.DEAD, step.now_ms)


def delete_group(group: ClassicGroup, request: DeleteGroup, step: Step) -> None:
    """Forget an empty group with its offsets and its ledger."""
    if group.state is GroupState.DEAD:
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {request.group_id!r}")
    if group.state is not GroupState.EMPTY:
        raise CoordinatorError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group.id!r} is {group.state.value} with {len(group.members)} members; stop them first",
        )
    delete_records(group, step)
    step.reply(request.request_id, DeleteReply())


# Committed offsets
# -----------------


def check_may_commit(group: ClassicGroup, request: OffsetCommit, step: Step) -> RefusedPositions:
    """The committer speaks for the generation that holds, or nobody else does."""
    check_not_dead(group)
    if request.generation < 0 and group.state is GroupState.EMPTY:
        return {}
    if request.generation < 0 and not request.member_id and request.group_instance_id is None:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {group.id!r} has active members: a commit without member id is only taken while it is empty",
        )
    member = require_member(group, request.member_id, request.group_instance_id)
    check_generation(group, member, request.generation)
    match group.state:
        case GroupState.STABLE | GroupState.PREPARING_REBALANCE:
            # Members commit what they have done before they rejoin: the generation is still the old one.
            member.last_seen_ms = step.now_ms
            step.arm(group.session_timer(member.id), member.session_timeout_ms)

        case GroupState.COMPLETING_REBALANCE:
            raise CoordinatorError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"group {group.id!r} is between two plans; fetch the new one (SyncGroup), then commit",
            )

        case GroupState.EMPTY | GroupState.DEAD:
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)

        case _:
            assert_never(group.state)
    return {}


def owns_partition(group: ClassicGroup, request: ClaimFence, step: Step) -> bool | None:
    """As the last plan says; None where it is not in words that this side reads."""
    check_not_dead(group)
    member = group.members.get(request.member_id)
    if member is None:
        return False
    try:
        share = parse_assignment(member.assignment).partitions if member.assignment else {}
    except ValueError:
        return None
    return request.partition in share.get(request.topic, ())


def fetch_positions(group: ClassicGroup, request: OffsetFetch, step: Step) -> Positions:
    """Everybody may read."""
    return {} if group.state is GroupState.DEAD else step.state.offsets.get(group.id, {})


def subscribed_topics_or_all(group: ClassicGroup, group_id: str) -> frozenset[str] | None:
    """The topics whose positions may not be deleted: those that a member reads. None: all, for it cannot be known."""
    if group.state is GroupState.DEAD:
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    if group.members and group.protocol_type != CONSUMER:
        raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP, f"group {group.id!r} has members; stop them first")
    return group.subscribed_topics if group.members else frozenset()


def expire_positions(group: ClassicGroup, step: Step) -> None:
    """Drop offsets past their retention, and the group if it is empty and has none left."""
    for topic, partition in [
        tp for tp, value in step.positions(group.id) if is_position_expired(group, tp[0], value, step)
    ]:
        step.keep(OffsetDeleted(group.id, topic, partition))
    empty = group.state is GroupState.EMPTY and not group.pending_joins
    if empty and not group.offsets and not is_held(group.id, step):
        delete_records(group, step)


def is_position_expired(group: ClassicGroup, topic: str, value: StoredOffset, step: Step) -> bool:
    """Positions of a group that is empty are kept from when it became so; those that somebody reads, for ever."""
    since_ms = None
    if group.protocol_type:
        if group.state is GroupState.EMPTY:
            since_ms = group.state_timestamp_ms
        elif group.protocol_type != CONSUMER or group.state is not GroupState.STABLE or is_subscribed(group, topic):
            return False
    return expired(value, step, since_ms)


def is_subscribed(group: ClassicGroup, topic: str) -> bool:
    """A subscription that cannot be read counts as one to everything."""
    return group.subscribed_topics is None or topic in group.subscribed_topics


def delete_records(group: ClassicGroup, step: Step) -> None:
    """Tombstones for the group and all that belongs to it, its ledger included."""
    rebalance.refuse_newcomers(group, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, step)
    forget_belongings(group.id, step)
    for member_id in group.pending_joins:
        step.disarm(group.session_timer(member_id))
    step.keep(GroupDeleted(group.id))
    group.become(GroupState.DEAD, step.now_ms)
    step.announce(group)
