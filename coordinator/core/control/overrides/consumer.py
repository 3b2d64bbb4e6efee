"""KIP-848 groups, as those see them who hold something of a group: who is there, and who has what."""

from muster.assignors.api import Snapshot
from muster.coordinator.core.consumer import epoch_ledger
from muster.coordinator.core.consumer.group import ConsumerGroup, ConsumerMember, cells
from muster.coordinator.core.control.overrides import members
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.consumer_records import Shares, TopicId
from muster.coordinator.core.model.correction import CorrectedPlan, GroupSituation
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.values import MemberIdentifiers


def correct_consumer_plan(group: ConsumerGroup, plan: Plan, snapshot: Snapshot, step: Step) -> CorrectedPlan:
    """What becomes of a plan where something of the group is held."""
    if group.id not in step.state.holds:
        return CorrectedPlan(plan)
    return members.correct_plan(
        group.id, plan, consumer_situation(group, snapshot, step), group.progress.rebalance, step
    )


def consumer_assignor_input(group: ConsumerGroup, snapshot: Snapshot, step: Step) -> Snapshot:
    """What its assignor is told of it."""
    return members.assignor_input(group.id, snapshot, map(consumer_member_names, group.members.values()), step)


def consumer_situation(group: ConsumerGroup, snapshot: Snapshot, step: Step) -> GroupSituation:
    return GroupSituation(
        snapshot=snapshot,
        who={member.id: consumer_member_names(member) for member in group.members.values()},
        had={
            member.id: epoch_ledger.share_by_name(consumer_share(group, member), step)
            for member in group.members.values()
        },
        budget=members.move_budget(step.state, group.id),
    )


def consumer_member_names(member: ConsumerMember) -> MemberIdentifiers:
    return MemberIdentifiers(member.id, member.instance_id, member.client_id, member.client_host)


def consumer_share(group: ConsumerGroup, member: ConsumerMember) -> Shares:
    """What it works on and has not been told to give up, and of its target what nobody else works on."""
    mine: dict[TopicId, set[int]] = {topic: set(partitions) for topic, partitions in member.assigned.items()}
    for topic, partition in cells(group.target_of(member)):
        holder = group.members.get(group.owner(topic, partition) or "")
        if holder is None or partition in holder.revoking.get(topic, {}):
            mine.setdefault(topic, set()).add(partition)
    return {topic: frozenset(partitions) for topic, partitions in mine.items()}


def hold_consumer_share(group: ConsumerGroup, member: ConsumerMember, step: Step) -> None:
    """The member is about to be taken out: what it had may wait for an heir.

    What it was to have and another still works on stays with that one; what is on its way to another arrives there.
    """
    going = {cell for other, share in group.targets.items() if other != member.id for cell in cells(share)}
    share = {t: frozenset(p for p in ps if (t, p) not in going) for t, ps in consumer_share(group, member).items()}
    members.hold_share(group.id, consumer_member_names(member), epoch_ledger.share_by_name(share, step), step)
