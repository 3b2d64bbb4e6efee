"""What the controller knows: settings, registrations and what it makes of them, topics, and the states of units.

`NodeRegistry` says which nodes are live (CL-C3): registrations as read, admitted after a bounce (CL-C7), fenced
(CL-C9), stopping or drained (CL-A7). `ControllerState` has the rest, with what all nodes have been told.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.coordinator.replication.protocol.cluster_metadata import (
    ELECTIONS,
    LEDGER,
    NO_EPOCH,
    NO_NODE_ID,
    OFFSETS,
    ClusterImage,
    ClusterNode,
    ClusterNodeStatus,
    ClusterTopic,
    NodeView,
    PartitionState,
    PartitionView,
    ReplicaAssignment,
    TopicPartition,
    halves_of,
    parse_min_isr,
    unit_of,
)
from muster.coordinator.replication.protocol.controller.elections import NO_NODES, ReplicaStanding
from muster.coordinator.replication.protocol.controller.metadata_publisher import MetadataPublisher

# Settings of the node, and of topics
# -----------------------------------


class ElectionRules(NamedTuple):
    """What elections in a topic go by."""

    loose: bool
    min_isr: int
    unclean: bool


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Names, meanings and defaults are the node's settings'; times in milliseconds.

    loose: topics that do not set `flush.messages` are not flushed record by record. internal: internal topics of one
    partition, beside the two of the groups.
    """

    min_isr: int = 2
    unclean_election: bool = False
    loose: bool = False
    offsets_partitions: int = 50
    offsets_replicas: int = 3
    internal: tuple[str, ...] = (ELECTIONS,)
    eviction: bool = True
    auto_rebalance: bool = True
    imbalance_percent: int = 10
    imbalance_check_ms: int = 300_000
    shutdown_wait_ms: int = 1_000
    """How long ControlledShutdown waits for the node to lead nothing, before it hears what it still leads."""

    def rules_of(self, configs: Mapping[str, str]) -> ElectionRules:
        return ElectionRules(self.loose_of(configs), self.min_isr_of(configs), self.unclean_of(configs))

    def min_isr_of(self, configs: Mapping[str, str]) -> int:
        """
        >>> (ControllerSettings().min_isr_of({"min.insync.replicas": "1"}),
        ... ControllerSettings().min_isr_of({"min.insync.replicas": "?"}))
        (1, 2)
        """
        return parse_min_isr(configs, self.min_isr)

    def unclean_of(self, configs: Mapping[str, str]) -> bool:
        text = configs.get("unclean.leader.election.enable")
        return self.unclean_election if text is None else text.strip().lower() == "true"

    def loose_of(self, configs: Mapping[str, str]) -> bool:
        text = configs.get("flush.messages")
        return self.loose if text is None else text.strip() != "1"


# Nodes: which are live, fenced, stopping (CL-C3, CL-C7, CL-C9, CL-A7)
# --------------------------------------------------------------------

UNCLEAN_LIFE = "@"


def directory_token(node: ClusterNode, loose: bool) -> str:
    """What a replica on this node is known by in `State.directories` when it is in sync: the data directory.

    Where a log is flushed loosely, one that lost power may lack what it had, as if it had another disk, until it has
    caught up in its new life: it goes by the directory and that life. So whoever is controller later knows which of
    the two it is.

    >>> node = ClusterNode(1, 57, "dir", unclean=True)
    >>> directory_token(node, loose=False), directory_token(node, loose=True)
    ('dir', 'dir@57')
    """
    return f"{node.directory}{UNCLEAN_LIFE}{node.epoch}" if loose and node.unclean else node.directory


def is_power_loss_settled(
    node: ClusterNode, image: ClusterImage, is_loose: Callable[[Mapping[str, str]], bool]
) -> bool:
    """Whether the cluster goes by it for good that this life of a node lost power (CL-Z4): it has been taken in, and
    wherever it is in sync, or eligible, by a log that is flushed loosely, it has caught up since. Its next life is
    like any other's then. The last one in sync that lost power stays so until it is elected, or another one is.

    node: as it is registered. is_loose: by what a topic sets.
    """
    view = image.nodes.get(node.id)
    if view is None or view.epoch != node.epoch or view.status is ClusterNodeStatus.GONE:
        return False
    loose = {name for name, topic in image.topics.items() if is_loose(topic.configs)}
    counts = (part for place, part in image.partitions() if place.topic in loose and node.id in (*part.isr, *part.elr))
    mine = directory_token(node, loose=True)
    return all((part.directories or {}).get(node.id) == mine for part in counts)


class RegistrationChanges(NamedTuple):
    """What registrations brought: who is gone (by what cause), and who waits to be taken in."""

    gone: dict[int, str]
    coming: list[ClusterNode]


@dataclass(slots=True)
class NodeRegistry:
    """Registrations, and what the controller makes of them.

    registered: as last seen. live: taken in, and not fenced. coming: registered anew, and not taken in before their
    former life has been treated as dead. unsure: live since before this term, perhaps with a life in between that
    nobody here saw: what they lead is elected anew. fenced: by node, the registration that is (CL-C9). stopping: by
    node, the registration that shuts down. drained: who is to lead nothing, whatever its registration. offline: by
    node, units whose log it cannot use.
    """

    registered: Mapping[int, ClusterNode] = field(default_factory=dict)
    live: dict[int, ClusterNode] = field(default_factory=dict)
    coming: dict[int, ClusterNode] = field(default_factory=dict)
    unsure: dict[int, ClusterNode] = field(default_factory=dict)
    fenced: dict[int, int] = field(default_factory=dict)
    stopping: dict[int, int] = field(default_factory=dict)
    drained: frozenset[int] = NO_NODES
    offline: dict[int, frozenset[TopicPartition]] = field(default_factory=dict)
    highest: dict[int, int] = field(default_factory=dict)
    disks: dict[int, str] = field(default_factory=dict)
    """By node, the directory of its last life that was taken in."""
    leaving: frozenset[int] = NO_NODES
    """Drained or stopping, and live."""
    stops: frozenset[int] = NO_NODES
    """Stopping, and live."""

    def load_registrations(self, nodes: Mapping[int, ClusterNode], image: ClusterImage | None) -> None:
        """The first registrations that a term sees. Who is as this node has known it goes on; of all others nobody
        knows whether they are what they were when they last led."""
        self.registered = nodes
        self.live = dict(nodes)
        self.disks = {node.id: node.directory for node in nodes.values()}
        self.highest = {node.id: node.epoch for node in nodes.values()}
        known = {} if image is None else image.nodes
        for node in nodes.values():
            view = known.get(node.id)
            if view is None or view.epoch != node.epoch or view.status is ClusterNodeStatus.GONE:
                self.unsure[node.id] = node
            elif view.status is ClusterNodeStatus.SHUTTING_DOWN:
                self.stopping[node.id] = node.epoch
        self._update_stops()

    def seen(self, nodes: Mapping[int, ClusterNode]) -> RegistrationChanges:
        """Takes registrations as they are now. A node epoch that is below one seen before is an old reading."""
        gone: dict[int, str] = {}
        coming: list[ClusterNode] = []
        for node_id in self.live.keys() | self.coming.keys():
            if node_id not in nodes:
                gone[node_id] = self._why_gone(node_id)
        for node in nodes.values():
            if node.epoch < self.highest.get(node.id, NO_EPOCH) or self.fenced.get(node.id) == node.epoch:
                continue
            self.highest[node.id] = node.epoch
            if node.id in self.live and self.live[node.id].epoch != node.epoch:
                gone[node.id] = self.why_back(node, "registered anew")
            if not self.is_known(node):
                coming.append(node)
        self.registered = nodes
        for node_id in gone:
            self._dies(node_id)
        for node in coming:
            self.coming[node.id] = node
        return RegistrationChanges(gone, coming)

    def _why_gone(self, node_id: int) -> str:
        """A registration goes with its session. Who closes it in order has said before that it shuts down (CL-A7); of
        any other one ZooKeeper had not heard for too long: it is dead, or stands still, or is cut off."""
        return f"node {node_id} shut down" if node_id in self.stopping else f"node {node_id}'s session expired"

    def why_back(self, node: ClusterNode, otherwise: str) -> str:
        """What has become of a node that is there in another life."""
        replaced = self.disks.get(node.id, node.directory) != node.directory
        return f"node {node.id}'s disk was replaced" if replaced else f"node {node.id} {otherwise}"

    def is_known(self, node: ClusterNode) -> bool:
        """Whether this registration has been taken in, or waits for it."""
        return any(
            each is not None and each.epoch == node.epoch for each in (self.live.get(node.id), self.coming.get(node.id))
        )

    def fence(self, node_id: int) -> None:
        """CL-C9: a node whose process is gone, though its session is not."""
        self.fenced[node_id] = self.live[node_id].epoch
        self._dies(node_id)

    def take_in(self, node_id: int) -> ClusterNode:
        """Its former life is dead and written so: now it has returned."""
        node = self.coming.pop(node_id)
        self.live[node_id] = node
        self.disks[node_id] = node.directory
        self._update_stops()
        return node

    def stop(self, node_id: int) -> None:
        self.stopping[node_id] = self.live[node_id].epoch
        self._update_stops()

    def drain(self, node_ids: frozenset[int]) -> None:
        self.drained = node_ids
        self._update_stops()

    def _dies(self, node_id: int) -> None:
        for of in (self.live, self.coming, self.unsure, self.stopping, self.offline):
            of.pop(node_id, None)
        self._update_stops()

    def _update_stops(self) -> None:
        self.stops = frozenset(self.stopping)
        self.leaving = self.stops | (self.drained & self.live.keys())

    def view(self, node_id: int) -> NodeView | None:
        """A node as all are told of it."""
        if (node := self.live.get(node_id)) is not None:
            status = ClusterNodeStatus.SHUTTING_DOWN if node_id in self.stopping else ClusterNodeStatus.LIVE
            return NodeView(node_id, node.epoch, status, node.rack, node.endpoints, node.session_ms, node.proves)
        epoch = self.highest.get(node_id)
        return None if epoch is None else NodeView(node_id, epoch, ClusterNodeStatus.GONE)

    def standing(
        self,
        unit: TopicPartition,
        replicas: tuple[int, ...],
        directories: Mapping[int, str],
        *,
        loose: bool,
        minimum: int,
        lowest: int,
        unclean: bool,
        epoch: int,
    ) -> ReplicaStanding:
        """How the replicas of a unit stand (CL-C3)."""
        live: list[int] = []
        back: list[int] = []
        foreign: list[int] = []
        present: list[int] = []
        tokens: dict[int, str] = {}
        for each in replicas:
            node = self.live.get(each)
            if node is None:
                continue
            tokens[each] = mine = directory_token(node, loose)
            known = directories.get(each)
            same_disk = known is None or known == mine or known.partition(UNCLEAN_LIFE)[0] == node.directory
            online = each not in self.offline or unit not in self.offline[each]
            if online:
                present.append(each)
            if not same_disk:
                foreign.append(each)
            elif online:
                (live if known == mine or mine == node.directory else back).append(each)
        return ReplicaStanding(
            replicas,
            tuple(live),
            tuple(back),
            tuple(foreign),
            tuple(present),
            self.leaving,
            self.stops,
            minimum,
            lowest,
            tokens,
            unclean,
            epoch,
        )


# Topics and the states of their units
# ------------------------------------

NO_LIMIT = 1_000_000


@dataclass(slots=True)
class ControllerState:
    """topics: by name, as in ZooKeeper, those that are deleted left out. rules: what each sets, as it is read for each
    of its units. states: by unit. second: versions of the state
    znodes of the other halves of shards. holds, leads: units by node. broken: partitions whose state cannot be read:
    nothing is decided for them (CL-C13). lowest: by topic, the smallest minimum that a leader may still go by, until
    all nodes have heard of the one that is set (None: it has not been told yet). applied: by node, the sequence it has
    applied (CL-N3). fresh: the first sequence of the term, until all nodes have applied it.
    """

    settings: ControllerSettings
    epoch: int = NO_EPOCH
    nodes: NodeRegistry = field(default_factory=NodeRegistry)
    publisher: MetadataPublisher = field(default_factory=MetadataPublisher)
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
        """Whether a node has heard nothing of this term: what it goes by, nobody knows."""
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
            self.publisher.staged_partitions[place] = partition_view(state, topic.partitions[place.partition], version)


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
