"""What a verb stands on: the group, what is held of it so far, and who has what."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from muster.coordinator.core.control.overrides import standing
from muster.coordinator.core.control.overrides.figures import describe_load, measured_rates
from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.kind import GroupKind
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds.kinds import KINDS
from muster.coordinator.core.model.correction import GroupSituation, correct_with_overrides, partition_owner_map
from muster.coordinator.core.model.values import HoldsStored, MeasuredRates
from muster.coordinator.core.model.weights import TopicPartition
from muster.coordinator.errors import CoordinatorError, ErrorCode


@dataclass(slots=True)
class OverrideContext:
    """One group and its holds. `operator` is who asks, and from where; "the coordinator" when time does."""

    group: GroupData
    holds: HoldsStored
    operator: str
    step: Step
    seen: MeasuredRates | None = None
    """What partitions carry, if the node has looked."""
    situation: GroupSituation = field(init=False)
    """Who its members are, what they read and what they have."""

    def __post_init__(self) -> None:
        self.situation = self.kind.situation(self.group, self.step)

    @property
    def kind(self) -> GroupKind[Any]:
        return KINDS[type(self.group)]

    @property
    def plans_itself(self) -> bool:
        return self.kind.plans_itself(self.group)

    @property
    def at_rest(self) -> bool:
        return self.kind.at_rest(self.group)

    @property
    def owners(self) -> dict[TopicPartition, str]:
        return {cell: member_id for member_id, cell in partition_owner_map(self.situation.had)}

    def owners_under(self, after: HoldsStored, budget: int | None = None) -> dict[TopicPartition, str]:
        """Who would have what if the plan that holds were made under these; `budget` None: the group's own."""
        situation = self.situation if budget is None else replace(self.situation, budget=budget)
        return {
            cell: member_id
            for member_id, cell in partition_owner_map(correct_with_overrides(situation.had, after, situation).plan)
        }

    def moved_by(self, after: HoldsStored, budget: int | None = None) -> dict[TopicPartition, str]:
        """What would change hands then: partition -> its next owner."""
        had, then = self.owners, self.owners_under(after, budget)
        return {cell: member_id for cell, member_id in then.items() if cell in had and had[cell] != member_id}

    def carrying(self, moved: Collection[TopicPartition]) -> str:
        """What these carry of all that the group has, to be said after what moves; empty where nobody knows."""
        seen = measured_rates(self.step.state, self.group.id) or self.seen
        return describe_load(moved, self.owners, seen) if seen else ""

    def planned_here(self, verb: str) -> None:
        """Raises for a group whose members make their plans: the coordinator has no hand in those."""
        if self.plans_itself:
            raise CoordinatorError(
                ErrorCode.GROUP_PLANS_ITSELF,
                f"group {self.group.id!r} is planned by its own leader, so the coordinator cannot {verb}; let the "
                f"coordinator plan (muster groups set {self.group.id} assignor=NAME), or use KIP-848 "
                "(group.protocol=consumer)",
            )


def override_context(group_id: str, operator: str, step: Step, seen: MeasuredRates | None = None) -> OverrideContext:
    """Raises GROUP_ID_NOT_FOUND: what does not exist cannot be held."""
    group = step.state.logged(group_id)
    if group is None:
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
    return OverrideContext(group, standing.overrides_of(step.state, group_id), operator, step, seen)


def count_of(count: int, what: str) -> str:
    """
    >>> count_of(1, "partition"), count_of(2, "partition")
    ('1 partition', '2 partitions')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
