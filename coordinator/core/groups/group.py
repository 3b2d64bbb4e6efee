"""What the rules that are the same for every kind of group know of one."""

from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from muster.coordinator.errors import CoordinatorError, ErrorCode


class GroupData(Protocol):
    """One group, of whatever kind: the data. What it answers is its kind's (`muster.coordinator.core.groups.kind`)."""

    @property
    def id(self) -> str: ...

    @property
    def state(self) -> Enum:
        """Its value is the word that operators read."""

    @property
    def generation(self) -> int:
        """The number of its last plan, under whatever name its members know that."""

    @property
    def members(self) -> Mapping[str, object]: ...

    @property
    def under_way(self) -> int:
        """The number that the ledger has set aside for the rebalance that is under way; 0 when none is."""

    @property
    def logged(self) -> "GroupData | None":
        """What the log has under this id: itself, unless the group is held elsewhere."""


def group_id_given(group_id: str) -> None:
    if not group_id:
        raise CoordinatorError(ErrorCode.INVALID_GROUP_ID, "group_id is empty; give the group a name")
