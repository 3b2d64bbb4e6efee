"""A frozen classic group whose members plan: newcomers wait at the door, and whoever comes back finds what it had.

No coordinator can keep a leader from moving partitions, so nobody leads as long as the group is frozen: the generation
stands, members that join again are told so, and their shares are cut to what they read. The door is soft: it dies with
the process, and whoever waited asks again.
"""

from dataclasses import replace

from muster.assignors.data.consumer_protocol import encode_assignment, parse_assignment
from muster.coordinator.core.classic.checks import check_protocols
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.classic.rebalance import join_reply, subscribed_topics
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.core_events import JoinGroup
from muster.coordinator.core.model.effects import JoinReply, refused_join
from muster.coordinator.core.model.plan import CONSUMER, topics_of
from muster.coordinator.core.model.types import GroupState, RequestId, TimerKey
from muster.coordinator.core.model.values import Orphans
from muster.coordinator.errors import CoordinatorError, ErrorCode


def is_frozen(group: ClassicGroup, step: Step) -> bool:
    """Whether the group is frozen, and its members would plan for it."""
    holds = step.state.holds.get(group.id)
    return holds is not None and holds.freeze is not None and not group.remote


def must_wait(group: ClassicGroup, request: JoinGroup, step: Step) -> bool:
    """Whether whoever asks has to wait: he is no member, and would get something, or become the one who plans."""
    holds = step.state.holds.get(group.id)
    if holds is None or holds.freeze is None:
        return False
    known = request.member_id in group.members or (request.group_instance_id or "") in group.static
    if known or request.member_id not in ("", *group.pending_joins):
        return False  # a member, or nobody that the group has heard of: the same as ever is said to both
    if group.state is GroupState.EMPTY:
        return holds.freeze.orphans is Orphans.KEEP
    leads = group.remote and not group.planner.by_setting and not request.remote_assignor
    return not group.remote or bool(leads)


def park_newcomer(group: ClassicGroup, request: JoinGroup, patience_ms: int, step: Step) -> None:
    """He waits, at most as long as a rebalance may take him. Of a name that he was given before nothing is left."""
    check_protocols(group, request.protocol_type, request.protocols)
    if len(group.members) + len(group.door) >= step.limits.max_group_size:
        raise CoordinatorError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.id!r} is frozen, and as many wait for it as group.max.size allows; ask again later",
        )
    group.pending_joins.discard(request.member_id)
    step.disarm(group.session_timer(request.member_id))
    group.door[request.request_id] = replace(request, member_id="")
    step.state.parked[request.request_id] = request.member_id
    step.arm(newcomer_timer(group.id, request.request_id), patience_ms)


def newcomer_timer(group_id: str, request_id: RequestId) -> TimerKey:
    return ("door", group_id, str(request_id))


def refuse_newcomer(group: ClassicGroup, request_id: RequestId, step: Step) -> None:
    """All clients ask again after this code."""
    if group.door.pop(request_id, None) is not None:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        step.reply(request_id, JoinReply(code, f"group {group.id!r} is frozen (muster groups resume); ask again"))


def forget_newcomer(group: ClassicGroup, request_id: RequestId, step: Step) -> None:
    """His client is gone."""
    if group.door.pop(request_id, None) is not None:
        step.disarm(newcomer_timer(group.id, request_id))


def release_newcomers(group: ClassicGroup, step: Step) -> list[JoinGroup]:
    """Those who waited, in order; nobody does any more."""
    waiting = list(group.door.values())
    for request in waiting:
        step.disarm(newcomer_timer(group.id, request.request_id))
        step.state.parked.pop(request.request_id, None)
    group.door.clear()
    return waiting


def refuse_newcomers(group: ClassicGroup, code: ErrorCode, step: Step) -> None:
    """The group is no more, or none of this kind."""
    for request in release_newcomers(group, step):
        step.reply(request.request_id, refused_join(code, ""))


def take_back_member(group: ClassicGroup, member: ClassicMember, request: JoinGroup, step: Step) -> bool:
    """A member joins again in a frozen group: whether it was told that the generation stands, and that nobody leads."""
    if not is_frozen(group, step) or group.state is not GroupState.STABLE:
        return False
    if all(protocol.name != group.protocol_name for protocol in request.protocols):
        raise CoordinatorError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.id!r} is frozen with {group.protocol_name!r}, which member {member.id!r} does not offer any "
            "more; resume the group first",
        )
    group.members.offer(member, request.protocols)
    member.last_seen_ms = step.now_ms
    cut_unread_share(group, member)
    group.subscribed_topics = subscribed_topics(group)
    step.keep(group.record(step.now_ms))
    step.arm(group.session_timer(member.id), member.session_timeout_ms)
    step.reply(request.request_id, replace(join_reply(group, member, step), leader="", members=()))
    return True


def cut_unread_share(group: ClassicGroup, member: ClassicMember) -> None:
    """Clients that get topics they do not read ask for another plan, for ever. What it does not read is nobody's."""
    topics = topics_of(member.metadata(group.protocol_name)) if group.protocol_type == CONSUMER else None
    if topics is None or not member.assignment:
        return
    try:
        share = parse_assignment(member.assignment)
    except ValueError:
        return
    kept = {topic: partitions for topic, partitions in share.partitions.items() if topic in topics}
    if len(kept) < len(share.partitions):
        member.assignment = encode_assignment(kept, share.user_data, share.version)
