"""What the controller knows: topics, the states of their units, nodes, and what all have been told."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from muster.coordinator.replication.protocol.controller.elections import ReplicaStanding
from muster.coordinator.replication.protocol.controller.metadata_publisher import MetadataPublisher
from muster.coordinator.replication.protocol.controller.nodes import NodeRegistry
from muster.coordinator.replication.protocol.controller.settings import ControllerSettings, ElectionRules
from muster.coordinator.replication.protocol.facts import (
    LEDGER,
    NO_EPOCH,
    NO_NODE_ID,
    OFFSETS,
    ClusterTopic,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
    halves_of,
    unit_of,
)
from muster.coordinator.replication.protocol.image import PartitionView

NO_LIMIT = 1_000_000


@dataclass(slots=True)
class ControllerState:
    """topics: by name, as in ZooKeeper, those that are deleted left out. rules: what each sets, as it is read for each
    of its units. states: by unit. second: versions of the state
    znodes of the other halves of shards. holds, leads: units by node. broken: partitions whose state cannot be read:
    nothing is decided for them (CL-C13). lowest: by topic, the smallest minimum that a leader may still go by, until
    all nodes have heard of the one that is set (None: it has not been told yet). applied: by node, the sequence it has
    applied (CL-N3). fresh: the first sequence of the reign, until all nodes have applied it.
    """

    settings: ControllerSettings
    epoch: int = NO_EPOCH
    nodes: NodeRegistry = field(default_factory=NodeRegistry)
    teller: MetadataPublisher = field(default_factory=MetadataPublisher)
    topics: dict[str, ClusterTopic] = field(default_factory=dict)
    rules: dict[str, ElectionRules] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)
    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    second: dict[TopicPartition, int] = field(default_factory=dict)
    holds: dict[int, dict[TopicPartition, None]] = field(default_factory=dict)
    leads: dict[int, dict[TopicPartition, None]] = field(default_factory=dict)
    broken: frozenset[TopicPartition] = frozenset()
    lowest: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    applied: dict[int, int] = field(default_factory=dict)
    fresh: int | None = None

    def assignment(self, unit: TopicPartition) -> ReplicaAssignment | None:
        topic = self.topics.get(unit.topic)
        if topic is None or not 0 <= unit.partition < len(topic.partitions):
            return None
        return topic.partitions[unit.partition]

    def units_of(self, topic: ClusterTopic) -> Iterator[TopicPartition]:
        """Units of a topic that can be led: of shards, those of which both halves are there."""
        count = len(topic.partitions)
        if topic.name in (OFFSETS, LEDGER):
            other = self.topics.get(LEDGER if topic.name == OFFSETS else OFFSETS)
            count = 0 if other is None else min(count, len(other.partitions))
        for number in range(count):
            yield unit_of(TopicPartition(topic.name, number))

    def unit_at(self, topic_id: bytes, partition: int) -> TopicPartition | None:
        """The unit of a partition by its topic's id; None if there is none, or it has no state."""
        name = self.names.get(topic_id)
        unit = None if name is None else unit_of(TopicPartition(name, partition))
        return unit if unit in self.states else None

    def standing(self, unit: TopicPartition, assignment: ReplicaAssignment, state: PartitionState) -> ReplicaStanding:
        rules = self.rules[unit.topic]
        return self.nodes.standing(
            unit,
            assignment.replicas,
            state.directories,
            loose=rules.loose,
            minimum=min(rules.min_isr, len(assignment.replicas)),
            lowest=self.lowest_of(unit.topic, state.leader),
            unclean=rules.unclean,
            epoch=self.epoch,
        )

    def is_new_to(self, node: int) -> bool:
        """Whether a node has heard nothing of this reign: what it goes by, nobody knows."""
        return self.fresh is not None and self.applied.get(node, NO_EPOCH) < self.fresh

    def lowest_of(self, topic: str, leader: int) -> int:
        """The smallest minimum that the leader may commit by: one that still goes by 1 commits alone, and who is not in
        sync lacks that, whatever is set by now."""
        if self.is_new_to(leader):
            return 1
        lowest, told = self.lowest.get(topic, (NO_LIMIT, NO_EPOCH))
        return lowest if told is None or self.applied.get(leader, NO_EPOCH) < told else NO_LIMIT

    def topics_of(self, unit: TopicPartition) -> Iterator[ClusterTopic]:
        """Whose znodes change with the unit's assignment."""
        return (self.topics[half.topic] for half in halves_of(unit) if half.topic in self.topics)

    def moving(self, unit: TopicPartition) -> Iterable[ClusterTopic]:
        """The same, where that may be done any time."""
        assignment = self.assignment(unit)
        moves = assignment is not None and (assignment.adding or assignment.removing)
        return self.topics_of(unit) if moves else ()

    def add_topic(self, topic: ClusterTopic) -> None:
        """A topic that is new, or changed."""
        if (old := self.topics.get(topic.name)) is not None:
            self._unindex(old)
            self.names.pop(old.topic_id, None)
        self.topics[topic.name] = topic
        self.rules[topic.name] = self.settings.rules_of(topic.configs)
        self.names[topic.topic_id] = topic.name
        for number, assignment in enumerate(topic.partitions):
            for each in assignment.replicas:
                self.holds.setdefault(each, {})[unit_of(TopicPartition(topic.name, number))] = None

    def _unindex(self, topic: ClusterTopic) -> None:
        if topic.name == LEDGER:
            return
        for number, assignment in enumerate(topic.partitions):
            for each in assignment.replicas:
                self.holds.get(each, {}).pop(TopicPartition(topic.name, number), None)

    def drop_topic(self, topic: ClusterTopic) -> None:
        """A topic that is no more; its states stay until `drop_state`."""
        self._unindex(topic)
        del self.topics[topic.name], self.rules[topic.name]
        self.names.pop(topic.topic_id, None)
        self.lowest.pop(topic.name, None)

    def put_state(self, unit: TopicPartition, state: PartitionState) -> None:
        before = self.states.get(unit)
        self.states[unit] = state
        if before is None or before.leader != state.leader:
            if before is not None:
                self.leads[before.leader].pop(unit, None)
            self.leads.setdefault(state.leader, {})[unit] = None

    def drop_state(self, unit: TopicPartition) -> None:
        state = self.states.pop(unit, None)
        self.second.pop(unit, None)
        if state is not None:
            self.leads[state.leader].pop(unit, None)

    def leader(self, unit: TopicPartition) -> int:
        state = self.states.get(unit)
        return NO_NODE_ID if state is None else state.leader

    def stage(self, unit: TopicPartition) -> None:
        """The unit's partitions are to be told as they are now."""
        state = self.states[unit]
        for place in halves_of(unit):
            topic = self.topics.get(place.topic)
            if topic is None or place.partition >= len(topic.partitions):
                continue
            version = state.partition_epoch if place == unit else self.second.get(unit, NO_EPOCH)
            self.teller.staged_partitions[place] = partition_view(state, topic.partitions[place.partition], version)


def partition_view(state: PartitionState, assignment: ReplicaAssignment, version: int) -> PartitionView:
    """A partition as all are told of it."""
    return PartitionView(
        state.leader,
        state.leader_epoch,
        version,
        state.isr,
        state.elr,
        assignment.replicas,
        assignment.adding,
        assignment.removing,
        state.unclean_epoch,
        state.directories,
    )


def state_of_view(view: PartitionView, controller_epoch: int) -> PartitionState:
    """A state as this node has been told it (CL-Z7)."""
    return PartitionState(
        view.leader,
        view.leader_epoch,
        view.isr,
        view.elr,
        view.directories or {},
        controller_epoch,
        view.partition_epoch,
        view.unclean_epoch,
    )
