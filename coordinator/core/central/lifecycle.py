"""Central groups come to life from the log, their timers fire, and they go: deleted, or turned into another kind."""

from coordinator.core.central import liveness, positions, rebalance, telling
from coordinator.core.central.group import CentralGroup, CentralMember, CentralState
from coordinator.core.central.records import CentralDeleted, CentralOwner
from coordinator.core.effects import DeleteReply, LeaveReply, MemberReply
from coordinator.core.events import DeleteGroup, LeaveGroup
from coordinator.core.ledger import by_member
from coordinator.core.plan import canonical_name
from coordinator.core.state import Step
from coordinator.core.types import Cause, MemberIdentity, TimerKey
from coordinator.errors import CoordinatorError, ErrorCode


def load(step: Step) -> None:
    """The log has been replayed. Every owner may be fetching: it is waited for as if its stream had just closed."""
    for group in list(step.state.central_groups.values()):
        assert group.stored is not None
        group.assignor = canonical_name(group.stored.assignor, step.limits)
        for owner in group.stored.owners:
            member = group.members[owner.member_id] = expected(owner, group.generation, step.now_ms)
            member.gone = by_member(
                Cause.COORDINATOR_FAILOVER, member, "did not come back after the coordinator was loaded"
            )
            step.arm(group.lease_timer(member.id), member.lease_end_ms - step.now_ms)
        if group.members:
            group.progress.dirty = True
            rebalance.go_on(group, step)


def expected(owner: CentralOwner, generation: int, now_ms: int) -> CentralMember:
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


def timer_fired(group: CentralGroup, key: TimerKey, step: Step) -> None:
    match key:
        case ("retry", _):
            rebalance.look(group, step)
        case ("lease", _, member_id):
            liveness.expel(group, group.members[member_id], step)
        case ("ping", _, member_id):
            liveness.ping_timer_fired(group, group.members[member_id], step)
        case ("order", _, member_id):
            rebalance.order_timed_out(group, group.members[member_id], step)
        case _:
            raise AssertionError(f"no timer is called {key}")


def forget(group_id: str, member_id: str, request_id: int, step: Step) -> None:
    """The stream that waited for orders is gone."""
    group = step.state.central_groups.get(group_id)
    member = group.members.get(member_id) if group is not None else None
    if member is not None and member.waiting == request_id:
        member.waiting = None


def unload(step: Step) -> None:
    for group in step.state.central_groups.values():
        for member in group.members.values():
            telling.let_go(member, step, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR.meaning)


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
        evict(group, member, request.operator, step)
    step.reply(request.request_id, LeaveReply(members=tuple(replies)))


def evict(group: CentralGroup, member: CentralMember, operator: str, step: Step) -> None:
    """One that is lost is taken for dead on the operator's word; a living one is told, and its lease is waited out."""
    trigger = by_member(Cause.OPERATOR, member, f"was removed by {operator}")
    if member.lost:
        member.gone = trigger
        liveness.expel(group, member, step)
    else:
        liveness.lose(group, member, trigger, step)


def delete_group(group: CentralGroup, request: DeleteGroup, step: Step) -> None:
    """Forget an empty group with its offsets and its ledger."""
    if group.members:
        raise CoordinatorError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group.id!r} is {group.state.value} with {len(group.members)} members; stop them first",
        )
    positions.delete_records(group, step)
    step.reply(request.request_id, DeleteReply())


def make_room(group: CentralGroup, kind: str, refuse_with: ErrorCode, step: Step) -> int:
    """The group becomes one of another kind, if nobody is in it; returns its generation."""
    if group.members:
        raise CoordinatorError(
            refuse_with,
            f"group {group.id!r} is a central group with {len(group.members)} members and cannot be a {kind} group; "
            "stop them first, or use another group.id",
        )
    assert group.state is CentralState.EMPTY
    generation = group.generation
    step.keep(CentralDeleted(group.id))
    return generation
