"""When a group's balance rests, and where it may look on only."""

from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.control.balance.weighing import eager_member
from muster.coordinator.core.control.overrides import standing
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.state import Step

AT_REST = "Stable"
"""The word of every kind for a group in which nothing is on its way."""


def why_balance_rests(group: GroupData, step: Step) -> str:
    """Why nothing is to be judged now: there is nobody to share with, things are in flux, or on trial. Empty: it is."""
    canary = step.state.canaries.get(group.id)
    if standing.are_members_protected(step.state, group.id):
        return "it rests while a freeze, a deploy or a held share is on"
    if len(group.members) < 2:
        return "there are fewer than two members"
    if group.under_way or group.state.value != AT_REST:
        return "a rebalance is under way"
    return "it rests while a canary runs" if canary is not None and canary.runs else ""


def why_balance_cannot_act(group: GroupData | None, plans_itself: bool) -> str:
    """Why nothing may be moved in this group for the sake of balance; empty where it may. `plans_itself`: its members
    do, not the coordinator."""
    if group is None or not group.members:
        return ""
    if plans_itself:
        return (
            f"the members of group {group.id!r} make its plans; set an assignor for the group, or let its members join "
            "with group.protocol=consumer"
        )
    if member := eager_member(group):
        stopped = "the whole group" if isinstance(group, ClassicGroup) else "all that it reads"
        return (
            f"member {member!r} of group {group.id!r} lets go of all it has in a rebalance (eager), so every move "
            f"would stop {stopped}; let all members offer cooperative assignors only, or set balance=watch"
        )
    return ""
