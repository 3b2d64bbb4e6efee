"""What a cluster consists of (nodes, topics, the state of each unit), and the image that a node has of all that.

A unit is what is led as one: a partition of a topic; or a shard, which is partition i of `__consumer_offsets` and of
`__rebalances` together. A shard goes by the name of its first half.

The controller answers a node's long poll with a `ClusterState`: everything (`full`), or what changed since the
sequence that the node named (CL-C1, CL-N1). `ClusterImage` is what the node makes of these answers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from muster.coordinator.errors import ErrorCode

# What ZooKeeper keeps: nodes, topics, partition states
# -----------------------------------------------------

NO_NODE_ID = -1
"""The leader of a unit that nobody leads."""

NO_EPOCH = -1

NO_TOPIC_ID: Final = b""
"""Of a topic whose znode says none: `kafka-topics --zookeeper` of Kafka before 2.8 leaves it out (CL-A11)."""

OFFSETS = "__consumer_offsets"
LEDGER = "__rebalances"
ELECTIONS = "__elections"
SECURITY = "__security"
TRANSACTIONS = "__transaction_state"
ABORTS = "__aborts"
INTERNAL = frozenset({OFFSETS, LEDGER, ELECTIONS, SECURITY, TRANSACTIONS, ABORTS})
"""Topics that only nodes write to. Others with such names are clients': monitors and connectors call theirs so."""


COORDINATED = frozenset({OFFSETS, TRANSACTIONS})
"""Topics whose partitions are shards: who leads one coordinates the groups, or the transactional ids, that it keeps."""


MIN_ISR: Final = "min.insync.replicas"
"""A setting of topics."""


def parse_number(text: str) -> int | None:
    """A number that is set for something, by the same words that the doors take; None for what is none, or takes more
    digits than Python reads: who writes to ZooKeeper writes what he likes.

    >>> parse_number("2"), parse_number(" +2"), parse_number("x"), parse_number(""), parse_number("0" * 5_000 + "1")
    (2, 2, None, None, None)
    """
    try:
        return int(text)
    except ValueError:
        return None


def parse_min_isr(configs: Mapping[str, str], default: int) -> int:
    """min.insync.replicas of a topic; default: where it says nothing, or nothing that is understood.

    >>> (parse_min_isr({"min.insync.replicas": "1"}, 2), parse_min_isr({"min.insync.replicas": "?"}, 2),
    ... parse_min_isr({}, 2))
    (1, 2, 2)
    """
    text = configs.get(MIN_ISR)
    found = None if text is None else parse_number(text)
    return default if found is None else max(1, found)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def unit_of(place: TopicPartition) -> TopicPartition:
    """The unit that a partition belongs to: itself, but for the second half of a shard.

    >>> unit_of(TopicPartition("__rebalances", 7))
    TopicPartition(topic='__consumer_offsets', partition=7)
    """
    return TopicPartition(OFFSETS, place.partition) if place.topic == LEDGER else place


def halves_of(unit: TopicPartition) -> tuple[TopicPartition, ...]:
    """The partitions that a unit consists of, the one that names it first.

    >>> [str(half) for half in halves_of(TopicPartition("__consumer_offsets", 7))]
    ['__consumer_offsets-7', '__rebalances-7']
    """
    return (unit, TopicPartition(LEDGER, unit.partition)) if unit.topic == OFFSETS else (unit,)


class NodeEndpoint(NamedTuple):
    """Where a node listens: the listener's name (`PLAINTEXT`, `REPLICATION`, ...), host and port."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node as it registered itself.

    epoch: the czxid of its registration; one that registers anew has a higher one. directory: 22 characters, drawn when
    its data directory was made: a new disk has another. unclean: it lost power, and holds a log that was not flushed
    record by record. session_ms: by which it leads, see `lease`; 0 where it has not said. proves: it shows other
    nodes that it knows the secret of the cluster (CL-N4).
    """

    id: int
    epoch: int
    directory: str
    unclean: bool = False
    endpoints: tuple[NodeEndpoint, ...] = ()
    rack: str | None = None
    session_ms: int = 0
    proves: bool = False


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of a unit.

    leader: a node id, or NOBODY. leader_epoch: raised by one with each election, be it the same node again, and not
    when only the in-sync replicas change. partition_epoch: the version of its znode; NO_EPOCH before it is written.
    isr: in-sync replicas, in order of assignment. elr: eligible leader replicas (KIP-966): in sync no more, but with
    all that was committed. directories: by node id, the data directory a replica was in sync with; absent = unknown.
    unclean_epoch: the leader epoch of the last unclean election; NO_EPOCH if there was none. cause: what led to this.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    directories: Mapping[int, str] = field(default_factory=dict)
    controller_epoch: int = 0
    partition_epoch: int = NO_EPOCH
    unclean_epoch: int = NO_EPOCH
    cause: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """Who has copies of a partition: replicas in order of preference, and who comes and goes while that changes
    (KIP-455). `replicas` has those that come, and those that go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterTopic:
    """A topic as ZooKeeper has it: assignments by partition number, and what is set for it (strings, as written).

    version: of its znode when it was read; NO_EPOCH where that is not known."""

    name: str
    topic_id: bytes
    partitions: tuple[ReplicaAssignment, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    version: int = NO_EPOCH

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL


def explain_missing_id(topic: ClusterTopic) -> str:
    """Why a topic whose znode says no id is left out, and what helps (CL-A11)."""
    nodes = ", ".join(map(str, sorted({node for each in topic.partitions for node in each.replicas})))
    return (
        f"topic {topic.name} is left out: /brokers/topics/{topic.name} says no topic_id, as kafka-topics --zookeeper "
        "of Kafka before 2.8 leaves it, and the controller does not know the id. It stands in partition.metadata in "
        f"the topic's directories on nodes {nodes}: add it to the znode, or let one of these be the controller, for "
        "which /controller is deleted until it is"
    )


# The image: what a node knows of the cluster (CL-C1, CL-N1)
# ----------------------------------------------------------


class ImageVersion(NamedTuple):
    """How far somebody knows the cluster: the controller's epoch, and the sequence of its last change."""

    epoch: int = NO_EPOCH
    sequence: int = NO_EPOCH


NO_VERSION = ImageVersion()


class ClusterNodeStatus(IntEnum):
    """Kafka's tools see the first; the numbers are the wire's."""

    LIVE = 0
    SHUTTING_DOWN = 1
    GONE = 2


class NodeView(NamedTuple):
    """A node as all are told of it. epoch: of the registration that this is about. session_ms, proves: as `ClusterNode`
    has them."""

    id: int
    epoch: int
    status: ClusterNodeStatus = ClusterNodeStatus.LIVE
    rack: str | None = None
    endpoints: tuple[NodeEndpoint, ...] = ()
    session_ms: int = 0
    proves: bool = False


class PartitionView(NamedTuple):
    """A partition as all are told of it: its state, and who has copies.

    directories: by node, the directory in which a replica was in sync; None where it was not told. A node that is to
    be controller without reading all states (CL-Z7) needs it: without, a replica with a new disk would count as in
    sync.
    """

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    unclean_epoch: int = NO_EPOCH
    directories: Mapping[int, str] | None = None


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic as all are told of it. In an answer that is not full, `partitions` holds those that changed, by number;
    `configs` is always whole."""

    topic_id: bytes
    name: str
    configs: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[int, PartitionView] = field(default_factory=dict)
    deleted: bool = False

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The answer to a node's poll. error: NONE, NOT_CONTROLLER (41), STALE_BROKER_EPOCH (77), or what the door says.

    With 77, `nodes` tells what to do: the node itself as GONE, it has to register anew (its registration was fenced,
    or is not the last one under its id); nothing, the controller has not taken its registration in yet, and it asks
    again. An answer without error, nodes and topics says that nothing is new.
    """

    error: ErrorCode = ErrorCode.NONE
    controller: int = NO_NODE_ID
    epoch: int = NO_EPOCH
    sequence: int = NO_EPOCH
    full: bool = False
    nodes: tuple[NodeView, ...] = ()
    topics: tuple[TopicView, ...] = ()


class PartitionChange(NamedTuple):
    """What an answer changed for one partition; `before` is None for one that was not known."""

    place: TopicPartition
    before: PartitionView | None
    after: PartitionView


@dataclass(slots=True)
class ImageChanges:
    """What an answer changed: all that its node has to look at."""

    nodes: list[int] = field(default_factory=list)
    partitions: list[PartitionChange] = field(default_factory=list)
    configs: list[str] = field(default_factory=list)
    """Topics whose settings changed, and those that are new."""
    deleted: dict[bytes, str] = field(default_factory=dict)
    """Ids of topics that were deleted, with their names: copies of them go (CL-F11)."""
    unknown: list[str] = field(default_factory=list)
    """Topics that a full answer names no more, without calling them deleted: copies of them stay (CL-F11)."""


@dataclass(slots=True)
class ClusterImage:
    """What a node knows of the cluster. Changed by `apply` alone."""

    controller: int = NO_NODE_ID
    known: ImageVersion = NO_VERSION
    nodes: dict[int, NodeView] = field(default_factory=dict)
    topics: dict[str, TopicView] = field(default_factory=dict)
    """By name. The mappings of partitions in them are the image's own."""
    names: dict[bytes, str] = field(default_factory=dict)
    deleted: dict[bytes, str] = field(default_factory=dict)
    """Ids of topics that are gone for good, with the names they had."""

    def partition(self, place: TopicPartition) -> PartitionView | None:
        topic = self.topics.get(place.topic)
        return None if topic is None else topic.partitions.get(place.partition)

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionView]]:
        for name, topic in self.topics.items():
            for number, view in topic.partitions.items():
                yield TopicPartition(name, number), view

    def taken(self) -> "ClusterImage":
        """As it is now, for who looks at it in a thread: topics and their partitions are made anew where they change,
        and never changed."""
        return ClusterImage(
            self.controller, self.known, dict(self.nodes), dict(self.topics), dict(self.names), dict(self.deleted)
        )

    @property
    def size(self) -> int:
        """Partitions."""
        return sum(len(topic.partitions) for topic in self.topics.values())

    def live(self) -> list[NodeView]:
        return [node for node in self.nodes.values() if node.status is not ClusterNodeStatus.GONE]

    def takes(self, answer: ClusterState) -> bool:
        """Whether an answer is newer than what is known (CL-C1).

        One of a lower controller epoch is not. Within an epoch the sequence has to be higher, of a full answer as
        well: one that was overtaken on its way would take the node back. The first answer of an epoch has to be full.
        """
        if answer.error is not ErrorCode.NONE:
            return False
        if answer.epoch == self.known.epoch:
            return answer.sequence > self.known.sequence
        return answer.epoch > self.known.epoch and answer.full

    def apply(self, answer: ClusterState) -> ImageChanges | None:
        """Takes an answer in; None if it is not newer than what is known."""
        if not self.takes(answer):
            return None
        changes = ImageChanges()
        if answer.full:
            self._forget_unnamed(answer, changes)
        for node in answer.nodes:
            self._node(node, changes)
        for topic in answer.topics:
            if topic.deleted:
                self._delete(topic, changes)
            else:
                self._topic(topic, changes, whole=answer.full)
        self.controller = answer.controller
        self.known = ImageVersion(answer.epoch, answer.sequence)
        return changes

    def _forget_unnamed(self, answer: ClusterState, changes: ImageChanges) -> None:
        nodes = {node.id for node in answer.nodes}
        for node_id in self.nodes.keys() - nodes:
            del self.nodes[node_id]
            changes.nodes.append(node_id)
        topics = {topic.topic_id for topic in answer.topics}
        for topic in [topic for topic in self.topics.values() if topic.topic_id not in topics]:
            self._forget(topic)
            changes.unknown.append(topic.name)

    def _forget(self, topic: TopicView) -> None:
        del self.topics[topic.name]
        del self.names[topic.topic_id]

    def _node(self, node: NodeView, changes: ImageChanges) -> None:
        if self.nodes.get(node.id) != node:
            self.nodes[node.id] = node
            changes.nodes.append(node.id)

    def _delete(self, topic: TopicView, changes: ImageChanges) -> None:
        if topic.topic_id in self.deleted:
            return
        self.deleted[topic.topic_id] = topic.name
        if topic.topic_id in self.names:
            self._forget(self.topics[self.names[topic.topic_id]])
        changes.deleted[topic.topic_id] = topic.name

    def _topic(self, topic: TopicView, changes: ImageChanges, *, whole: bool) -> None:
        old = self.topics.get(topic.name)
        if old is not None and old.topic_id != topic.topic_id:
            # Deleted and made again, and the word of the deletion is lost or comes later: the names are the same, the
            # logs are not.
            self._forget(old)
            changes.unknown.append(old.name)
            old = None
        before = {} if old is None else old.partitions
        for number, view in topic.partitions.items():
            if (was := before.get(number)) != view:
                changes.partitions.append(PartitionChange(TopicPartition(topic.name, number), was, view))
        if old is None or old.configs != topic.configs:
            changes.configs.append(topic.name)
        after = {**({} if whole else before), **topic.partitions}
        self.topics[topic.name] = TopicView(topic.topic_id, topic.name, topic.configs, after)
        self.names[topic.topic_id] = topic.name
