"""What a node says in the nodes' group, and what it reads there, as the member's machine asks for it. Pure."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from muster.assignors.builtin.cooperative_sticky import CooperativeStickyAssignor
from muster.client.members.subscription import Subscriber
from muster.client.members.types import OfferedProtocol, TopicPartition
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import (
    PROTOCOL,
    SHARDS,
    NodeBid,
    ShardAssignment,
    decode_assignment,
    encode_bid,
    joins_again_ms,
)

DRAINS, LEAVES = "draining", "leaving"
"""Topics that such a node subscribes to beside the shards: who subscribes to something else joins again."""


class NodeSubscriber(Subscriber):
    """draining: whether it asks for nothing that others can have; leaving: nor for anything else (KB-F8)."""

    def __init__(
        self, node: int, instance: str, shards: int, addresses: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        super().__init__((SHARDS,), (CooperativeStickyAssignor(),))
        self.draining = self.leaving = False
        self._node, self._instance, self._shards = node, instance, shards
        self._addresses = addresses

    def bid(self, owned: Collection[TopicPartition] = (), generation: int = -1) -> NodeBid:
        shards = tuple(sorted(shard for _, shard in owned))
        return NodeBid(
            self._node, self._instance, self._addresses, shards, self.draining or self.leaving, generation, self.leaving
        )

    @property
    def wants(self) -> tuple[str, ...]:
        """What it subscribes to."""
        return (*[DRAINS] * self.draining, *[LEAVES] * self.leaving, SHARDS)

    def read(self, assignment: bytes) -> ShardAssignment:
        """The map. ValueError: what cannot be read, or is not of this cluster."""
        deal = decode_assignment(assignment)
        if deal.shards not in (0, self._shards):
            raise ValueError(
                f"the map of shards is one of {deal.shards} and this node has {self._shards}; set "
                "offsets.topic.num.partitions alike on all nodes"
            )
        return deal

    # As `Subscriber` has it.

    def offered(self, owned: Collection[TopicPartition], generation: int) -> tuple[OfferedProtocol, ...]:
        return (OfferedProtocol(PROTOCOL, encode_bid(self.bid(owned, generation))),)

    def rejoin_after_ms(self, assignment: bytes) -> int:
        return joins_again_ms(self.read(assignment), self.bid())

    def read_share(self, assignment: bytes) -> set[TopicPartition]:
        return {(SHARDS, shard) for shard in self.read(assignment).of(self._node)}
