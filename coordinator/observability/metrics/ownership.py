"""What a group's owners are to its metrics: they are asked again and again, and balance is told by them."""

from collections.abc import Mapping

from muster.coordinator.core.groups.group import GroupData
from muster.coordinator.core.groups.owners import NOBODY_OWNS, Owners
from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.kinds.kinds import KINDS

NOBODY: Mapping[int, str] = {}


class OwnerCache:
    """The owners of one group's partitions, as they were told last."""

    def __init__(self) -> None:
        self._told = NOBODY_OWNS

    def of(self, group: GroupData, state: ShardState) -> Owners:
        self._told = KINDS[type(group)].owners(group, state, self._told)
        return self._told.owners


def imbalance(held: Mapping[str, float], members: int) -> float:
    """The largest share over the mean of so many members; 1.0 is even, and so is nothing at all.

    >>> imbalance({"a": 3, "b": 1}, 2), imbalance({"a": 3}, 3), imbalance({}, 2)
    (1.5, 3.0, 1.0)
    """
    total = sum(held.values())
    return max(held.values()) * members / total if total else 1.0
