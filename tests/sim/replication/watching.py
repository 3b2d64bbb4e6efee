"""What a simulated node that is the controller reads in ZooKeeper, and is told of there, as events of its machine."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterNode,
    ClusterTopic,
    PartitionState,
    TopicPartition,
)
from muster.coordinator.replication.protocol.controller import events_and_effects
from muster.coordinator.replication.protocol.controller.events_and_effects import AdminMarker, ClusterVersion
from tests.sim.replication.zookeeper import BadVersion, Client, Delete, NoNode, Znode

if TYPE_CHECKING:
    from tests.sim.replication.candidate import Performer, SimulatedCandidate

IDS, TOPICS, CONTROLLER, EPOCH = "/brokers/ids", "/brokers/topics", "/controller", "/controller_epoch"
VERSION, DELETED = "/muster/cluster/version", "/admin/delete_topics"
DRAINED = "/muster/cluster/drained"
ASKED = {
    AdminMarker.PREFERRED: "/admin/preferred_replica_election",
    AdminMarker.UNCLEAN: "/muster/cluster/unclean_election",
    AdminMarker.REASSIGN: "/admin/reassign_partitions",
}
"""What operators leave there: the units that they want led otherwise, or kept by others."""
RETRY_MS = 100


def state_path(place: TopicPartition) -> str:
    return f"{TOPICS}/{place.topic}/partitions/{place.partition}/state"


def what_is_asked(marker: AdminMarker, data: Any) -> events_and_effects.ControllerEvent:
    if marker is AdminMarker.REASSIGN:
        return events_and_effects.ReassignmentRequested(None, data)
    election = (
        events_and_effects.ElectionType.UNCLEAN
        if marker is AdminMarker.UNCLEAN
        else events_and_effects.ElectionType.PREFERRED
    )
    return events_and_effects.ElectLeadersRequested(None, data, election)


class Watching:
    """Its watches, and what of that it has taken in this term."""

    def __init__(self, candidate: "SimulatedCandidate", node: "Performer", zookeeper: Client) -> None:
        self._candidate = candidate
        self._node = node
        self._zookeeper = zookeeper
        self._taken: dict[AdminMarker, Znode] = {}

    def begin(self, *, term: bool = False) -> None:
        """With each connection, of which no watch is left, and with each term, which has taken nothing yet."""
        if term:
            self._taken.clear()
        self._watch_nodes()
        self._watch_drained()
        self._watch_topics()
        self._watch_deleted()
        self._watch_asked()

    # What operators leave.

    def _watch_asked(self, _: str = "") -> None:
        if self._candidate.machine is not None:
            for marker, path in ASKED.items():
                self._zookeeper.get(path, lambda found, marker=marker: self._asked(marker, found), self._watch_asked)

    def _asked(self, marker: AdminMarker, found: Any) -> None:
        """Each once, as `zookeeper.cluster.admin.Markers` reads them."""
        if self._candidate.machine is None:
            return
        if isinstance(found, Exception):
            self._candidate.again(self._watch_asked)
        elif found is None:
            self._taken.pop(marker, None)
        elif self._taken.get(marker) != found:
            self._taken[marker] = found
            self._candidate.step(what_is_asked(marker, found.data))

    def remove(self, wanted: events_and_effects.RemoveMarker) -> None:
        """It was taken in. Asked again until ZooKeeper has answered."""
        if wanted.marker is AdminMarker.DELETE:
            self._zookeeper.multi([Delete(f"{DELETED}/{wanted.name}")], lambda _: None)
            return
        term, taken = self._candidate.term, self._taken.get(wanted.marker)

        def removed(outcome: Any) -> None:
            if isinstance(outcome, BadVersion):
                self._watch_asked()
            elif isinstance(outcome, Exception) and not isinstance(outcome, NoNode):
                self._node.later(RETRY_MS, again)

        def again() -> None:
            if self._candidate.term == term:
                self.remove(wanted)

        self._zookeeper.multi([Delete(ASKED[wanted.marker], -1 if taken is None else taken.version)], removed)

    # Nodes, topics, states.

    def _watch_nodes(self, _: str = "") -> None:
        if self._candidate.machine is None:
            return
        found: dict[int, ClusterNode] = {}

        def listed(names: Any) -> None:
            if isinstance(names, Exception):
                self._candidate.again(self._watch_nodes)
                return
            left = set(names)
            if not left:
                self._seen(events_and_effects.NodesRead({}))
            for name in names:
                self._zookeeper.get(f"{IDS}/{name}", lambda znode, name=name: read(name, znode, left))

        def read(name: str, znode: Any, left: set[str]) -> None:
            if isinstance(znode, Exception):
                self._candidate.again(self._watch_nodes)
                return
            if znode is not None:
                found[int(name)] = with_epoch(znode)
            left.discard(name)
            if not left:
                self._seen(events_and_effects.NodesRead(found))

        self._zookeeper.children(IDS, listed, self._watch_nodes)

    def _seen(self, event: events_and_effects.ControllerEvent) -> None:
        if self._candidate.machine is not None:
            self._candidate.step(event)

    def _watch_topics(self, _: str = "") -> None:
        if self._candidate.machine is not None:
            self._read_topics(
                self._watch_topics, lambda topics: self._seen(events_and_effects.TopicsRead(topics, complete=True))
            )

    def _read_topics(
        self, watch: Callable[[str], None] | None, then: Callable[[tuple[ClusterTopic, ...]], None]
    ) -> None:
        found: dict[str, ClusterTopic] = {}

        term = self._candidate.term

        def again() -> None:
            # Watches are set anew with each connection; what the machine waits for is read until it is.
            if watch is not None:
                self._candidate.again(lambda: self._read_topics(watch, then))
            elif term == self._candidate.term:
                self._node.later(RETRY_MS, lambda: self._read_topics(watch, then))

        def listed(names: Any) -> None:
            if isinstance(names, Exception):
                again()
                return
            left = set(names)
            if not left:
                then(())
            for name in names:
                self._zookeeper.get(f"{TOPICS}/{name}", lambda znode, name=name: read(name, znode, left), watch)

        def read(name: str, znode: Any, left: set[str]) -> None:
            if isinstance(znode, Exception):
                again()
                return
            if znode is not None:
                found[name] = with_version(znode)
            left.discard(name)
            if not left:
                then(tuple(found[each] for each in sorted(found)))

        self._zookeeper.children(TOPICS, listed, watch)

    def _watch_drained(self, _: str = "") -> None:
        if self._candidate.machine is None:
            return

        def listed(names: Any) -> None:
            if isinstance(names, Exception):
                self._candidate.again(self._watch_drained)
            elif self._candidate.machine is not None:
                self._candidate.step(events_and_effects.DrainedNodesRead(frozenset(map(int, names))))

        self._zookeeper.children(DRAINED, listed, self._watch_drained)

    def _watch_deleted(self, _: str = "") -> None:
        if self._candidate.machine is None:
            return

        def listed(names: Any) -> None:
            if isinstance(names, Exception):
                self._candidate.again(self._watch_deleted)
            elif self._candidate.machine is not None:
                self._candidate.step(events_and_effects.TopicDeletionsRead(tuple(names)))

        self._zookeeper.children(DELETED, listed, self._watch_deleted)

    def read_states(self, term: int) -> None:
        if term != self._candidate.term:
            return
        version: list[ClusterVersion] = []
        states: dict[TopicPartition, PartitionState] = {}

        def again() -> None:
            self._node.later(RETRY_MS, lambda: self.read_states(term))

        def version_read(found: Any) -> None:
            if isinstance(found, Exception):
                again()
                return
            version.append(as_version(found))
            self._read_topics(None, topics_read)

        def topics_read(topics: tuple[ClusterTopic, ...]) -> None:
            if term != self._candidate.term or self._candidate.machine is None:
                return
            self._candidate.step(events_and_effects.TopicsRead(topics, complete=True))
            left = {TopicPartition(each.name, p) for each in topics for p in range(len(each.partitions))}
            if not left:
                done()
            for place in sorted(left):
                self._zookeeper.get(state_path(place), lambda znode, place=place: state_read(place, znode, left))

        def state_read(place: TopicPartition, znode: Any, left: set[TopicPartition]) -> None:
            if isinstance(znode, Exception):
                if place in left:
                    left.clear()
                    again()
                return
            if place not in left:
                return
            if znode is not None:
                states[place] = with_partition_epoch(znode)
            left.discard(place)
            if not left:
                done()

        def done() -> None:
            if term == self._candidate.term and self._candidate.machine is not None:
                self._candidate.step(events_and_effects.StatesRead(states, version[0]))

        self._zookeeper.sync(
            lambda outcome: again() if isinstance(outcome, Exception) else self._zookeeper.get(VERSION, version_read)
        )


def as_version(found: Znode | None) -> ClusterVersion:
    return ClusterVersion() if found is None else ClusterVersion(found.data, found.version)


def with_epoch(znode: Znode) -> ClusterNode:
    node: ClusterNode = znode.data
    return ClusterNode(node.id, znode.czxid, node.directory, node.unclean, node.endpoints, node.rack)


def with_version(znode: Znode) -> ClusterTopic:
    topic: ClusterTopic = znode.data
    return ClusterTopic(topic.name, topic.topic_id, topic.partitions, topic.configs, znode.version)


def with_partition_epoch(znode: Znode) -> PartitionState:
    state: PartitionState = znode.data
    return PartitionState(
        state.leader,
        state.leader_epoch,
        state.isr,
        state.elr,
        state.directories,
        state.controller_epoch,
        znode.version,
        state.unclean_epoch,
        state.cause,
    )
