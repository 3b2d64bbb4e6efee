"""Cooperative sticky: the sticky plan, handed over in two rounds (KIP-429)."""

from __future__ import annotations

from muster.assignors.api import Assignment, Plan, RebalanceProtocol, Snapshot
from muster.assignors.builtin.sticky import sticky_plan


class CooperativeStickyAssignor:
    """The same target as `sticky`, but members keep working while partitions move.

    A partition that changes owner is withheld in this round and given out in the next one, once its old
    owner has let go; `muster.assignors.run.run` sees to that. Two rounds always suffice.
    """

    name = "cooperative-sticky"
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, snapshot: Snapshot) -> Plan | Assignment:
        return sticky_plan(snapshot)
