"""KIP-848 groups come to life from the log, and their timers fire."""

from muster.coordinator.core.consumer import draining, epoch_ledger, removal, target
from muster.coordinator.core.consumer.group import ConsumerGroup, ConsumerMemberState
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.consumer_records import GroupEpochStored, TargetDeleted, TargetEpochStored
from muster.coordinator.core.model.types import TimerKey
from muster.coordinator.core.settings.consumer import SESSION_TIMEOUT


def load_group(group: ConsumerGroup, step: Step) -> None:
    """The log has been replayed: watch every member afresh, and go on where a target was still to be made."""
    epoch_ledger.restore_epoch(group, step)
    group.progress.unsure.update(group.members)
    group.progress.gave = None
    for member in group.members.values():
        group.progress.last_seen_ms[member.id] = step.now_ms
        step.arm(group.session_timer(member.id), removal.session_timeout_of(group, member, step))
        if member.state is ConsumerMemberState.UNREVOKED and member.classic is None:
            draining.watch_draining(group, member, step)
    target.compute_target(group, step)


def recover_damaged_group(group: ConsumerGroup, step: Step) -> None:
    """Epochs, targets and shares need not fit together: with what is left the group might never come to rest.

    Its members join again, under epochs that nobody has had.
    """
    for member_id in sorted(group.targets.keys() - group.members.keys()):
        group.progress.before[member_id] = group.targets[member_id]
        group.progress.fenced_until_ms = step.now_ms + SESSION_TIMEOUT.of(step.state, group.id)
        step.keep(TargetDeleted(group.id, member_id))
    seen = max(group.epoch, group.target_epoch, *(member.epoch for member in group.members.values()))
    if seen > group.epoch:
        step.keep(GroupEpochStored(group.id, seen, group.metadata_hash))
    if group.members:
        removal.fence_everyone(group, "a record of the group in the log is damaged", step)
    elif group.epoch > group.target_epoch:
        step.keep(TargetEpochStored(group.id, group.epoch, 0))


def fire_timer(group: ConsumerGroup, key: TimerKey, step: Step) -> None:
    match key:
        case ("assign", _) if target.are_epochs_used_up(group):
            removal.fence_everyone(group, f"epoch {group.epoch} is the last there is", step)
        case ("assign", _):
            target.compute_target(group, step)
        case ("session", _, member_id):
            removal.expire_session(group, group.members[member_id], step)
        case ("rebalance", _, member_id):
            removal.expire_rebalance_timeout(group, group.members[member_id], step)
        case ("handoff", _, member_id):
            draining.take_from_draining_member(group, group.members[member_id], step)
        case ("rejoin", _, member_id):
            removal.expire_rejoin(group, group.members[member_id], step)
        case ("fetch", _, member_id):
            removal.expire_fetch(group, group.members[member_id], step)
        case _:
            raise AssertionError(f"no timer is called {key}")
