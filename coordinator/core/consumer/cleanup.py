"""A KIP-848 group leaves the log: deleted, expired, or turned into a classic one."""

from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.groups.forgetting import check_nobody_in, forget_belongings
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.consumer_records import (
    ConsumerMemberDeleted,
    CurrentDeleted,
    GroupEpochDeleted,
    RegexDeleted,
    TargetDeleted,
    TargetEpochDeleted,
)
from muster.coordinator.core.model.core_events import DeleteGroup
from muster.coordinator.core.model.effects import DeleteReply


def delete_group(group: ConsumerGroup, request: DeleteGroup, step: Step) -> None:
    """Forget an empty group with its offsets and its ledger."""
    check_nobody_in(group)
    delete_records(group, step)
    step.reply(request.request_id, DeleteReply())


def delete_records(group: ConsumerGroup, step: Step) -> None:
    """Tombstones for an empty group and all that belongs to it, its ledger included."""
    forget_belongings(group.id, step)
    forget_group(group, step)


def forget_group(group: ConsumerGroup, step: Step) -> None:
    """Whatever kind of group the id stands for next, nothing of this one is left but offsets and ledger."""
    for member_id in list(group.members):
        forget_member(group, member_id, step)
    step.disarm(group.assign_timer)
    for regex in list(group.regexes):
        step.keep(RegexDeleted(group.id, regex))
    step.keep(TargetEpochDeleted(group.id))
    step.keep(GroupEpochDeleted(group.id))


def forget_member(group: ConsumerGroup, member_id: str, step: Step) -> None:
    """Its timers and its records, in Kafka's order."""
    for key in group.timers_of(member_id):
        step.disarm(key)
    step.keep(CurrentDeleted(group.id, member_id))
    step.keep(TargetDeleted(group.id, member_id))
    step.keep(ConsumerMemberDeleted(group.id, member_id))
