"""KB-F9: why a node has a shard that another one had."""

from muster.coordinator.ownership.deal import Deal
from muster.coordinator.ownership.effects import Cause
from muster.coordinator.ownership.facts import Owner


def cause_of(before: Owner | None, node: int, instance: str, deal: Deal) -> Cause:
    """node, instance: of whoever has it now. before: who had it; None: nobody."""
    if before is None:
        return Cause.FIRST
    if before.node == node:
        return Cause.FENCED if before.instance == instance else Cause.NODE_RESTARTED
    there = deal.nodes.get(before.node)
    if there is None:
        return Cause.NODE_LOST
    return Cause.NODE_DRAINING if there.draining else Cause.NODE_JOINED
