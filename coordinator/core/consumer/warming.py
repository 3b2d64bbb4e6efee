"""A new owner hears of what it will get while the old one drains, and may say when it is ready for it.

The old owner hears of that, and may stop draining: when both agree the hand-over is as short as an acknowledgement.
Nobody has to say anything, and nothing is waited for: what is said here is soft, and dies with the process.
"""

from muster.coordinator.core.consumer.group import ConsumerGroup, ConsumerMember, ConsumerMemberState, cells
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.consumer_records import Shares, TopicId


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


def partitions_with_ready_heirs(group: ConsumerGroup, member: ConsumerMember) -> Shares:
    """Of what the member is to let go of, that whose next owner is ready for it."""
    ready = group.progress.ready
    if not ready or not member.revoking:
        return {}
    found: dict[TopicId, frozenset[int]] = {}
    for topic, partitions in member.revoking.items():
        waited_for = frozenset(p for p in partitions if is_heir(group, ready.get((topic, p), ""), topic, p))
        if waited_for:
            found[topic] = waited_for
    return found


def is_heir(group: ConsumerGroup, member_id: str, topic: TopicId, partition: int) -> bool:
    return partition in group.targets.get(member_id, {}).get(topic, ())


def report_ready_heirs(group: ConsumerGroup, member: ConsumerMember) -> Shares:
    """`partitions_with_ready_heirs`, which the member is told now."""
    found = partitions_with_ready_heirs(group, member)
    group.progress.told.update(dict.fromkeys(cells(found), member.id))
    return found


def has_unreported_heir(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether an heir is ready of which the member has not been told."""
    told = group.progress.told
    return any(told.get(cell) != member.id for cell in cells(partitions_with_ready_heirs(group, member)))
