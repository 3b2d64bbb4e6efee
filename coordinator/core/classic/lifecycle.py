"""Groups come from the log and go back to it, and their timers fire: load, unload, delete."""

from muster.coordinator.core.classic import again, door, handoff, history, liveness, plans
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import ClassicMember, ClassicMembers
from muster.coordinator.core.classic.offsets import delete_records
from muster.coordinator.core.classic.rebalance import join_timer_fired, prepare_rebalance, subscribed_topics
from muster.coordinator.core.classic.sync import sync_timer_fired
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.core_events import DeleteGroup
from muster.coordinator.core.model.core_records import GroupStored, MemberRecord
from muster.coordinator.core.model.effects import DeleteReply, refused_join, refused_sync
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.types import Cause, GroupState, Protocol, TimerKey
from muster.coordinator.errors import CoordinatorError, ErrorCode


def load_group(group: ClassicGroup, step: Step) -> None:
    """The log has been replayed: bring the group to life. Nobody could be heard meanwhile: sessions start afresh."""
    if group.stored is not None:
        restore_group(group, group.stored, step)
    if len(group.members) > step.limits.max_group_size:
        prepare_rebalance(group, is_over_size(group, step.limits.max_group_size), step)
    else:
        again.replan_after_load(group, step)


def restore_group(group: ClassicGroup, stored: GroupStored, step: Step) -> None:
    """The group as its last completed generation left it: Stable with members, Empty without."""
    group.generation = stored.generation
    group.protocol_type = stored.protocol_type or None
    group.protocol_name = stored.protocol
    group.leader = stored.leader
    group.state_timestamp_ms = stored.state_timestamp_ms if stored.state_timestamp_ms >= 0 else None
    group.restored = bool(stored.members)
    group.members = ClassicMembers()
    for record in stored.members:
        group.members.add(restored_member(record, stored, step.now_ms))
    group.static = {m.group_instance_id: m.id for m in group.members.values() if m.group_instance_id is not None}
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    group.subscribed_topics = subscribed_topics(group) if group.members else frozenset()
    if group.members and group.leader not in group.members:
        group.leader = next(iter(group.members))
    history.restore_withheld(group, step)
    plans.restore_last_plan(group, step)
    for member in group.members.values():
        step.arm(group.session_timer(member.id), member.session_timeout_ms)


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
            again.retry_plan(group, step)
        case ("sync", _):
            sync_timer_fired(group, step)
        case ("handoff", _):
            handoff.remove_overdue_members(group, step)
        case ("follow", _):
            again.start_follow_up_round(group, step)
        case ("door", _, request_id):
            door.refuse_newcomer(group, int(request_id), step)
        case ("session", _, member_id):
            liveness.expire_session(group, member_id, step)
        case _:
            raise AssertionError(f"no timer is called {key}")


def dissolve_group(group: ClassicGroup, code: ErrorCode, step: Step) -> None:
    """Nobody is of this group any more: whoever is parked is refused."""
    door.refuse_newcomers(group, code, step)
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
