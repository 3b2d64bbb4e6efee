"""Who has which partition of a group, whatever its kind, as far as balance is concerned."""

from collections.abc import Mapping
from typing import TypeAlias

from muster.coordinator.core.central.group import CentralGroup
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.groups.group import Group
from muster.coordinator.core.observed.group import ObservedGroup
from muster.coordinator.core.plan import Plan, assignment_of
from muster.coordinator.core.state import ShardState

Owners: TypeAlias = Mapping[str, Mapping[int, str]]
"""topic -> partition -> member"""

NOBODY: Mapping[int, str] = {}


class Shares:
    """The owners of one group's partitions. A classic group's are read from its members' blobs once a generation.

    While a classic group rebalances its members have what the last plan gave them, as in Kafka's descriptions.
    """

    def __init__(self) -> None:
        self._stamp: tuple[object, ...] = ()
        self._owners: Owners = {}

    def of(self, group: Group, state: ShardState) -> Owners:
        match group:
            case ConsumerGroup():
                names = state.topic_names
                return {names[topic]: row for topic, row in group.owners.items() if topic in names}
            case CentralGroup():
                return by_partition(group.owned)
            case ObservedGroup():
                rows: dict[str, dict[int, str]] = {}
                for (topic, partition), owner in group.seen.owners.items():
                    rows.setdefault(topic, {})[partition] = owner
                return rows
            case ClassicGroup():
                return self._classic(group)
        return {}

    def _classic(self, group: ClassicGroup) -> Owners:
        stamp = (group, group.generation, group.state, tuple(group.members))
        if stamp != self._stamp:
            self._stamp = stamp
            self._owners = by_partition(
                {member.id: assignment_of(member.assignment) for member in group.members.values()}
            )
        return self._owners


def by_partition(plan: Plan) -> Owners:
    """
    >>> by_partition({"a": {"t": (0, 2)}, "b": {"t": (1,)}})
    {'t': {0: 'a', 2: 'a', 1: 'b'}}
    """
    rows: dict[str, dict[int, str]] = {}
    for member, share in plan.items():
        for topic, partitions in share.items():
            row = rows.setdefault(topic, {})
            for partition in partitions:
                row[partition] = member
    return rows


def imbalance(held: Mapping[str, float], members: int) -> float:
    """The largest share over the mean of so many members; 1.0 is even, and so is nothing at all.

    >>> imbalance({"a": 3, "b": 1}, 2), imbalance({"a": 3}, 3), imbalance({}, 2)
    (1.5, 3.0, 1.0)
    """
    total = sum(held.values())
    return max(held.values()) * members / total if total else 1.0
