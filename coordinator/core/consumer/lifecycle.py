"""KIP-848 groups come from the log and go back to it: load, timers, delete."""

from coordinator.core.consumer import history, removal, target
from coordinator.core.consumer.group import ConsumerGroup, MemberState
from coordinator.core.consumer.records import GroupEpochDeleted, RegexDeleted, TargetEpochDeleted
from coordinator.core.records import OffsetDeleted, RebalanceForgotten
from coordinator.core.state import Step
from coordinator.core.types import TimerKey
from coordinator.errors import CoordinatorError, ErrorCode


def load(step: Step) -> None:
    """The log has been replayed: watch every member afresh, and go on where a target was still to be made."""
    for group in list(step.state.consumer_groups.values()):
        history.restored(group, step)
        for member in group.members.values():
            group.progress.last_seen_ms[member.id] = step.now_ms
            step.arm(group.session_timer(member.id), removal.session_timeout_ms(member, step))
            if member.state is MemberState.UNREVOKED:
                step.arm(group.rebalance_timer(member.id), member.rebalance_timeout_ms)
        target.assign(group, step)


def timer_fired(group: ConsumerGroup, key: TimerKey, step: Step) -> None:
    match key:
        case ("assign", _):
            target.assign(group, step)
        case ("session", _, member_id):
            removal.session_expired(group, group.members[member_id], step)
        case ("rebalance", _, member_id):
            removal.rebalance_timed_out(group, group.members[member_id], step)
        case _:
            raise AssertionError(f"no timer is called {key}")


def delete_empty(group: ConsumerGroup, step: Step) -> None:
    """Raises NON_EMPTY_GROUP while it has members."""
    if group.members:
        raise CoordinatorError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group.id!r} is {group.state.value} with {len(group.members)} members; stop them first",
        )
    delete_records(group, step)


def delete_records(group: ConsumerGroup, step: Step) -> None:
    """Tombstones for an empty group and all that belongs to it, its ledger included."""
    for topic, partition in list(step.state.offsets.get(group.id, ())):
        step.keep(OffsetDeleted(group.id, topic, partition))
    ledger = step.state.ledgers.get(group.id)
    for number in list(ledger.entries) if ledger else []:
        step.keep(RebalanceForgotten(group.id, number))
    forget(group, step)


def forget(group: ConsumerGroup, step: Step) -> None:
    """The group is no more, or no more of this kind; its members have their own tombstones."""
    step.disarm(group.assign_timer)
    for regex in list(group.regexes):
        step.keep(RegexDeleted(group.id, regex))
    step.keep(TargetEpochDeleted(group.id))
    step.keep(GroupEpochDeleted(group.id))
