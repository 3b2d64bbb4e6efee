"""All shards are one node's: it has them as long as nobody else writes to them.

It stands where the nodes' group of several does. Nobody deals its shards to others, so its lease has no end; who fences
it has the shard. Until it is fenced it does not know of a second process, and what it reads to clients is what it knew.
"""

from typing import Final

from muster.coordinator.kafka_backend.shard_owner import ShardOwner
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership.lease import OwnershipSettings
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import AssignedNode, ShardAssignment

FOR_EVER: Final = 1 << 60
"""A moment behind all others."""


class Alone:
    def __init__(self, owning: ShardOwner, settings: OwnershipSettings, shards: int) -> None:
        self._owning = owning
        self._settings = settings
        self._shards = shards
        self._mine = frozenset(range(shards))

    def start(self) -> None:
        """Take all shards."""
        self._owning.step(ev.ShardsAssigned(self._mine, self._assignment()))
        self._owning.step(ev.Synced(FOR_EVER))

    def fenced(self, shard: int) -> None:
        """Somebody else writes this shard: it is his, and not taken again."""
        self._mine -= {shard}
        self._owning.step(ev.ShardsAssigned(self._mine, self._assignment()))

    @property
    def mine(self) -> frozenset[int]:
        return self._mine

    def _assignment(self) -> ShardAssignment:
        given = self._settings
        addresses = {door: at for door, at in (("grpc", given.address), ("kafka", given.kafka)) if at}
        me = AssignedNode(given.node, given.instance, addresses, tuple(sorted(self._mine)))
        return ShardAssignment(self._shards, {given.node: me})
