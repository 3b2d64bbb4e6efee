"""Central groups come to life from the log, their timers fire, and they are deleted."""

from muster.coordinator.core.central import liveness, positions, rebalance, telling
from muster.coordinator.core.central.group import CentralGroup, CentralMember
from muster.coordinator.core.groups.forgetting import check_nobody_in
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.core_events import DeleteGroup, LeaveGroup, StoodStill
from muster.coordinator.core.model.effects import DeleteReply, LeaveReply, MemberReply
from muster.coordinator.core.model.ledger import RebalanceTrigger, trigger_by_member
from muster.coordinator.core.model.plan import canonical_name
from muster.coordinator.core.model.records import CentralOwner
from muster.coordinator.core.model.types import Cause, MemberIdentity, RequestId, TimerKey
from muster.coordinator.errors import ErrorCode


def load_group(group: CentralGroup, step: Step) -> None:
    """The log has been replayed. Every owner may be fetching: it is waited for as if its stream had just closed."""
    assert group.stored is not None
    group.assignor = canonical_name(group.stored.assignor, step.limits)
    for owner in group.stored.owners:
        member = group.members[owner.member_id] = expected_member(owner, group.generation, step.now_ms)
        member.gone = trigger_by_member(
            Cause.COORDINATOR_FAILOVER, member, "did not come back after the coordinator was loaded"
        )
        step.arm(group.lease_timer(member.id), member.lease_end_ms - step.now_ms)
    if group.members:
        group.progress.dirty = True
        rebalance.advance_task(group, step)


def expected_member(owner: CentralOwner, generation: int, now_ms: int) -> CentralMember:
    return CentralMember(
        owner.member_id,
        owner.client_id,
        owner.client_host,
        owner.session_timeout_ms,
        frozenset(owner.topics),
        owner.regex,
        fetching=generation,
        may_fetch=True,
        heard_ms=now_ms,
    )


def fire_timer(group: CentralGroup, key: TimerKey, step: Step) -> None:
    match key:
        case ("retry", _):
            rebalance.start_task(group, step)
        case ("lease", _, member_id):
            liveness.expire_lease(group, group.members[member_id], step)
        case ("ping", _, member_id):
            liveness.ping_timer_fired(group, group.members[member_id], step)
        case ("order", _, member_id):
            rebalance.order_timed_out(group, group.members[member_id], step)
        case _:
            raise AssertionError(f"no timer is called {key}")


def forget_waiting_stream(group: CentralGroup, member_id: str, request_id: RequestId, step: Step) -> None:
    """The stream that waited for orders is gone."""
    member = group.members.get(member_id)
    if member is not None and member.waiting == request_id:
        member.waiting = None


def unload_group(group: CentralGroup, step: Step) -> None:
    for member in group.members.values():
        telling.release_stream(member, step, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR.meaning)


def extend_leases(group: CentralGroup, event: StoodStill, step: Step) -> None:
    """Leases are counted from when a member was last heard: they run as much later."""
    for member in group.members.values():
        member.heard_ms = min(step.now_ms, member.heard_ms + event.moved_ms)


def leave_group(group: CentralGroup, request: LeaveGroup, step: Step) -> None:
    """Only operators remove members by a call: members leave by their stream."""
    leavers = [MemberIdentity(member_id) for member_id in group.members] if request.everyone else request.members
    replies = []
    for who in leavers:
        member = group.members.get(who.member_id)
        if member is None or not request.operator:
            code, why = ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id!r} has no member {who.member_id!r}"
            if member is not None:
                why = f"member {who.member_id!r} of central group {group.id!r} leaves by its stream"
            replies.append(MemberReply(who.member_id, who.group_instance_id, code, why))
            continue
        replies.append(MemberReply(who.member_id, who.group_instance_id, ErrorCode.NONE))
        evict_member(group, member, request.operator, step)
    step.reply(request.request_id, LeaveReply(members=tuple(replies)))


def evict_member(group: CentralGroup, member: CentralMember, operator: str, step: Step) -> None:
    """One that is lost is taken for dead on the operator's word; a living one is told, and its lease is waited out."""
    trigger = trigger_by_member(Cause.OPERATOR, member, f"was removed by {operator}")
    if member.lost:
        member.gone = trigger
        liveness.expire_lease(group, member, step)
    else:
        liveness.lose_member(group, member, trigger, step)


def delete_group(group: CentralGroup, request: DeleteGroup, step: Step) -> None:
    """Forget an empty group with its offsets and its ledger."""
    check_nobody_in(group)
    positions.delete_records(group, step)
    step.reply(request.request_id, DeleteReply())


def replan_after_settings(group: CentralGroup, trigger: RebalanceTrigger, step: Step) -> None:
    if group.members:
        rebalance.request_rebalance(group, trigger, step)
