"""How a cluster stands, as this node knows it: as messages, metrics and conditions, and how old that knowledge is.

`ControllerContact` says when the controller was last heard: whether what this node reports is how the cluster
stands, or how it stood. `SessionLengths` warns if nodes have sessions of different lengths (CL-G5), `LeftOutTopics` of
topics that nobody leads because their znode cannot be read. The messages are made from one state of the image: the
image changes, `ClusterStanding` does not.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from muster.coordinator.observability.metrics.instruments import ClusterFigures, LedPartitionFigures
from muster.coordinator.replication.io.election_ledger import ElectionCounts, ElectionReport
from muster.coordinator.replication.io.wire.node_proof import NodeProofs, describe_unable
from muster.coordinator.replication.protocol.cluster_metadata import (
    ELECTIONS,
    NO_NODE_ID,
    NO_VERSION,
    ClusterImage,
    ClusterNodeStatus,
    ImageChanges,
    ImageVersion,
    NodeView,
    PartitionView,
    TopicPartition,
    explain_missing_id,
    parse_min_isr,
    unit_of,
)
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas
from muster.coordinator.rpc.v1 import cluster_service_pb2 as pb
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.zookeeper.cluster.cluster_layout import read_topic
from muster.coordinator.zookeeper.errors import MalformedZnode, ZooKeeperError
from muster.coordinator.zookeeper.layout import BROKER_TOPICS, GRPC_ENDPOINT, topic_path
from muster.coordinator.zookeeper.lost_data import LOST_DATA, LostData
from muster.coordinator.zookeeper.session import SessionState, ZooKeeperSession

# How old the image is, and whether sessions agree
# ------------------------------------------------

log = structlog.get_logger("muster.cluster")


class ControllerHeard(NamedTuple):
    """ms_ago: when the controller last said how the cluster stands. cut_off: why that is so long ago that others may
    count this node as gone, a sentence; "" while it is not."""

    ms_ago: int = 0
    cut_off: str = ""


class ControllerContact:
    """now_ms: a monotonic clock. controller: its node id and where it is reached, as last seen; None: there is none."""

    def __init__(
        self,
        session: ZooKeeperSession,
        now_ms: Callable[[], int],
        controller: Callable[[], tuple[int, tuple[str, int]] | None],
    ) -> None:
        self._session = session
        self._now_ms = now_ms
        self._controller = controller
        self._heard_ms = now_ms()

    def heard(self) -> None:
        """The controller has answered a poll."""
        self._heard_ms = self._now_ms()

    def describe_contact(self) -> ControllerHeard:
        ms_ago = max(0, self._now_ms() - self._heard_ms)
        if ms_ago < self._session.session_timeout_ms:
            return ControllerHeard(ms_ago)
        return ControllerHeard(
            ms_ago,
            f"this node is not in the cluster: it has heard nothing from the controller for {ms_ago / 1000:.0f} s, "
            f"{self._explain_silence()}; what it tells is as of then. Ask another node",
        )

    def _explain_silence(self) -> str:
        if self._session.state is not SessionState.CONNECTED:
            return f"and ZooKeeper at {self._session.connect} is out of its reach"
        controller = self._controller()
        if controller is None:
            return "and as far as ZooKeeper says there is no controller"
        node, (host, port) = controller
        return f"and the controller, node {node} at {host}:{port}, does not answer it"


class SessionLengths:
    """Told of each change of the image; the log has a line when the lengths differ, or differ otherwise than before."""

    def __init__(self, image: ClusterImage, warn: Callable[..., object] = log.warning) -> None:
        self._image = image
        self._warn = warn
        self._told: dict[int, int] = {}

    def learned(self, changes: ImageChanges) -> None:
        if not changes.nodes:
            return
        lengths = {node.id: node.session_ms for node in self._image.live() if node.session_ms}
        differ = len(set(lengths.values())) > 1
        if differ and lengths != self._told:
            each = ", ".join(f"node {node} has {ms}" for node, ms in sorted(lengths.items()))
            self._warn(
                "zookeeper.session.timeout.ms is not the same at all nodes: a takeover waits for the longest; set it "
                "to one value, one node after the other",
                lengths=each,
                as_granted_by="ZooKeeper, which bounds it to 2 to 20 of its ticks",
            )
        self._told = lengths if differ else {}


LOOK_EVERY_S: Final = 10.0
MOST_LEFT_OUT: Final = 20
LEFT_OUT: Final = "topic-left-out"
"""Kind of the condition; its names are "topic-left-out:TOPIC"."""


class LeftOutTopics:
    """Topics in ZooKeeper that no controller can take in (CL-A11, CL-C13), as conditions of the node.

    A look reads the list, and the znodes of those that the image does not have. What is left out at two looks in a row
    is reported: the controller may have been about to mend it.
    """

    def __init__(self, session: ZooKeeperSession, image: ClusterImage, conditions: Conditions) -> None:
        self._session = session
        self._image = image
        self._conditions = conditions
        self._seen: frozenset[str] = frozenset()
        self._reported: frozenset[str] = frozenset()

    async def look_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._session.connected()
            try:
                await self.look()
            except ZooKeeperError as error:
                log.debug("it is not known which topics are left out", why=str(error))

    async def look(self) -> None:
        """Raises ZooKeeper's weather."""
        missing = sorted(set(await self._session.children(BROKER_TOPICS) or ()) - self._image.topics.keys())
        found: dict[str, str] = {}
        for name in missing:
            if len(found) < MOST_LEFT_OUT and (why := await self._explain(name)):
                found[name] = why
        for name in self._reported - found.keys():
            self._conditions.clear(f"{LEFT_OUT}:{name}")
        reported = found.keys() & self._seen
        for name in sorted(reported):
            self._conditions.report(f"{LEFT_OUT}:{name}", found[name])
        self._seen, self._reported = frozenset(found), frozenset(reported)

    async def _explain(self, name: str) -> str:
        """Why it cannot be taken in; "" where it can: the image shows it soon."""
        path = topic_path(name)
        if (znode := await self._session.get(path)) is None:
            return ""
        try:
            topic = read_topic(path, znode.data, needs_id=False)
        except MalformedZnode as error:
            return f"topic {name} is left out: {error}"
        return "" if topic.topic_id else explain_missing_id(topic)


# The image as messages
# ---------------------

ELECTIONS_PLACE: Final = TopicPartition(ELECTIONS, 0)

STATES: Final = {
    ClusterNodeStatus.LIVE: pb.NODE_STATE_LIVE,
    ClusterNodeStatus.SHUTTING_DOWN: pb.NODE_STATE_SHUTTING_DOWN,
    ClusterNodeStatus.GONE: pb.NODE_STATE_GONE,
}


class ImagePartition(NamedTuple):
    """A partition of the image, and how many of it have to be in sync for acks=all."""

    place: TopicPartition
    view: PartitionView
    min_isr: int

    @property
    def offline(self) -> bool:
        return self.view.leader == NO_NODE_ID

    @property
    def under_min_isr(self) -> bool:
        return len(self.view.isr) < self.min_isr

    @property
    def under_replicated(self) -> bool:
        """As Kafka counts: those that are being added are no copies yet."""
        wanted = [each for each in self.view.replicas if each not in self.view.adding]
        return len(set(self.view.isr) & set(wanted)) < len(wanted)


@dataclass(frozen=True, slots=True)
class ClusterStanding:
    """How the cluster stands at one moment: the image changes, this does not."""

    controller: int
    known: ImageVersion
    nodes: Mapping[int, NodeView]
    partitions: tuple[ImagePartition, ...]
    drained: frozenset[int]
    applied: Mapping[int, int]

    @classmethod
    def of(
        cls,
        image: ClusterImage,
        min_isr: int,
        drained: frozenset[int] = frozenset(),
        applied: Mapping[int, int] | None = None,
    ) -> "ClusterStanding":
        """min_isr: of topics that say nothing themselves. Where there are many partitions, of an image that was
        `taken`, in a thread."""
        partitions = tuple(
            describe_partition(topic.name, number, view, least)
            for topic in image.topics.values()
            for least in (parse_min_isr(topic.configs, min_isr),)
            for number, view in topic.partitions.items()
        )
        return cls(image.controller, image.known, dict(image.nodes), partitions, drained, dict(applied or {}))

    def lives(self, node_id: int) -> bool:
        node = self.nodes.get(node_id)
        return node is not None and node.status is not ClusterNodeStatus.GONE

    def row(self, place: TopicPartition, each: ImagePartition) -> pb.ClusterPartitionState:
        view = each.view
        return pb.ClusterPartitionState(
            topic=place.topic,
            partition=place.partition,
            leader_id=view.leader,
            leader_epoch=view.leader_epoch,
            replicas=view.replicas,
            isr=view.isr,
            elr=view.elr,
            adding=view.adding,
            removing=view.removing,
            offline=[node for node in view.replicas if not self.lives(node)],
            min_isr=each.min_isr,
        )


def describe_partition(topic: str, number: int, view: PartitionView, least: int) -> ImagePartition:
    """least: min.insync.replicas of the topic."""
    return ImagePartition(TopicPartition(topic, number), view, min(least, len(view.replicas) - len(view.adding) or 1))


def count_deficient_partitions(image: ClusterImage, me: int, min_isr: int) -> tuple[int, int, int]:
    """How many partitions that this node leads are under-replicated, and under their least; and how many of all nobody
    leads. On the loop: nothing is made for those that are whole."""
    under_replicated = under_min_isr = offline = 0
    for topic in image.topics.values():
        least = parse_min_isr(topic.configs, min_isr)
        for number, view in topic.partitions.items():
            if view.leader == me and view.isr != view.replicas:
                each = describe_partition(topic.name, number, view, least)
                under_replicated += each.under_replicated
                under_min_isr += each.under_min_isr
            elif view.leader == NO_NODE_ID:
                offline += 1
    return under_replicated, under_min_isr, offline


def describe_cluster(
    answer: pb.DescribeClusterResponse, standing: ClusterStanding, wanted: "pb.PartitionFilter", topics: frozenset[str]
) -> pb.DescribeClusterResponse:
    """topics: whose partitions are told; none: those of all."""
    answer.controller_id = standing.controller if standing.lives(standing.controller) else NO_NODE_ID
    answer.controller_epoch, answer.sequence = standing.known
    answer.nodes.extend(describe_nodes(standing))
    answer.partition_count = len(standing.partitions)
    answer.offline_count = sum(each.offline for each in standing.partitions)
    answer.under_min_isr_count = sum(each.under_min_isr for each in standing.partitions)
    answer.under_replicated_count = sum(each.under_replicated for each in standing.partitions)
    told = (
        each for each in standing.partitions if is_wanted(each, wanted) and (not topics or each.place.topic in topics)
    )
    answer.partitions.extend(standing.row(each.place, each) for each in sorted(told, key=lambda each: each.place))
    return answer


def is_wanted(each: ImagePartition, wanted: "pb.PartitionFilter") -> bool:
    if wanted == pb.PARTITION_FILTER_UNDER_REPLICATED:
        return each.under_replicated
    if wanted == pb.PARTITION_FILTER_UNDER_MIN_ISR:
        return each.under_min_isr
    if wanted == pb.PARTITION_FILTER_OFFLINE:
        return each.offline
    return wanted == pb.PARTITION_FILTER_ALL


def describe_nodes(standing: ClusterStanding) -> Iterator[pb.ClusterNode]:
    """By id; those that have copies and are not known, too."""
    assigned = {node for each in standing.partitions for node in each.view.replicas}
    found = {node_id: node_row(standing, node_id) for node_id in sorted(assigned | standing.nodes.keys())}
    for each in standing.partitions:
        if each.view.leader in found:
            found[each.view.leader].leads += 1
        for node in each.view.replicas:
            found[node].holds += 1
            found[node].behind += node not in each.view.isr
    yield from found.values()


def node_row(standing: ClusterStanding, node_id: int) -> pb.ClusterNode:
    view = standing.nodes.get(node_id)
    row = pb.ClusterNode(node_id=node_id, state=pb.NODE_STATE_GONE, known_sequence=standing.applied.get(node_id, -1))
    if view is None:
        return row
    row.state, row.node_epoch, row.rack = STATES[view.status], view.epoch, view.rack or ""
    if node_id in standing.drained and view.status is ClusterNodeStatus.LIVE:
        row.state = pb.NODE_STATE_DRAINED
    for each in view.endpoints:
        row.endpoints.add(listener=each.listener, host=each.host, port=each.port)
        if each.listener == GRPC_ENDPOINT:
            row.host, row.port = each.host, each.port
    return row


def units_led_by(image: ClusterImage, node: int) -> Iterator[TopicPartition]:
    return (place for place, view in image.partitions() if view.leader == node)


def movable_units(image: ClusterImage, node: int) -> Iterator[TopicPartition]:
    """What a node leads, and another that lives and is in sync could."""
    live = {each.id for each in image.live() if each.status is ClusterNodeStatus.LIVE} - {node}
    return (place for place, view in image.partitions() if view.leader == node and live & set(view.isr))


def describe_election(row: pb.Election, told: ElectionReport) -> None:
    one = told.election
    row.topic, _, number = one.unit.rpartition("-")
    row.partition = int(number) if number.isdecimal() else -1
    row.leader_epoch, row.from_node_id, row.to_node_id = one.epoch, one.before, one.after
    row.clean, row.cause, row.decided_ms, row.took_ms = one.clean, one.cause, one.decided_ms, one.took_ms
    row.isr.extend(one.isr)
    row.elr.extend(one.elr)
    for each in told.lost:
        row.lost.add(
            node_id=each.node,
            from_offset=each.start,
            to_offset=each.end,
            records=each.records,
            epochs=each.epochs,
            topic=each.unit.rpartition("-")[0],
        )


# The image as metrics
# --------------------


class ClusterMetricsSource:
    """See `ClusterFiguresSource`. min_isr: of topics that say nothing themselves. unproven: connections that ended for
    want of a proof."""

    def __init__(
        self,
        image: ClusterImage,
        replicas: NodeReplicas,
        counted: ElectionCounts,
        is_controller: Callable[[], bool],
        min_isr: int,
        unproven: Callable[[], int] = lambda: 0,
    ) -> None:
        self._image = image
        self._replicas = replicas
        self._unproven = unproven
        self._counted = counted
        self._is_controller = is_controller
        self._min_isr = min_isr
        self._shrinks = self._expands = 0
        self._seen: tuple[ImageVersion, tuple[int, int, int]] = NO_VERSION, (0, 0, 0)

    def learned(self, changes: ImageChanges) -> None:
        """The image has changed: as Kafka, a shrink or an expansion is counted by the partition's leader."""
        me = self._replicas.me
        for _, before, after in changes.partitions:
            if before is None or after.leader != me or before.leader_epoch != after.leader_epoch:
                continue
            self._shrinks += bool(set(before.isr) - set(after.isr))
            self._expands += bool(set(after.isr) - set(before.isr))

    def figures(self) -> ClusterFigures:
        under_replicated, under_min_isr, offline = self._wanting()
        counted, controller = self._counted, self._is_controller()
        return ClusterFigures(
            under_replicated=under_replicated,
            under_min_isr=under_min_isr,
            offline=offline if controller else 0,
            controllers=int(controller),
            elections=counted.elections,
            elections_s=counted.took_ms / 1000,
            unclean=counted.unclean,
            isr_shrinks=self._shrinks,
            isr_expands=self._expands,
            max_lag=max((copy.follower.lag for copy in self._replicas.copies.values()), default=0),
            undone=counted.undone,
            unproven=self._unproven(),
        )

    def led(self, topic: str, partitions: range) -> Sequence[LedPartitionFigures | None]:
        return [self._led(TopicPartition(topic, number)) for number in partitions]

    def _led(self, place: TopicPartition) -> LedPartitionFigures | None:
        view = self._image.partition(place)
        if view is None or unit_of(place) not in self._replicas.leaders:
            return None
        return LedPartitionFigures(
            view.leader == next(iter(view.replicas), NO_NODE_ID), len(view.replicas), len(view.isr)
        )

    def _wanting(self) -> tuple[int, int, int]:
        """Counted anew only where the image has changed."""
        known = self._image.known
        if self._seen[0] != known or known == NO_VERSION:
            self._seen = known, count_deficient_partitions(self._image, self._replicas.me, self._min_isr)
        return self._seen[1]


# What is wrong with this node's part, as conditions
# --------------------------------------------------

DOUBTED_S: Final = 60.0
"""A node that could not be believed is told of until nothing of that kind has happened for so long."""

UPGRADE_MS: Final = 600_000
"""Nodes of an earlier version are told of in health when they are there for so long: until then an upgrade goes on."""

NAMED_COPIES: Final = 5
"""Copies that are told one by one, with the reason of each."""


class ClusterConditions:
    """Called every now and then, on the loop. proofs: None where nodes show certificates."""

    def __init__(self, conditions: Conditions, replicas: NodeReplicas, proofs: NodeProofs | None) -> None:
        self._conditions = conditions
        self._replicas = replicas
        self._proofs = proofs
        self._unable: dict[int, int] = {}
        """Registered nodes that cannot prove themselves, and since when."""
        self._told: set[str] = set()

    def carry(self) -> None:
        found = self._unproven_nodes()
        if self._replicas.offline:
            found["copies-offline"] = describe_offline(self._replicas)
        for name in self._told - found.keys():
            self._conditions.clear(name)
        for name, sentence in found.items():
            self._conditions.report(name, sentence)
        self._told = set(found)

    def _unproven_nodes(self) -> dict[str, str]:
        if self._proofs is None:
            return {}
        now_ms = self._conditions.now_ms()
        self._note_unable(self._proofs.unable(), now_ms)
        found = {
            node: describe_unable([node]) for node, since_ms in self._unable.items() if now_ms - since_ms >= UPGRADE_MS
        }
        for node, doubt in self._proofs.doubts(DOUBTED_S).items():
            found[node] = f"node {node}, or who calls itself so at {doubt.host}: {doubt.why}"
        return {f"node-unproven:{node}": sentence for node, sentence in found.items()}

    def _note_unable(self, unable: tuple[int, ...], now_ms: int) -> None:
        if set(unable) != self._unable.keys():
            if unable:
                log.warning("the listener between nodes is open", why=describe_unable(unable))
            else:
                log.info("the listener between nodes answers nobody but nodes that prove it")
        self._unable = {node: self._unable.get(node, now_ms) for node in unable}


def describe_offline(replicas: NodeReplicas) -> str:
    """Of copies that cannot be used here, some by name, and why."""
    places = sorted(replicas.offline)
    named = [f"{place} ({describe_reason(replicas, place)})" for place in places[:NAMED_COPIES]]
    if len(places) > NAMED_COPIES:
        named.append(f"and {len(places) - NAMED_COPIES} more")
    return f"{len(places)} of this node's replicas are offline, so that others must lead: {'; '.join(named)}"


def describe_reason(replicas: NodeReplicas, place: TopicPartition) -> str:
    _, why = replicas.offline[place]
    again = place in replicas.corrupt_halves(unit_of(place))
    return f"{why} It is copied anew from its leader once no node counts on this copy" if again else why


def report_lost_data(conditions: Conditions, loss: LostData | None) -> None:
    """A node of a cluster writes nothing there again: the states of partitions have to be those that were."""
    if loss is None:
        conditions.clear(LOST_DATA)
        return
    conditions.report(
        LOST_DATA,
        f"{loss.sentence}; what is in sync is served as long as nodes live, but no leader is elected and no topic or "
        "setting changes. No record and no group is lost: stop the nodes, restore ZooKeeper's snapshots and logs, then "
        "start the nodes",
    )
