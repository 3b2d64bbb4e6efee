"""The image that the controller publishes to all nodes, and the polls that wait for it (CL-C1, CL-N1, CL-N3).

A change is staged, and published with a sequence once it is written: until then no node sees it, not in a full
answer either.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_NODE_ID,
    ClusterState,
    ImageVersion,
    NodeView,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.controller.events_and_effects import RequestId

MAX_CHANGES = 10_000
"""CL-N1: who is further behind gets all there is. Of what changes again only the last time counts."""

MAX_DELETED_TOPICS = 1_000
"""Deleted topics that are told of, so that a node that was away removes its copies; the eldest is forgotten first, and
none that a live node has not heard of: they may be more while one node is behind, as many as there were topics."""


@dataclass(slots=True)
class ParkedPoll:
    """A parked poll."""

    request: RequestId
    node_epoch: int
    known: ImageVersion
    until_ms: int


@dataclass(slots=True)
class PublishedTopic:
    """A topic as it has been told."""

    topic_id: bytes
    name: str
    configs: Mapping[str, str]
    partitions: dict[int, PartitionView] = field(default_factory=dict)


ChangeKey = int | str | bytes | TopicPartition
"""What changed: a node, a topic's settings, a topic that was deleted, a partition."""


@dataclass(slots=True)
class MetadataPublisher:
    """The image that all nodes are given, its sequence, and the polls that wait for the next."""

    node: int = NO_NODE_ID
    known: ImageVersion = field(default_factory=ImageVersion)
    nodes: dict[int, NodeView] = field(default_factory=dict)
    topics: dict[str, PublishedTopic] = field(default_factory=dict)
    deleted: dict[bytes, str] = field(default_factory=dict)
    changed: dict[ChangeKey, int] = field(default_factory=dict)
    """When each last changed, in that order."""
    floor: int = 0
    """Who knows less than this sequence gets all there is."""
    heard: int = -1
    """What all live nodes have applied (CL-N3): a sequence of this term, or -1."""
    staged_nodes: dict[int, NodeView] = field(default_factory=dict)
    staged_topics: dict[str, tuple[bytes, Mapping[str, str]]] = field(default_factory=dict)
    staged_deleted: dict[bytes, str] = field(default_factory=dict)
    staged_partitions: dict[TopicPartition, PartitionView] = field(default_factory=dict)
    staged_gone: set[str] = field(default_factory=set)
    waiting: dict[int, ParkedPoll] = field(default_factory=dict)
    """By node: one poll each."""
    _made: dict[int, ClusterState] = field(default_factory=dict)
    """Answers at the present sequence, by what was known: nodes ask for the same."""

    @property
    def has_news(self) -> bool:
        return bool(
            self.staged_nodes or self.staged_partitions or self.staged_topics or self.staged_deleted or self.staged_gone
        )

    def stage_node(self, node: NodeView | None) -> None:
        if node is not None and self.staged_nodes.get(node.id, self.nodes.get(node.id)) != node:
            self.staged_nodes[node.id] = node

    def stage_topic(self, name: str, topic_id: bytes, configs: Mapping[str, str]) -> None:
        told = self.topics.get(name)
        if name in self.staged_topics or told is None or told.topic_id != topic_id or told.configs != configs:
            self.staged_topics[name] = (topic_id, configs)

    def stage_deleted(self, name: str, topic_id: bytes) -> None:
        self.staged_deleted[topic_id] = name
        self._unstage(name)

    def stage_gone(self, name: str) -> None:
        """A topic that is not there any more, and nobody knows why: nobody is told that it is deleted."""
        self.staged_gone.add(name)
        self._unstage(name)

    def _unstage(self, name: str) -> None:
        self.staged_topics.pop(name, None)
        for place in [place for place in self.staged_partitions if place.topic == name]:
            del self.staged_partitions[place]

    def publish(self, sequence: int) -> None:
        """What is staged is true from this sequence on."""
        for node_id, node in self.staged_nodes.items():
            self.nodes[node_id] = node
            self._mark(node_id, sequence)
        for name in self.staged_gone:
            if self.topics.pop(name, None) is not None:
                self.floor = sequence
        for topic_id, name in self.staged_deleted.items():
            self._publish_deleted(topic_id, name, sequence)
        for name, (topic_id, configs) in self.staged_topics.items():
            old = self.topics.get(name)
            partitions = old.partitions if old is not None and old.topic_id == topic_id else {}
            self.topics[name] = PublishedTopic(topic_id, name, configs, partitions)
            self._mark(name, sequence)
        for place, view in self.staged_partitions.items():
            self.topics[place.topic].partitions[place.partition] = view
            self._mark(place, sequence)
        for staged in (
            self.staged_nodes,
            self.staged_gone,
            self.staged_deleted,
            self.staged_topics,
            self.staged_partitions,
        ):
            staged.clear()
        self.known = ImageVersion(self.known.epoch, sequence)
        self._made.clear()
        self._forget_old()
        self._forget_deleted()

    def _publish_deleted(self, topic_id: bytes, name: str, sequence: int) -> None:
        told = self.topics.get(name)
        if told is not None and told.topic_id == topic_id:
            del self.topics[name]
        self.deleted[topic_id] = name
        self._mark(topic_id, sequence)

    def _mark(self, key: ChangeKey, sequence: int) -> None:
        self.changed.pop(key, None)
        self.changed[key] = sequence

    def _forget_old(self) -> None:
        while len(self.changed) > MAX_CHANGES:
            key = next(iter(self.changed))
            self.floor = max(self.floor, self.changed.pop(key))

    def _forget_deleted(self) -> None:
        """Who is away and knows the topic gets all there is when it is back, and the topic is not in that."""
        while len(self.deleted) > MAX_DELETED_TOPICS:
            eldest = next(iter(self.deleted))
            if self.changed.get(eldest, self.floor) > self.heard:
                return
            self.floor = max(self.floor, self.changed.pop(eldest, 0))
            del self.deleted[eldest]

    def answer(self, known: ImageVersion) -> ClusterState:
        """What is new since then; all there is to one who knows another epoch, or too little."""
        if known.epoch != self.known.epoch or known.sequence < self.floor or known.sequence > self.known.sequence:
            known = ImageVersion(self.known.epoch, -1)
        if known.sequence not in self._made:
            self._made[known.sequence] = self._full() if known.sequence < 0 else self._since(known.sequence)
        return self._made[known.sequence]

    def nothing(self, known: ImageVersion) -> ClusterState:
        """Nothing is new."""
        return ClusterState(ErrorCode.NONE, self.node, known.epoch, known.sequence)

    def _full(self) -> ClusterState:
        topics = [
            TopicView(told.topic_id, name, told.configs, dict(told.partitions)) for name, told in self.topics.items()
        ]
        gone = [TopicView(topic_id, name, deleted=True) for topic_id, name in self.deleted.items()]
        return self._state(tuple(self.nodes.values()), (*gone, *topics), full=True)

    def _since(self, sequence: int) -> ClusterState:
        """The keys that changed, newest first, until those that were known: no look at the others."""
        nodes: list[NodeView] = []
        gone: list[TopicView] = []
        partitions: dict[str, dict[int, PartitionView]] = {}
        for key in reversed(self.changed):
            if self.changed[key] <= sequence:
                break
            if isinstance(key, int):
                nodes.append(self.nodes[key])
            elif isinstance(key, bytes):
                if key in self.deleted:
                    gone.append(TopicView(key, self.deleted[key], deleted=True))
            elif isinstance(key, str):
                partitions.setdefault(key, {})
            else:
                told = self.topics.get(key.topic)
                if told is not None and key.partition in told.partitions:
                    partitions.setdefault(key.topic, {})[key.partition] = told.partitions[key.partition]
        topics = [
            TopicView(told.topic_id, name, told.configs, dict(sorted(views.items())))
            for name, views in partitions.items()
            if (told := self.topics.get(name)) is not None
        ]
        return self._state(tuple(nodes), (*gone, *topics), full=False)

    def _state(self, nodes: tuple[NodeView, ...], topics: tuple[TopicView, ...], *, full: bool) -> ClusterState:
        return ClusterState(ErrorCode.NONE, self.node, self.known.epoch, self.known.sequence, full, nodes, topics)
