"""The facts of a group's balance: one record for each group, written anew with whatever changes it."""

from typing import TypeAlias

from muster.coordinator.core.model.types import Partitions
from muster.coordinator.core.model.value import frozen_value

NEVER_MS = -1

Moved: TypeAlias = tuple[tuple[int, tuple[tuple[str, Partitions], ...]], ...]
"""(when in ms, (topic, partitions)...), oldest first; a partition stands where it moved last."""


@frozen_value
class BalanceStored:
    """When partitions of the group moved last, as far back as its cooldown goes."""

    group_id: str
    watched_at_ms: int = NEVER_MS
    """When the ledger was told last what would have been moved."""
    moved: Moved = ()


@frozen_value
class BalanceForgotten:
    """The tombstone of what a balanced group remembered."""

    group_id: str


BalanceRecord: TypeAlias = BalanceStored | BalanceForgotten
