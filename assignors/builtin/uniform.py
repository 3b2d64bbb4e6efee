"""Uniform: the even, sticky assignor that KIP-848 runs on the coordinator."""

from __future__ import annotations

from muster.assignors.api import Assignment, Plan, RebalanceProtocol, Snapshot
from muster.assignors.builtin.sticky import sticky_plan


class UniformAssignor:
    """Spread partitions evenly over members and move as few as possible.

    Without options it is exact, as `sticky` is. With capacities, limits or priorities, no single move
    makes the heaviest member lighter, and what exceeds the limits is reported as unassigned.

    >>> from muster.assignors.api import Member
    >>> group = Snapshot({"t": 6}, [Member("a", ("t",)), Member("b", ("t",))],
    ...                  options={"member.capacity": {"a": 2.0}})
    >>> {member: len(share["t"]) for member, share in UniformAssignor().assign(group).members.items()}
    {'a': 4, 'b': 2}
    """

    name = "uniform"
    options = ("member.capacity", "max.partitions.per.member", "member.priority", "member.standby")
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, snapshot: Snapshot) -> Plan | Assignment:
        if not snapshot.options:
            return sticky_plan(snapshot)
        import numpy as np

        from muster.assignors.builtin.improving import MoveThresholds
        from muster.assignors.builtin.weighted import Placement
        from muster.assignors.options import UniformOptions, read_options

        options = read_options(self.name, UniformOptions, snapshot.options)
        if options.plain:
            return sticky_plan(snapshot)
        columns = snapshot.columns
        outcome = Placement(columns, np.ones(columns.axis.size), options, MoveThresholds(prove=False)).decide()
        return Assignment(columns.table(outcome.owner), note=outcome.note)
