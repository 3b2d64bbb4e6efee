"""Committed offsets of classic groups: which member may commit and fetch, and what expires."""

from typing import assert_never

from muster.assignors.data.consumer_protocol import parse_assignment
from muster.coordinator.core.classic import rebalance
from muster.coordinator.core.classic.group import ClassicGroup, check_generation, check_not_dead, require_member
from muster.coordinator.core.groups.bookkeeping import expired, fences_hold, forget_belongings
from muster.coordinator.core.groups.kind import Positions, RefusedPositions
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.events import ClaimFence, OffsetCommit, OffsetFetch
from muster.coordinator.core.model.plan import CONSUMER
from muster.coordinator.core.model.records import GroupDeleted, OffsetDeleted
from muster.coordinator.core.model.types import GroupState, StoredOffset
from muster.coordinator.errors import CoordinatorError, ErrorCode


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
    if empty and not group.offsets and not fences_hold(group.id, step):
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
