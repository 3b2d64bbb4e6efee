"""A client that does not take its share from a coordinator that plans by a setting: the group goes back to a leader.

One generation without it may be an accident. Two in a row that the same client spoilt are how that client is: what was
set for the group is suspended until it is set again, and the ledger names client and version.
"""

from dataclasses import replace

from muster.coordinator.core.classic.assigning import describe_client
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.classic.members import ClassicMember
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.model.ledger import RebalanceTrigger
from muster.coordinator.core.settings.assignor import ASSIGNOR


def suspend_for_insisting_client(
    group: ClassicGroup, late: list[ClassicMember], trigger: RebalanceTrigger, step: Step
) -> RebalanceTrigger:
    """These did not fetch their shares in time. Gives back the trigger of the rebalance that follows.

    A member comes again under another id. What others planned without it meanwhile forgives it nothing: only a
    generation in which it was, and fetched its share, does.
    """
    if not group.planner.by_setting:
        return trigger
    again = next((member for member in late if member.client in group.insisting), None)
    group.insisting = frozenset(member.client for member in late)
    stored = step.state.settings.get(group.id)
    if again is None or stored is None:
        return trigger
    why = f"{describe_client(again)} did not fetch its share of two plans in a row that the coordinator made"
    group.insisting = frozenset()
    step.keep(replace(stored, suspended=why))
    return replace(trigger, detail=f"{trigger.detail}; {ASSIGNOR.name} is suspended until it is set again: {why}")
