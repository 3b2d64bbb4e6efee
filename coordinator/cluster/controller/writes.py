"""Multis: what goes into one, what becomes of it, and what is taken back when it fails (CL-Z5, CL-Z6)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from muster.coordinator.cluster.controller.effects import (
    Clean,
    DropState,
    DropTopic,
    MakeTopic,
    Operation,
    PutState,
    PutTopic,
    Write,
)
from muster.coordinator.cluster.controller.elect import Decision
from muster.coordinator.cluster.facts import NO_EPOCH, Assignment, State, Topic, TopicPartition, halves

MOST_STATES = 100
"""CL-Z5: in one multi. Measured: 20 make it three times as slow for a state, 500 hardly faster."""

MOST_BYTES = 640 << 10
"""In one multi. ZooKeeper takes no more than a megabyte (`jute.maxbuffer`) from anybody, and that at once."""


def bytes_of_state(place: TopicPartition, state: State) -> int:
    """At most so many bytes go for a state's znode, with those above it that may have to be made."""
    names = sum([len(text) + 18 for text in state.directories.values()])
    return 450 + 3 * len(place.topic) + 12 * (len(state.isr) + len(state.elr)) + names + 4 * len(state.cause)


def bytes_of_topic(topic: Topic) -> int:
    """At most so many for a topic's, without its settings."""
    total = 250 + len(topic.name)
    for number, each in enumerate(topic.partitions):
        for ids in (each.replicas, each.adding, each.removing):
            if ids:
                total += len(str(number)) + 6 + sum(len(str(node)) + 1 for node in ids)
    return total


@dataclass(slots=True)
class Elected:
    """An election in a write, for the ledger."""

    before: int
    clean: Clean
    since_ms: int
    decided_ms: int


@dataclass(slots=True)
class Draft:
    """A write in the making, and then under way. Nothing of it is known to anybody before `Written`.

    after: what is done when it is written; back: what is done when it is not. Both are called without arguments, in
    their order.
    """

    states: dict[TopicPartition, State] = field(default_factory=dict)
    versions: dict[TopicPartition, int] = field(default_factory=dict)
    """Of the other halves of shards, as they will be."""
    elections: dict[TopicPartition, Elected] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    assigned: set[TopicPartition] = field(default_factory=set)
    """Partitions that get another assignment."""
    operations: list[Operation] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)
    back: list[Callable[[], None]] = field(default_factory=list)
    size: int = 0
    """Znodes of states in it."""
    bytes: int = 0
    """Of all that it writes, at most."""
    sequence: int = NO_EPOCH
    lost: bool = False
    """Its answer was."""

    def has_room(self, unit: TopicPartition, share: int = MOST_STATES, topics: Iterable[Topic] = ()) -> bool:
        """Whether a unit fits, with the znodes of topics that change by it: a shard is two states, and is never split.
        What is too large beside anything fits by itself."""
        if self.size + len(halves(unit)) > share:
            return False
        if self.bytes < MOST_BYTES and not topics:
            return True
        more = sum(bytes_of_topic(topic) for topic in topics if topic.name not in self.topics)
        return self.bytes + more <= MOST_BYTES or self.is_empty

    def put(self, unit: TopicPartition, before: State | None, decided: State, second: int) -> None:
        """A unit's state. second: the version of the other half's znode, for a shard."""
        self.states[unit] = decided
        for place in halves(unit):
            at = second if place != unit else NO_EPOCH if before is None else before.partition_epoch
            self.operations.append(PutState(place, decided, at))
            self.size += 1
            self.bytes += bytes_of_state(place, decided)
            if place != unit:
                self.versions[unit] = at + 1

    def elect(self, unit: TopicPartition, before: int, decision: Decision, since_ms: int, now_ms: int) -> None:
        if decision.clean is not None and decision.state.leader != before:
            self.elections[unit] = Elected(before, decision.clean, since_ms, now_ms)

    def drop(self, unit: TopicPartition, at: int) -> None:
        self.operations.append(DropState(unit, at))
        self.size += 1
        self.bytes += 300 + 3 * len(unit.topic)

    def assign(self, topic: Topic, number: int, assignment: Assignment) -> None:
        """Another assignment for a partition; one operation for all of a topic's."""
        if topic.name not in self.topics:
            self.bytes += bytes_of_topic(topic)
        # Who comes and goes is more than who was there.
        self.bytes += 24 + 12 * (len(assignment.replicas) + len(assignment.adding) + len(assignment.removing))
        self.assigned.add(TopicPartition(topic.name, number))
        topic = self.topics.get(topic.name, topic)
        partitions = (*topic.partitions[:number], assignment, *topic.partitions[number + 1 :])
        self.topics[topic.name] = Topic(topic.name, topic.topic_id, partitions, topic.configs, topic.version)

    def make(self, topic: MakeTopic) -> None:
        self.operations.append(topic)

    def drop_topic(self, topic: Topic) -> None:
        self.operations.append(DropTopic(topic.name, topic.version))

    @property
    def is_empty(self) -> bool:
        return not self.operations and not self.topics

    def write(self, epoch: int, epoch_version: int, sequence: int, cluster_version: int) -> Write:
        self.sequence = sequence
        operations = (*map(PutTopic, self.topics.values()), *self.operations)
        return Write(epoch, epoch_version, sequence, cluster_version, operations)
