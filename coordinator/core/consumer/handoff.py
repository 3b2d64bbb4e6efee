"""Handoff of partitions in KIP-848 groups: an old owner drains, a new one warms up (docs/control.md).

`handoff.timeout.ms` is the deadline of the old owner where it is shorter than the rebalance timeout, after which the
member itself is removed, as in Kafka. At the deadline the partitions are taken; the member stays, acknowledges when
it can, and may not commit what was taken.

A new owner receives what it will get while the old one drains, and may report that it is ready. The old owner is
notified and may stop draining: if both agree, the handoff is as short as an acknowledgement. No report is required
and nothing waits for one; reports are soft.
"""

from muster.coordinator.core.consumer import epoch_ledger, target
from muster.coordinator.core.consumer.group import ConsumerGroup, ConsumerMember, ConsumerMemberState, cells
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.ledger import trigger_by_member
from muster.coordinator.core.model.records import CurrentStored, Shares, TopicId
from muster.coordinator.core.model.types import Cause
from muster.coordinator.core.settings.setting import HANDOFF_TIMEOUT

# The old owner drains
# --------------------

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


# The new owner warms up
# ----------------------


def coming_partitions(group: ConsumerGroup, member: ConsumerMember) -> Shares | None:
    """What the member is to have as soon as others let go of it; None: nothing."""
    if member.state is not ConsumerMemberState.UNRELEASED:
        return None
    target = group.target_of(member)
    awaited = {topic: partitions - member.assigned.get(topic, {}).keys() for topic, partitions in target.items()}
    return {topic: frozenset(partitions) for topic, partitions in awaited.items() if partitions} or None


def note_readiness(group: ConsumerGroup, member: ConsumerMember, ready: Shares, step: Step) -> None:
    """The member has prepared for these. Whoever holds them is told, if that is news."""
    expected = coming_partitions(group, member) or {}
    fresh = [
        cell
        for cell in cells(ready)
        if cell[1] in expected.get(cell[0], ()) and group.progress.ready.get(cell) != member.id
    ]
    if fresh:
        group.progress.ready.update(dict.fromkeys(fresh, member.id))
        step.announce(group)


def partitions_with_ready_owners(group: ConsumerGroup, member: ConsumerMember) -> Shares:
    """Of what the member is to let go of, that whose next owner is ready for it."""
    ready = group.progress.ready
    if not ready or not member.revoking:
        return {}
    found: dict[TopicId, frozenset[int]] = {}
    for topic, partitions in member.revoking.items():
        waited_for = frozenset(p for p in partitions if is_next_owner(group, ready.get((topic, p), ""), topic, p))
        if waited_for:
            found[topic] = waited_for
    return found


def is_next_owner(group: ConsumerGroup, member_id: str, topic: TopicId, partition: int) -> bool:
    return partition in group.targets.get(member_id, {}).get(topic, ())


def report_ready_owners(group: ConsumerGroup, member: ConsumerMember) -> Shares:
    """`partitions_with_ready_owners`, which the member is told now."""
    found = partitions_with_ready_owners(group, member)
    group.progress.told.update(dict.fromkeys(cells(found), member.id))
    return found


def has_unreported_owner(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether an heir is ready of which the member has not been told."""
    told = group.progress.told
    return any(told.get(cell) != member.id for cell in cells(partitions_with_ready_owners(group, member)))
