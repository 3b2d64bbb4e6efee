"""Multis: what goes into one, what becomes of it, and what is taken back when it fails (CL-Z5, CL-Z6)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from muster.coordinator.replication.protocol.controller.effects import (
    CreateInternalTopic,
    DeletePartitionState,
    DeleteTopicZnode,
    ElectionKind,
    PutPartitionState,
    PutTopicZnode,
    WriteMulti,
    WriteOperation,
)
from muster.coordinator.replication.protocol.controller.elections import StateDecision
from muster.coordinator.replication.protocol.facts import (
    NO_EPOCH,
    ClusterTopic,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
    halves_of,
)

MAX_STATES = 100
"""CL-Z5: in one multi. Measured: 20 make it three times as slow for a state, 500 hardly faster."""

MAX_WRITE_BYTES = 640 << 10
"""In one multi. ZooKeeper takes no more than a megabyte (`jute.maxbuffer`) from anybody, and that at once."""


def state_size(place: TopicPartition, state: PartitionState) -> int:
    """At most so many bytes go for a state's znode, with those above it that may have to be made."""
    names = sum([len(text) + 18 for text in state.directories.values()])
    return 450 + 3 * len(place.topic) + 12 * (len(state.isr) + len(state.elr)) + names + 4 * len(state.cause)


def topic_size(topic: ClusterTopic) -> int:
    """At most so many for a topic's, without its settings."""
    total = 250 + len(topic.name)
    for number, each in enumerate(topic.partitions):
        for ids in (each.replicas, each.adding, each.removing):
            if ids:
                total += len(str(number)) + 6 + sum(len(str(node)) + 1 for node in ids)
    return total


@dataclass(slots=True)
class DraftElection:
    """An election in a write, for the ledger."""

    before: int
    clean: ElectionKind
    since_ms: int
    decided_ms: int


@dataclass(slots=True)
class WriteDraft:
    """A write in the making, and then under way. Nothing of it is known to anybody before `Written`.

    after: what is done when it is written; back: what is done when it is not. Both are called without arguments, in
    their order.
    """

    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    versions: dict[TopicPartition, int] = field(default_factory=dict)
    """Of the other halves of shards, as they will be."""
    elections: dict[TopicPartition, DraftElection] = field(default_factory=dict)
    topics: dict[str, ClusterTopic] = field(default_factory=dict)
    assigned: set[TopicPartition] = field(default_factory=set)
    """Partitions that get another assignment."""
    operations: list[WriteOperation] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)
    back: list[Callable[[], None]] = field(default_factory=list)
    size: int = 0
    """Znodes of states in it."""
    bytes: int = 0
    """Of all that it writes, at most."""
    sequence: int = NO_EPOCH
    lost: bool = False
    """Its answer was."""

    def has_room(self, unit: TopicPartition, share: int = MAX_STATES, topics: Iterable[ClusterTopic] = ()) -> bool:
        """Whether a unit fits, with the znodes of topics that change by it: a shard is two states, and is never split.
        What is too large beside anything fits by itself."""
        if self.size + len(halves_of(unit)) > share:
            return False
        if self.bytes < MAX_WRITE_BYTES and not topics:
            return True
        more = sum(topic_size(topic) for topic in topics if topic.name not in self.topics)
        return self.bytes + more <= MAX_WRITE_BYTES or self.is_empty

    def put(self, unit: TopicPartition, before: PartitionState | None, decided: PartitionState, second: int) -> None:
        """A unit's state. second: the version of the other half's znode, for a shard."""
        self.states[unit] = decided
        for place in halves_of(unit):
            at = second if place != unit else NO_EPOCH if before is None else before.partition_epoch
            self.operations.append(PutPartitionState(place, decided, at))
            self.size += 1
            self.bytes += state_size(place, decided)
            if place != unit:
                self.versions[unit] = at + 1

    def elect(self, unit: TopicPartition, before: int, decision: StateDecision, since_ms: int, now_ms: int) -> None:
        if decision.clean is not None and decision.state.leader != before:
            self.elections[unit] = DraftElection(before, decision.clean, since_ms, now_ms)

    def drop(self, unit: TopicPartition, at: int) -> None:
        self.operations.append(DeletePartitionState(unit, at))
        self.size += 1
        self.bytes += 300 + 3 * len(unit.topic)

    def assign(self, topic: ClusterTopic, number: int, assignment: ReplicaAssignment) -> None:
        """Another assignment for a partition; one operation for all of a topic's."""
        if topic.name not in self.topics:
            self.bytes += topic_size(topic)
        # Who comes and goes is more than who was there.
        self.bytes += 24 + 12 * (len(assignment.replicas) + len(assignment.adding) + len(assignment.removing))
        self.assigned.add(TopicPartition(topic.name, number))
        topic = self.topics.get(topic.name, topic)
        partitions = (*topic.partitions[:number], assignment, *topic.partitions[number + 1 :])
        self.topics[topic.name] = ClusterTopic(topic.name, topic.topic_id, partitions, topic.configs, topic.version)

    def make(self, topic: CreateInternalTopic) -> None:
        self.operations.append(topic)

    def drop_topic(self, topic: ClusterTopic) -> None:
        self.operations.append(DeleteTopicZnode(topic.name, topic.version))

    @property
    def is_empty(self) -> bool:
        return not self.operations and not self.topics

    def write(self, epoch: int, epoch_version: int, sequence: int, cluster_version: int) -> WriteMulti:
        self.sequence = sequence
        operations = (*map(PutTopicZnode, self.topics.values()), *self.operations)
        return WriteMulti(epoch, epoch_version, sequence, cluster_version, operations)
