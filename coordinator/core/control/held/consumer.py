"""KIP-848 groups, as those see them who hold something of a group: who is there, and who has what."""

from muster.assignors.api import Snapshot
from muster.coordinator.core.consumer import history
from muster.coordinator.core.consumer.group import ConsumerGroup, ConsumerMember, cells
from muster.coordinator.core.consumer.records import Shares, TopicId
from muster.coordinator.core.control.holds import members
from muster.coordinator.core.control.holds.correction import Corrected, Situation
from muster.coordinator.core.control.holds.values import Who
from muster.coordinator.core.plan import Plan
from muster.coordinator.core.state import Step


def correct(group: ConsumerGroup, plan: Plan, snapshot: Snapshot, step: Step) -> Corrected:
    """What becomes of a plan where something of the group is held."""
    if group.id not in step.state.holds:
        return Corrected(plan)
    return members.correct(group.id, plan, situation(group, snapshot, step), group.progress.rebalance, step)


def asked(group: ConsumerGroup, snapshot: Snapshot, step: Step) -> Snapshot:
    """What its assignor is told of it."""
    return members.asked(group.id, snapshot, map(who, group.members.values()), step)


def situation(group: ConsumerGroup, snapshot: Snapshot, step: Step) -> Situation:
    return Situation(
        snapshot=snapshot,
        who={member.id: who(member) for member in group.members.values()},
        had={member.id: history.by_name(has(group, member), step) for member in group.members.values()},
        budget=members.move_budget(step.state, group.id),
    )


def who(member: ConsumerMember) -> Who:
    return Who(member.id, member.instance_id, member.client_id, member.client_host)


def has(group: ConsumerGroup, member: ConsumerMember) -> Shares:
    """What it works on and has not been told to give up, and of its target what nobody else works on."""
    mine: dict[TopicId, set[int]] = {topic: set(partitions) for topic, partitions in member.assigned.items()}
    for topic, partition in cells(group.target_of(member)):
        holder = group.members.get(group.owner(topic, partition) or "")
        if holder is None or partition in holder.revoking.get(topic, {}):
            mine.setdefault(topic, set()).add(partition)
    return {topic: frozenset(partitions) for topic, partitions in mine.items()}


def left(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    """The member is about to be taken out: what it had may wait for an heir.

    What it was to have and another still works on stays with that one; what is on its way to another arrives there.
    """
    going = {cell for other, share in group.targets.items() if other != member.id for cell in cells(share)}
    share = {t: frozenset(p for p in ps if (t, p) not in going) for t, ps in has(group, member).items()}
    members.left(group.id, who(member), history.by_name(share, step), step)
