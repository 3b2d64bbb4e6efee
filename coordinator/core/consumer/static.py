"""Static members of KIP-848 groups: one identity, one process after the other."""

from muster.coordinator.core.consumer import epoch_ledger
from muster.coordinator.core.consumer.cleanup import forget_member
from muster.coordinator.core.consumer.group import AWAY, ConsumerGroup, ConsumerMember, ConsumerMemberState
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.consumer_records import ConsumerMemberStored, CurrentStored, TargetStored
from muster.coordinator.core.model.core_events import ConsumerHeartbeat
from muster.coordinator.errors import CoordinatorError, ErrorCode


def check_may_take_over(group: ConsumerGroup, request: ConsumerHeartbeat) -> None:
    """An instance id is free, or its holder has said that it goes; a live one is not pushed out."""
    instance_id = request.group_instance_id
    if instance_id is None:
        return
    holder = group.static.get(instance_id)
    if holder is None or holder == request.member_id:
        return
    # A classic process has no way to say that it goes: the one that replaces it is its successor (rolling upgrade).
    if group.members[holder].epoch == AWAY or group.members[holder].classic is not None:
        return
    raise CoordinatorError(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"group.instance.id {instance_id!r} of group {group.id!r} is in use by member {holder!r}; "
        f"stop that process, or wait for its session to end",
    )


def away_member(group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember | None:
    """The member whose place the one that joins takes."""
    holder = group.static.get(request.group_instance_id or "")
    return None if holder is None or holder == request.member_id else group.members[holder]


def replace_static_member(group: ConsumerGroup, old: ConsumerMember, record: ConsumerMemberStored, step: Step) -> None:
    """The same identity under a new id, with all that the old one had; the group need not move."""
    share, assigned = group.target_of(old), old.assigned
    epoch_ledger.rename_member(group, old.id, record.member_id)
    group.progress.last_seen_ms.pop(old.id, None)
    forget_member(group, old.id, step)
    step.keep(record)
    step.keep(TargetStored(group.id, record.member_id, share))
    step.keep(CurrentStored(group.id, record.member_id, 0, 0, ConsumerMemberState.STABLE, assigned, {}))


def leave_for_a_while(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    """It leaves for a while: its partitions stay its own until its session ends, a revocation counts as done."""
    step.disarm(group.rebalance_timer(member.id))
    record = CurrentStored(
        group.id, member.id, AWAY, max(member.epoch, 0), ConsumerMemberState.STABLE, member.assigned, {}
    )
    epoch_ledger.keep_current(group, member, record, step)
