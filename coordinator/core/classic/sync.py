"""SyncGroup: the leader hands in the plan, and every member fetches its share."""

from typing import assert_never

from muster.coordinator.core.classic import rebalance, rebalance_ledger, replanning
from muster.coordinator.core.classic.group import ClassicGroup, check_generation, check_not_dead, require_member
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.classic.rebalance import let_plan_stand, prepare_rebalance, remove_member
from muster.coordinator.core.classic.rebalance_ledger import accept_plan, answer_sync, disarm_when_complete
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import refused_sync
from muster.coordinator.core.model.events import SyncGroup
from muster.coordinator.core.model.ledger import Departure, RebalanceTrigger
from muster.coordinator.core.model.plan import check_fits_log
from muster.coordinator.core.model.types import Cause, GroupState, WaitEnd
from muster.coordinator.errors import CoordinatorError, ErrorCode


def sync_group(group: ClassicGroup, request: SyncGroup, step: Step) -> None:
    """Answer with the member's share, or park the request until the leader has spoken."""
    check_not_dead(group)
    member = require_member(group, request.member_id, request.group_instance_id)
    check_generation(group, member, request.generation)
    check_same_protocol(group, request)

    match group.state:
        case GroupState.STABLE:
            # The first answer was lost, or the leader was faster. The plan stands, so say it.
            member.last_seen_ms = step.now_ms
            answer_sync(group, member, request.request_id, step)
            group.pending_syncs.discard(member.id)
            disarm_when_complete(group, step)

        case GroupState.COMPLETING_REBALANCE:
            if member.id == group.acting_leader:
                check_plan_fits_log(group, request, step)
            park_sync(member, request, step)
            group.pending_syncs.discard(member.id)
            if member.id == group.acting_leader:
                accept_leader_plan(group, request, step)
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
    check_fits_log(group.id, "the plan and the subscriptions", size, step.limits)


def park_sync(member: ClassicMember, request: SyncGroup, step: Step) -> None:
    if member.sync_request is not None:
        step.reply(member.sync_request, refused_sync(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_request = request.request_id
    step.state.parked[request.request_id] = member.id
    member.last_seen_ms = step.now_ms


def accept_leader_plan(group: ClassicGroup, request: SyncGroup, step: Step) -> None:
    snapshot = rebalance_ledger.PlanProvenance(
        request.snapshot.decode("utf-8", "replace"), delayed=request.scheduled_delay_ms > 0
    )
    accept_plan(group, dict(request.assignments), snapshot, step)
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
