"""What a node knows of a cluster of three, as the doors see it: changed by answers of a controller, as in earnest."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from muster.coordinator.replication.protocol.cluster_metadata import (
    LEDGER,
    OFFSETS,
    ClusterImage,
    ClusterNodeStatus,
    ClusterState,
    NodeEndpoint,
    NodeView,
    PartitionView,
    TopicView,
)
from muster.coordinator.server.cluster_backend.group_service import ClusterImageView

ME = 7
OTHERS = (8, 9)
ALL = (ME, *OTHERS)
PORTS = {"PLAINTEXT": 9092, "GRPC": 50051, "REPLICATION": 9093, "HTTP": 9291}


def node(node_id: int, *, gone: bool = False, listeners: Sequence[str] = tuple(PORTS)) -> NodeView:
    endpoints = tuple(NodeEndpoint(name, f"node-{node_id}.example", PORTS[name]) for name in listeners)
    return NodeView(
        node_id, 100 + node_id, ClusterNodeStatus.GONE if gone else ClusterNodeStatus.LIVE, f"rack-{node_id}", endpoints
    )


def led(
    leader: int, *, epoch: int = 3, replicas: Sequence[int] = ALL, isr: Sequence[int] | None = None
) -> PartitionView:
    return PartitionView(leader, epoch, epoch, tuple(replicas if isr is None else isr), (), tuple(replicas))


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")[:16]


class ThreeNodes:
    """Topic `t`: partition p is led by the p-th of the nodes; so are the shards."""

    def __init__(self, shards: int = 3) -> None:
        self.image = ClusterImage()
        self.cut_off = False
        self.view = ClusterImageView(ME, self.image, lambda: self.cut_off)
        self._sequence = 0
        by_turns = {number: led(ALL[number % 3]) for number in range(3)}
        halves = {number: led(ALL[number % 3]) for number in range(shards)}
        self.nodes(*(node(each) for each in ALL))
        self.topics(t=by_turns, **{OFFSETS: halves, LEDGER: halves})

    def nodes(self, *nodes: NodeView) -> None:
        self._tell(ClusterState(nodes=nodes))

    def topics(self, **topics: Mapping[int, PartitionView]) -> None:
        told = (TopicView(topic_id(name), name, {}, partitions) for name, partitions in topics.items())
        self._tell(ClusterState(topics=tuple(told)))

    def _tell(self, state: ClusterState) -> None:
        self._sequence += 1
        first = self._sequence == 1
        told = replace(state, controller=OTHERS[0], epoch=1, sequence=self._sequence, full=first)
        assert self.image.apply(told) is not None, told
