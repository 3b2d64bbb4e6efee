"""KB-F9: why a node has a shard that another one had."""

from muster.coordinator.kafka_backend.shard_ownership.effects import TakeoverCause
from muster.coordinator.kafka_backend.shard_ownership.facts import OwnerRecord
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import ShardAssignment


def cause_of(before: OwnerRecord | None, node: int, instance: str, deal: ShardAssignment) -> TakeoverCause:
    """node, instance: of whoever has it now. before: who had it; None: nobody."""
    if before is None:
        return TakeoverCause.FIRST
    if before.node == node:
        return TakeoverCause.FENCED if before.instance == instance else TakeoverCause.NODE_RESTARTED
    there = deal.nodes.get(before.node)
    if there is None:
        return TakeoverCause.NODE_LOST
    return TakeoverCause.NODE_DRAINING if there.draining else TakeoverCause.NODE_JOINED
