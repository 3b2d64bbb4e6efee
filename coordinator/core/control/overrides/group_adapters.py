"""Shows a group of each kind to the overrides: who its members are, what each owns, and what stays when one leaves.

Each kind has the same functions: correct a plan, give the assignor its input, describe the situation, and hold the
share of a member that leaves. Classic groups add what lets a plan stand when a member leaves and its share waits for
an heir, or when the group is frozen.
"""

from collections.abc import Callable
from dataclasses import replace

from muster.assignors.api import Assignment, Snapshot
from muster.coordinator.core.central.group import CentralGroup, CentralMember
from muster.coordinator.core.classic import rebalance_ledger
from muster.coordinator.core.classic.group import ClassicGroup, last_planned_shares
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.classic.rebalance_ledger import disarm_when_complete
from muster.coordinator.core.consumer import epoch_ledger
from muster.coordinator.core.consumer.group import ConsumerGroup, ConsumerMember, cells
from muster.coordinator.core.control.overrides import overrides
from muster.coordinator.core.groups.bookkeeping import keep_audit_entry
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.ledger import RebalanceTrigger, WithheldPartition
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.plan_correction import CorrectedPlan, GroupSituation, partition_set
from muster.coordinator.core.model.records import MemberIdentifiers, Orphans, Shares, TopicId
from muster.coordinator.core.model.types import GroupState, Outcome

# Classic groups
# --------------


def correct_classic_plan(group: ClassicGroup, plan: Assignment, snapshot: Snapshot, step: Step) -> CorrectedPlan:
    """What becomes of a plan of the coordinator where something of the group is held."""
    shares = plan.to_dict()
    made: Plan = {m: {t: tuple(ps) for t, ps in share.items()} for m, share in shares.items()}
    if group.id not in step.state.holds:
        return CorrectedPlan(made)
    return overrides.correct_plan(group.id, made, classic_situation(group, snapshot, step), group.rebalance, step)


def classic_assignor_input(group: ClassicGroup, snapshot: Snapshot, step: Step) -> Snapshot:
    """What its assignor is told of it."""
    return overrides.assignor_input(group.id, snapshot, map(classic_member_names, group.members.values()), step)


def classic_plan_input(group: ClassicGroup, seen: Snapshot, whole: Callable[[], Snapshot], step: Step) -> Snapshot:
    """What the assignor was told, with those of whom it was not."""
    if group.id not in step.state.holds:
        return seen
    known = {member.id for member in seen.members}
    return replace(seen, members=[*seen.members, *(each for each in whole().members if each.id not in known)])


def classic_situation(group: ClassicGroup, snapshot: Snapshot, step: Step) -> GroupSituation:
    return GroupSituation(
        snapshot=snapshot,
        who={member.id: classic_member_names(member) for member in group.members.values()},
        had=last_planned_shares(group),
        budget=overrides.move_budget(step.state, group.id),
    )


def classic_member_names(member: ClassicMember) -> MemberIdentifiers:
    return MemberIdentifiers(member.id, member.group_instance_id, member.client_id, member.client_host)


def hold_classic_share(group: ClassicGroup, member: ClassicMember, step: Step) -> None:
    """The member is about to be taken out: what it had may wait for an heir, where the coordinator plans."""
    if group.remote:
        overrides.hold_share(
            group.id, classic_member_names(member), last_planned_shares(group).get(member.id, {}), step
        )


def let_plan_stand(group: ClassicGroup, trigger: RebalanceTrigger, step: Step) -> bool:
    """Somebody went, and nobody has to come back for it: what he had waits for an heir, or the group is frozen.

    The generation stands.
    """
    holds = step.state.holds.get(group.id)
    if holds is None or not group.members or group.state is not GroupState.STABLE:
        return False
    waiting = {share.member_id: share for share in holds.shares}
    if holds.freeze is not None:
        if group.remote and holds.freeze.orphans is Orphans.GIVE:
            return False
        what = "what it had stays without an owner while the group is frozen"
    elif group.remote and all(member_id in waiting for member_id in members_gone_since_plan(group)):
        what = "what it had waits for an heir"
    else:
        return False
    for member_id, departure in group.departures.items():
        for cell in partition_set(waiting[member_id]) if member_id in waiting else ():
            group.carried[cell] = WithheldPartition(member_id, departure.last_owned_ms)
    keep_audit_entry(group, Outcome.HELD, note_standing(trigger, what), step)
    step.keep(group.record(step.now_ms))
    disarm_when_complete(group, step)
    return True


def members_gone_since_plan(group: ClassicGroup) -> set[str]:
    """Those who went since the last plan, as far as they had anything by it."""
    last = rebalance_ledger.last_plan(group)
    return {member_id for member_id in group.departures if last.get(member_id)}


def note_standing(trigger: RebalanceTrigger, what: str) -> RebalanceTrigger:
    return RebalanceTrigger(
        trigger.cause,
        f"{trigger.detail}; {what}",
        trigger.culprit,
        trigger.client_id,
        trigger.client_host,
        trigger.client_reason,
    )


def adopt_classic_plan(
    group: ClassicGroup, kept: CorrectedPlan, carried: dict[tuple[str, int], WithheldPartition], step: Step
) -> None:
    """The plan is the group's. What still waits for an heir is without an owner since before."""
    overrides.release_inherited_shares(group.id, kept.inherited, step)
    for share in overrides.overrides_of(step.state, group.id).shares:
        group.carried.update({cell: carried[cell] for cell in partition_set(share) if cell in carried})


# KIP-848 groups
# --------------


def correct_consumer_plan(group: ConsumerGroup, plan: Plan, snapshot: Snapshot, step: Step) -> CorrectedPlan:
    """What becomes of a plan where something of the group is held."""
    if group.id not in step.state.holds:
        return CorrectedPlan(plan)
    return overrides.correct_plan(
        group.id, plan, consumer_situation(group, snapshot, step), group.progress.rebalance, step
    )


def consumer_assignor_input(group: ConsumerGroup, snapshot: Snapshot, step: Step) -> Snapshot:
    """What its assignor is told of it."""
    return overrides.assignor_input(group.id, snapshot, map(consumer_member_names, group.members.values()), step)


def consumer_situation(group: ConsumerGroup, snapshot: Snapshot, step: Step) -> GroupSituation:
    return GroupSituation(
        snapshot=snapshot,
        who={member.id: consumer_member_names(member) for member in group.members.values()},
        had={
            member.id: epoch_ledger.share_by_name(consumer_share(group, member), step)
            for member in group.members.values()
        },
        budget=overrides.move_budget(step.state, group.id),
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
    overrides.hold_share(group.id, consumer_member_names(member), epoch_ledger.share_by_name(share, step), step)


# Central groups
# --------------


def correct_central_plan(group: CentralGroup, plan: Plan, snapshot: Snapshot, step: Step) -> CorrectedPlan:
    """What becomes of a plan where something of the group is held."""
    if group.id not in step.state.holds:
        return CorrectedPlan(plan)
    return overrides.correct_plan(
        group.id, plan, central_situation(group, snapshot, step), group.progress.rebalance, step
    )


def central_assignor_input(group: CentralGroup, snapshot: Snapshot, step: Step) -> Snapshot:
    """What its assignor is told of it."""
    return overrides.assignor_input(group.id, snapshot, map(central_member_names, group.members.values()), step)


def central_plan_input(group: CentralGroup, seen: Snapshot, whole: Callable[[], Snapshot], step: Step) -> Snapshot:
    """What the assignor was told, with those of whom it was not."""
    if group.id not in step.state.holds:
        return seen
    known = {member.id for member in seen.members}
    return replace(seen, members=[*seen.members, *(each for each in whole().members if each.id not in known)])


def central_situation(group: CentralGroup, snapshot: Snapshot, step: Step) -> GroupSituation:
    return GroupSituation(
        snapshot=snapshot,
        who={member.id: central_member_names(member) for member in group.members.values()},
        had={member_id: share for member_id, share in group.owned.items() if member_id in group.members},
        budget=overrides.move_budget(step.state, group.id),
    )


def central_member_names(member: CentralMember) -> MemberIdentifiers:
    return MemberIdentifiers(member.id, None, member.client_id, member.client_host)


def hold_central_share(group: CentralGroup, member: CentralMember, step: Step) -> None:
    """The member is out: what it had may wait for an heir."""
    overrides.hold_share(group.id, central_member_names(member), group.owned.get(member.id, {}), step)
