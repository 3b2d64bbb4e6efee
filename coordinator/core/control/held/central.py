"""Central groups, as those see them who hold something of a group: who is there, and who has what."""

from collections.abc import Callable
from dataclasses import replace

from muster.assignors.api import Snapshot
from muster.coordinator.core.central.group import CentralGroup, CentralMember
from muster.coordinator.core.control.holds import members
from muster.coordinator.core.control.holds.correction import Corrected, Situation
from muster.coordinator.core.control.holds.values import Who
from muster.coordinator.core.plan import Plan
from muster.coordinator.core.state import Step


def correct(group: CentralGroup, plan: Plan, snapshot: Snapshot, step: Step) -> Corrected:
    """What becomes of a plan where something of the group is held."""
    if group.id not in step.state.holds:
        return Corrected(plan)
    return members.correct(group.id, plan, situation(group, snapshot, step), group.progress.rebalance, step)


def asked(group: CentralGroup, snapshot: Snapshot, step: Step) -> Snapshot:
    """What its assignor is told of it."""
    return members.asked(group.id, snapshot, map(who, group.members.values()), step)


def everybody(group: CentralGroup, seen: Snapshot, whole: Callable[[], Snapshot], step: Step) -> Snapshot:
    """What the assignor was told, with those of whom it was not."""
    if group.id not in step.state.holds:
        return seen
    known = {member.id for member in seen.members}
    return replace(seen, members=[*seen.members, *(each for each in whole().members if each.id not in known)])


def situation(group: CentralGroup, snapshot: Snapshot, step: Step) -> Situation:
    return Situation(
        snapshot=snapshot,
        who={member.id: who(member) for member in group.members.values()},
        had={member_id: share for member_id, share in group.owned.items() if member_id in group.members},
        budget=members.move_budget(step.state, group.id),
    )


def who(member: CentralMember) -> Who:
    return Who(member.id, None, member.client_id, member.client_host)


def left(group: CentralGroup, member: CentralMember, step: Step) -> None:
    """The member is out: what it had may wait for an heir."""
    members.left(group.id, who(member), group.owned.get(member.id, {}), step)
