"""KIP-848 groups come to life from the log, and their timers fire."""

from muster.coordinator.core.consumer import history, removal, target
from muster.coordinator.core.consumer.group import ConsumerGroup, MemberState
from muster.coordinator.core.consumer.records import GroupEpochStored, TargetDeleted, TargetEpochStored
from muster.coordinator.core.control.handoff import draining
from muster.coordinator.core.control.settings.consumer import SESSION_TIMEOUT
from muster.coordinator.core.state import Step
from muster.coordinator.core.types import TimerKey


def load(group: ConsumerGroup, step: Step) -> None:
    """The log has been replayed: watch every member afresh, and go on where a target was still to be made."""
    history.restored(group, step)
    group.progress.unsure.update(group.members)
    group.progress.gave = None
    for member in group.members.values():
        group.progress.last_seen_ms[member.id] = step.now_ms
        step.arm(group.session_timer(member.id), removal.session_timeout_ms(group, member, step))
        if member.state is MemberState.UNREVOKED and member.classic is None:
            draining.watch(group, member, step)
    target.assign(group, step)


def damaged(group: ConsumerGroup, step: Step) -> None:
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
        removal.begin_anew(group, "a record of the group in the log is damaged", step)
    elif group.epoch > group.target_epoch:
        step.keep(TargetEpochStored(group.id, group.epoch, 0))


def timer_fired(group: ConsumerGroup, key: TimerKey, step: Step) -> None:
    match key:
        case ("assign", _) if target.used_up(group):
            removal.begin_anew(group, f"epoch {group.epoch} is the last there is", step)
        case ("assign", _):
            target.assign(group, step)
        case ("session", _, member_id):
            removal.session_expired(group, group.members[member_id], step)
        case ("rebalance", _, member_id):
            removal.rebalance_timed_out(group, group.members[member_id], step)
        case ("handoff", _, member_id):
            draining.timed_out(group, group.members[member_id], step)
        case ("rejoin", _, member_id):
            removal.did_not_rejoin(group, group.members[member_id], step)
        case ("fetch", _, member_id):
            removal.did_not_fetch(group, group.members[member_id], step)
        case _:
            raise AssertionError(f"no timer is called {key}")
