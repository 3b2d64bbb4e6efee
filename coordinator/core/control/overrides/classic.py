"""Classic groups, as those see them who hold something of a group: who is there, who has what, and what then stands."""

from collections.abc import Callable
from dataclasses import replace

from muster.assignors.api import Assignment, Snapshot
from muster.coordinator.core.classic import history
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.classic.shares import disarm_when_complete
from muster.coordinator.core.classic.unheard import last_planned_shares
from muster.coordinator.core.control.overrides import members, standing
from muster.coordinator.core.groups.entries import keep_audit_entry
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.correction import CorrectedPlan, GroupSituation, partition_set
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.model.moves import WithheldPartition
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.types import GroupState, Outcome
from muster.coordinator.core.model.values import MemberIdentifiers, Orphans


def correct_classic_plan(group: ClassicGroup, plan: Assignment, snapshot: Snapshot, step: Step) -> CorrectedPlan:
    """What becomes of a plan of the coordinator where something of the group is held."""
    shares = plan.to_dict()
    made: Plan = {m: {t: tuple(ps) for t, ps in share.items()} for m, share in shares.items()}
    if group.id not in step.state.holds:
        return CorrectedPlan(made)
    return members.correct_plan(group.id, made, classic_situation(group, snapshot, step), group.rebalance, step)


def classic_assignor_input(group: ClassicGroup, snapshot: Snapshot, step: Step) -> Snapshot:
    """What its assignor is told of it."""
    return members.assignor_input(group.id, snapshot, map(classic_member_names, group.members.values()), step)


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
        budget=members.move_budget(step.state, group.id),
    )


def classic_member_names(member: ClassicMember) -> MemberIdentifiers:
    return MemberIdentifiers(member.id, member.group_instance_id, member.client_id, member.client_host)


def hold_classic_share(group: ClassicGroup, member: ClassicMember, step: Step) -> None:
    """The member is about to be taken out: what it had may wait for an heir, where the coordinator plans."""
    if group.remote:
        members.hold_share(group.id, classic_member_names(member), last_planned_shares(group).get(member.id, {}), step)


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
    last = history.last_plan(group)
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
    members.release_inherited_shares(group.id, kept.inherited, step)
    for share in standing.overrides_of(step.state, group.id).shares:
        group.carried.update({cell: carried[cell] for cell in partition_set(share) if cell in carried})
