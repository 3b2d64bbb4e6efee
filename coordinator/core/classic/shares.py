"""A plan takes effect: everybody's share is kept, and told to whoever has asked for it."""

from collections.abc import Mapping

from muster.coordinator.core.classic import history
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.effects import SyncReply
from muster.coordinator.core.model.types import GroupState


def accept_plan(group: ClassicGroup, shares: Mapping[str, bytes], snapshot: history.PlanProvenance, step: Step) -> None:
    """Members that the plan forgot get nothing; those it invented are ignored."""
    for member in group.members.values():
        member.assignment = shares.get(member.id, b"")
    group.become(GroupState.STABLE, step.now_ms)
    history.record_decision(group, snapshot, step)
    step.keep(group.record(step.now_ms))
    for member in group.members.values():
        if member.sync_request is not None:
            answer_sync(group, member, member.sync_request, step)
            step.arm(group.session_timer(member.id), member.session_timeout_ms)
            member.sync_request = None


def answer_sync(group: ClassicGroup, member: ClassicMember, request_id: int, step: Step) -> None:
    step.reply(
        request_id,
        SyncReply(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment),
    )
    history.note_fetched_share(group, member.id, step)


def disarm_when_complete(group: ClassicGroup, step: Step) -> None:
    """Everyone has asked for its share: nobody is waited for any more, and none of them insists on a leader."""
    if not group.pending_syncs:
        if group.insisting:
            group.insisting -= {member.client for member in group.members.values()}
        step.disarm(group.sync_timer)
        if group.state is GroupState.STABLE:
            history.close_settling(group, step)
