"""An old owner drains: it has until its deadline, then what it was told to give up is taken (docs/control.md).

`handoff.timeout.ms` is that deadline where it is shorter than the rebalance timeout, after which the member itself is
out, as in Kafka. The member stays: it acknowledges when it can, and may not commit what was taken any more.
"""

from muster.coordinator.core.consumer import epoch_ledger, target
from muster.coordinator.core.consumer.group import ConsumerGroup, ConsumerMember, ConsumerMemberState, cells
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.consumer_records import CurrentStored
from muster.coordinator.core.model.ledger import trigger_by_member
from muster.coordinator.core.model.types import Cause
from muster.coordinator.core.settings.handoff import HANDOFF_TIMEOUT

TOLD = 5
"""Partitions that a sentence names."""


def watch_draining(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    """From now on the member drains."""
    step.arm(group.rebalance_timer(member.id), member.rebalance_timeout_ms)
    handoff_ms = HANDOFF_TIMEOUT.of(step.state, group.id)
    if member.revoking and 0 < handoff_ms < member.rebalance_timeout_ms:
        step.arm(group.handoff_timer(member.id), handoff_ms)


def stop_watching_draining(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    step.disarm(group.rebalance_timer(member.id))
    step.disarm(group.handoff_timer(member.id))


def remaining_drain_ms(group: ConsumerGroup, member: ConsumerMember, step: Step) -> int:
    """How long the member may still drain; 0: it has nothing to give up."""
    if member.state is not ConsumerMemberState.UNREVOKED or not member.revoking:
        return 0
    deadlines = step.state.deadlines
    keys = (group.handoff_timer(member.id), group.rebalance_timer(member.id))
    return max(1, min((deadlines[key] for key in keys if key in deadlines), default=step.now_ms) - step.now_ms)


def take_from_draining_member(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    """It did not give up what it was told to: that is taken. The epoch that follows has an entry which names it."""
    timeout_ms = HANDOFF_TIMEOUT.of(step.state, group.id)
    if member.state is not ConsumerMemberState.UNREVOKED or not member.revoking or not timeout_ms:
        return
    taken = sorted(cells(member.revoking))
    named = ", ".join(f"{epoch_ledger.topic_name(topic, step)}-{partition}" for topic, partition in taken[:TOLD])
    more = f" and {len(taken) - TOLD} more" if len(taken) > TOLD else ""
    what = f"did not give up {named}{more} within {timeout_ms} ms (handoff.timeout.ms); taken from it"
    epoch_ledger.begin_epoch(group, trigger_by_member(Cause.HANDOFF_TIMEOUT, member, what), step)
    epoch_ledger.keep_current(
        group,
        member,
        CurrentStored(group.id, member.id, member.epoch, member.previous_epoch, member.state, member.assigned, {}),
        step,
    )
    group.progress.taken.update(dict.fromkeys(taken, member.id))
    target.raise_epoch(group, step)
    target.compute_target(group, step)
