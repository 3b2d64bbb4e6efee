"""What a verb stands on: the group, what is held of it so far, and who has what."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from muster.coordinator.core.control.holds import standing
from muster.coordinator.core.control.holds.correction import Situation, cells, corrected
from muster.coordinator.core.control.holds.figures import carrying, measured
from muster.coordinator.core.control.holds.values import HoldsStored, Seen
from muster.coordinator.core.control.holds.weights import Cell
from muster.coordinator.core.groups.group import Group
from muster.coordinator.core.groups.kind import Kind
from muster.coordinator.core.groups.kinds import KINDS
from muster.coordinator.core.state import Step
from muster.coordinator.errors import CoordinatorError, ErrorCode


@dataclass(slots=True)
class Ground:
    """One group and its holds. `operator` is who asks, and from where; "the coordinator" when time does."""

    group: Group
    holds: HoldsStored
    operator: str
    step: Step
    seen: Seen | None = None
    """What partitions carry, if the node has looked."""
    situation: Situation = field(init=False)
    """Who its members are, what they read and what they have."""

    def __post_init__(self) -> None:
        self.situation = self.kind.situation(self.group, self.step)

    @property
    def kind(self) -> Kind[Any]:
        return KINDS[type(self.group)]

    @property
    def plans_itself(self) -> bool:
        return self.kind.plans_itself(self.group)

    @property
    def at_rest(self) -> bool:
        return self.kind.at_rest(self.group)

    @property
    def owners(self) -> dict[Cell, str]:
        return {cell: member_id for member_id, cell in cells(self.situation.had)}

    def owners_under(self, after: HoldsStored, budget: int | None = None) -> dict[Cell, str]:
        """Who would have what if the plan that holds were made under these; `budget` None: the group's own."""
        situation = self.situation if budget is None else replace(self.situation, budget=budget)
        return {cell: member_id for member_id, cell in cells(corrected(situation.had, after, situation).plan)}

    def moved_by(self, after: HoldsStored, budget: int | None = None) -> dict[Cell, str]:
        """What would change hands then: partition -> its next owner."""
        had, then = self.owners, self.owners_under(after, budget)
        return {cell: member_id for cell, member_id in then.items() if cell in had and had[cell] != member_id}

    def carrying(self, moved: Collection[Cell]) -> str:
        """What these carry of all that the group has, to be said after what moves; empty where nobody knows."""
        seen = measured(self.step.state, self.group.id) or self.seen
        return carrying(moved, self.owners, seen) if seen else ""

    def planned_here(self, verb: str) -> None:
        """Raises for a group whose members make their plans: the coordinator has no hand in those."""
        if self.plans_itself:
            raise CoordinatorError(
                ErrorCode.GROUP_PLANS_ITSELF,
                f"group {self.group.id!r} is planned by its own leader, so the coordinator cannot {verb}; let the "
                f"coordinator plan (muster groups set {self.group.id} assignor=NAME), or use KIP-848 "
                "(group.protocol=consumer)",
            )


def ground(group_id: str, operator: str, step: Step, seen: Seen | None = None) -> Ground:
    """Raises GROUP_ID_NOT_FOUND: what does not exist cannot be held."""
    group = step.state.logged(group_id)
    if group is None:
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    return Ground(group, standing.held(step.state, group_id), operator, step, seen)


def several(count: int, what: str) -> str:
    """
    >>> several(1, "partition"), several(2, "partition")
    ('1 partition', '2 partitions')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
