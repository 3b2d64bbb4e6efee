"""Uniform: the even, sticky assignor that KIP-848 runs on the coordinator."""

from __future__ import annotations

from assignors.api import Assignment, Plan, RebalanceProtocol, Snapshot
from assignors.sticky import sticky_plan


class UniformAssignor:
    """Spread partitions evenly over members and move as few as possible."""

    name = "uniform"
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, snapshot: Snapshot) -> Plan | Assignment:
        return sticky_plan(snapshot)
