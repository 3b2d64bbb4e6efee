"""Who is live: registrations as they are seen, taken in, fenced (CL-C3, CL-C7, CL-C9), and who stops (CL-A7)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.coordinator.replication.protocol.controller.elections import NO_NODES, ReplicaStanding
from muster.coordinator.replication.protocol.facts import NO_EPOCH, ClusterNode, TopicPartition
from muster.coordinator.replication.protocol.image import ClusterImage, ClusterNodeStatus, NodeView

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
    former life has been treated as dead. unsure: live since before this reign, perhaps with a life in between that
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

    def begin(self, nodes: Mapping[int, ClusterNode], image: ClusterImage | None) -> None:
        """The first registrations that a reign sees. Who is as this node has known it goes on; of all others nobody
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
        self._told()

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
        self._told()
        return node

    def stop(self, node_id: int) -> None:
        self.stopping[node_id] = self.live[node_id].epoch
        self._told()

    def drain(self, node_ids: frozenset[int]) -> None:
        self.drained = node_ids
        self._told()

    def _dies(self, node_id: int) -> None:
        for of in (self.live, self.coming, self.unsure, self.stopping, self.offline):
            of.pop(node_id, None)
        self._told()

    def _told(self) -> None:
        self.stops = frozenset(self.stopping)
        self.leaving = self.stops | (self.drained & self.live.keys())

    def view(self, node_id: int) -> NodeView | None:
        """A node as all are told of it."""
        if (node := self.live.get(node_id)) is not None:
            status = ClusterNodeStatus.SHUTTING_DOWN if node_id in self.stopping else ClusterNodeStatus.LIVE
            return NodeView(node_id, node.epoch, status, node.rack, node.endpoints, node.session_ms)
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
