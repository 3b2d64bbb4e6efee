"""What a group's plan would be made for, as arrays that stay as long as the group is the same."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muster.assignors.api import JsonValue, Snapshot
from muster.assignors.data.columns import SnapshotColumns
from muster.coordinator.core.control.balance.judging import Names, Owners, capacities
from muster.coordinator.core.control.balance.loads import Floats, PartitionLoads
from muster.coordinator.core.model.plan import Plan
from muster.coordinator.core.model.types import PartitionMove


@dataclass(frozen=True, slots=True)
class BalanceProblem:
    """A group at rest. `same` stands for all that it was made from; rows are in the order of the snapshot's columns."""

    same: tuple[object, ...]
    snapshot: Snapshot
    """Without loads."""
    columns: SnapshotColumns
    capacity: Floats

    @property
    def owner(self) -> Owners:
        return self.columns.owner

    def loads(self, loads: PartitionLoads, column: Floats) -> Floats:
        """A column of the group's loads in the order of this problem."""
        rows = loads.by_topic(column)
        return np.concatenate([rows[topic] for topic in self.columns.axis.topics] or [np.zeros(0)])

    def mask(self, moved: Iterable[tuple[str, int]]) -> NDArray[np.bool_]:
        """Which rows are named."""
        axis = self.columns.axis
        out = np.zeros(axis.size, dtype=np.bool_)
        for topic, partition in moved:
            place = axis.place.get(topic)
            if place is not None and partition < int(axis.counts[place]):
                out[int(axis.base[place]) + partition] = True
        return out

    def owners_by(self, plan: Plan) -> Owners:
        """Who has what by a plan for this problem."""
        axis = self.columns.axis
        out = np.full(axis.size, -1, dtype=np.int32)
        for number, member in enumerate(self.columns.members):
            for topic, partitions in plan.get(member, {}).items():
                out[int(axis.base[axis.place[topic]]) + np.asarray(partitions, dtype=np.int64)] = number
        return out

    def moves_to(self, after: Owners) -> tuple[PartitionMove, ...]:
        """What would move; nobody waits for any of it."""
        axis, members = self.columns.axis, self.columns.members
        out: list[PartitionMove] = []
        for row in np.flatnonzero(after != self.owner).tolist():
            topic = int(axis.topic_of[row])
            source, target = (members[who] if who >= 0 else "" for who in (int(self.owner[row]), int(after[row])))
            out.append(PartitionMove(axis.topics[topic], row - int(axis.base[topic]), source, target, -1, "balance"))
        return tuple(out)


def problem_of(snapshot: Snapshot, same: tuple[object, ...], options: Mapping[str, JsonValue]) -> BalanceProblem:
    columns = snapshot.columns
    instance = {member.id: member.instance_id for member in snapshot.members}
    names: list[Names] = [(word, who) if (who := instance[word]) is not None else (word,) for word in columns.members]
    return BalanceProblem(same, snapshot, columns, capacities(names, options))
