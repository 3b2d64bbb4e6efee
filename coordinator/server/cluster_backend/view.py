"""The image of the cluster, in the words of a node's doors (see `edge.cluster.Cluster`)."""

from collections.abc import Callable, Iterator, Mapping

from muster.coordinator.edge.cluster import NodeAddress, OtherNodes
from muster.coordinator.replication.protocol.facts import NO_NODE_ID, OFFSETS, TopicPartition
from muster.coordinator.replication.protocol.image import (
    ClusterImage,
    ClusterNodeStatus,
    NodeView,
    PartitionView,
    TopicView,
)
from muster.storage.topics.catalog import PRIVATE_TOPICS


class PublicTopics(Mapping[str, TopicView]):
    """The topics that somebody besides nodes may know of."""

    __slots__ = ("_topics",)

    def __init__(self, topics: Mapping[str, TopicView]) -> None:
        self._topics = topics

    def __getitem__(self, name: str) -> TopicView:
        if name in PRIVATE_TOPICS:
            raise KeyError(name)
        return self._topics[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._topics if name not in PRIVATE_TOPICS)

    def __len__(self) -> int:
        return len(self._topics) - len(PRIVATE_TOPICS & self._topics.keys())


class ClusterImageView:
    """Asked anew each time: the image changes under it."""

    def __init__(self, me: int, image: ClusterImage, cut_off: Callable[[], bool] = lambda: False) -> None:
        self._me = me
        self._image = image
        self._cut_off = cut_off
        self.elsewhere: OtherNodes | None = None

    @property
    def me(self) -> int:
        return self._me

    @property
    def controller(self) -> int:
        return self._image.controller if self._lives(self._image.controller) else NO_NODE_ID

    @property
    def cut_off(self) -> bool:
        return self._cut_off()

    def nodes(self, listener: str) -> list[NodeAddress]:
        seen = (node_listening_on(node, listener) for node in sorted(self._image.live(), key=lambda node: node.id))
        return [node for node in seen if node is not None]

    def topics(self) -> Mapping[str, TopicView]:
        topics = self._image.topics
        return topics if topics.keys().isdisjoint(PRIVATE_TOPICS) else PublicTopics(topics)

    def partition(self, topic: str, number: int) -> PartitionView | None:
        return None if topic in PRIVATE_TOPICS else self._image.partition(TopicPartition(topic, number))

    def offline(self, view: PartitionView) -> list[int]:
        return [node for node in view.replicas if not self._lives(node)]

    def coordinator(self, shard: int, listener: str) -> NodeAddress | None:
        view = self.partition(OFFSETS, shard)
        node = None if view is None else self._image.nodes.get(view.leader)
        return None if node is None or not self._lives(node.id) else node_listening_on(node, listener)

    def _lives(self, node_id: int) -> bool:
        node = self._image.nodes.get(node_id)
        return node is not None and node.status is not ClusterNodeStatus.GONE


def node_listening_on(node: NodeView, listener: str) -> NodeAddress | None:
    """Where it listens for those who speak this; None where it does not."""
    return next(
        (NodeAddress(node.id, each.host, each.port, node.rack) for each in node.endpoints if each.listener == listener),
        None,
    )
