"""Central groups, as those see them who hold something of a group: who is there, and who has what."""

from collections.abc import Callable
from dataclasses import replace

from muster.assignors.api import Snapshot
from muster.coordinator.core.central.group import CentralGroup, CentralMember
from muster.coordinator.core.control.overrides import members
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.correction import CorrectedPlan, GroupSituation
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.values import MemberIdentifiers


def correct_central_plan(group: CentralGroup, plan: Plan, snapshot: Snapshot, step: Step) -> CorrectedPlan:
    """What becomes of a plan where something of the group is held."""
    if group.id not in step.state.holds:
        return CorrectedPlan(plan)
    return members.correct_plan(
        group.id, plan, central_situation(group, snapshot, step), group.progress.rebalance, step
    )


def central_assignor_input(group: CentralGroup, snapshot: Snapshot, step: Step) -> Snapshot:
    """What its assignor is told of it."""
    return members.assignor_input(group.id, snapshot, map(central_member_names, group.members.values()), step)


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
        budget=members.move_budget(step.state, group.id),
    )


def central_member_names(member: CentralMember) -> MemberIdentifiers:
    return MemberIdentifiers(member.id, None, member.client_id, member.client_host)


def hold_central_share(group: CentralGroup, member: CentralMember, step: Step) -> None:
    """The member is out: what it had may wait for an heir."""
    members.hold_share(group.id, central_member_names(member), group.owned.get(member.id, {}), step)
