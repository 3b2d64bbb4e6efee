"""The nodes' group as the doors of a node ask about it: who has which shard, and where (see `edge.cluster.Cluster`)."""

from collections.abc import Callable, Mapping
from typing import Final

from muster.coordinator.config import parse_address
from muster.coordinator.edge.cluster import GRPC, HTTP, KAFKA, NO_NODE, OFFSETS_TOPIC, NodeAddress, OtherNodes
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import AssignedNode, ShardAssignment
from muster.coordinator.replication.protocol.image import PartitionView, TopicView

DOORS: Final[Mapping[str, str]] = {GRPC: "grpc", KAFKA: "kafka", HTTP: "http"}
"""What nodes call their listeners in the map."""


class AssignedCluster:
    """A `Cluster` over the map as it was last told. Topics are the upstream's: none is told of here, but for who owns
    which shard of the groups."""

    def __init__(self, me: int, cut_off: Callable[[], bool] = lambda: False) -> None:
        """cut_off: whether this node has no lease."""
        self._me = me
        self._cut_off = cut_off
        self._nodes: Mapping[str, dict[int, NodeAddress]] = {door: {} for door in DOORS}
        self._owners: dict[int, AssignedNode] = {}
        self.elsewhere: OtherNodes | None = None

    def learn(self, deal: ShardAssignment) -> None:
        """This is the map from now on."""
        nodes = [deal.nodes[node] for node in sorted(deal.nodes)]
        self._owners = {shard: node for node in nodes for shard in node.shards}
        self._nodes = {
            listener: {node.node: at for node in nodes if (at := endpoint_of(node, door)) is not None}
            for listener, door in DOORS.items()
        }

    @property
    def me(self) -> int:
        return self._me

    @property
    def controller(self) -> int:
        """The upstream has one; among Muster's nodes nobody is."""
        return NO_NODE

    @property
    def cut_off(self) -> bool:
        return self._cut_off()

    def nodes(self, listener: str) -> list[NodeAddress]:
        return list(self._nodes[listener].values())

    def topics(self) -> Mapping[str, TopicView]:
        return {}

    def partition(self, topic: str, number: int) -> PartitionView | None:
        owner = self._owners.get(number)
        if topic != OFFSETS_TOPIC or owner is None:
            return None
        return PartitionView(owner.node, 0, 0, (owner.node,), (), (owner.node,))

    def offline(self, view: PartitionView) -> list[int]:
        return []

    def coordinator(self, shard: int, listener: str) -> NodeAddress | None:
        owner = self._owners.get(shard)
        return None if owner is None else self._nodes[listener].get(owner.node)


def endpoint_of(node: AssignedNode, door: str) -> NodeAddress | None:
    """Where a node's door is; None: it has none, or what another node says of it is no address."""
    told = node.addresses.get(door)
    if not told:
        return None
    try:
        return NodeAddress(node.node, *parse_address(told))
    except ValueError:
        return None
