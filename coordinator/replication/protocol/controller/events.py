"""What the controller hears. Its edge reads znodes and requests, and hands on the facts; it decides nothing.

A request carries an id of the edge's, and is answered once, by `effects.Answer` with that id.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

from muster.coordinator.replication.protocol.facts import (
    NO_EPOCH,
    ClusterNode,
    ClusterTopic,
    PartitionState,
    TopicPartition,
)
from muster.coordinator.replication.protocol.image import NO_VERSION, ClusterImage, ImageVersion

RequestId: TypeAlias = int


class ClusterVersion(NamedTuple):
    """`/muster/cluster/version`: the last write of states and topics, and the version of that znode."""

    known: ImageVersion = NO_VERSION
    version: int = NO_EPOCH


class ControllerElected(NamedTuple):
    """This node is the controller.

    epoch: the controller epoch that it wrote; epoch_version: the version of `/controller_epoch` by it, which each write
    checks. version: as read after the election. image: what this node knows as one of the cluster, if it does.
    `NodesRead`, `TopicsRead` (complete), `DrainedNodesRead` and what waits in ZooKeeper (`ElectLeadersRequested`,
    `ReassignmentRequested`, `TopicDeletionsRead`) follow, read after the election; the states when
    `effects.ReadStates` asks for them.
    """

    node: int
    epoch: int
    epoch_version: int
    version: ClusterVersion
    image: ClusterImage | None = None


class NodesRead(NamedTuple):
    """All registrations there are, by node id; those without `muster.directory` left out (CL-Z2)."""

    nodes: Mapping[int, ClusterNode]


class TopicsRead(NamedTuple):
    """Topics as they are in ZooKeeper now, with what is set for them (`ClusterTopic.version` told). complete: these
    are all;
    else only they were looked at. gone: of those looked at, which were not there."""

    topics: tuple[ClusterTopic, ...]
    complete: bool = False
    gone: tuple[str, ...] = ()


class StatesRead(NamedTuple):
    """Answer to `effects.ReadStates`: every state there is, by partition (not unit: both halves of a shard), and
    the cluster's version as it was before the states were read. broken: those that cannot be read (CL-C13)."""

    states: Mapping[TopicPartition, PartitionState]
    version: ClusterVersion
    broken: tuple[TopicPartition, ...] = ()


class IsrMember(NamedTuple):
    node: int
    epoch: int
    """The node epoch in which the leader knows it."""


class IsrItem(NamedTuple):
    """What a leader asks for one partition (or unit): the in-sync replicas it wants."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]


class AlterPartitionRequested(NamedTuple):
    """AlterPartition. Answered by `effects.IsrAltered`."""

    request: RequestId
    node: int
    node_epoch: int
    items: tuple[IsrItem, ...]


class OfflineReplica(NamedTuple):
    """A log that its node cannot read or write (CL-F9)."""

    topic_id: bytes
    partition: int
    reason: str


class ImagePolled(NamedTuple):
    """A node asks what is new since `known`. Answered by `image.ClusterState`, within max_wait_ms."""

    request: RequestId
    node: int
    node_epoch: int
    known: ImageVersion
    offline: tuple[OfflineReplica, ...] = ()
    max_wait_ms: int = 500


class ShutdownRequested(NamedTuple):
    """ControlledShutdown. Answered by `effects.ShutdownAnswered`: when the node leads nothing more, or after
    `Settings.shutdown_wait_ms`."""

    request: RequestId
    node: int
    node_epoch: int


class DrainedNodesRead(NamedTuple):
    """The nodes in `/muster/cluster/drained`, all of them (`muster cluster drain` and `undrain`): they lead nothing as
    long as others can, and stay followers. Told before the topics of a reign, so that none is elected by it."""

    nodes: frozenset[int]


class ElectionType(Enum):
    """Kafka's types of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectLeadersRequested(NamedTuple):
    """ElectLeaders, or `/admin/preferred_replica_election` and, unclean, `/muster/cluster/unclean_election` (request
    None: nobody hears the answer, and the znode is removed). Answered by `effects.Answered`."""

    request: RequestId | None
    places: tuple[TopicPartition, ...]
    election: ElectionType = ElectionType.PREFERRED


class ReassignmentRequested(NamedTuple):
    """AlterPartitionReassignments, or `/admin/reassign_partitions` (request None, as above): the replicas wanted,
    None to cancel. Answered by `effects.Answered` when it is written that they come and go."""

    request: RequestId | None
    wanted: Mapping[TopicPartition, tuple[int, ...] | None]


class TopicDeletionsRead(NamedTuple):
    """The names in `/admin/delete_topics`, all of them."""

    names: tuple[str, ...]


class ConnectionBroken(NamedTuple):
    """Somebody's connection to a node broke (CL-C9)."""

    node: int


class ConnectionsRefused(NamedTuple):
    """Answer to `effects.Probe`, about the same registration: when connections were refused by ECONNREFUSED, in
    milliseconds of the clock of `now_ms`. Empty if one was not refused."""

    node: int
    node_epoch: int
    times_ms: tuple[int, ...]


class MultiWritten(NamedTuple):
    """The write of this sequence was done."""

    sequence: int


class WriteFailure(Enum):
    EPOCH = "the controller epoch is another by now"
    VERSION = "a state, a topic, or the cluster's version is not as it was"
    LOST = "no answer: it may have been done, or be done yet"


class WriteFailed(NamedTuple):
    """The write of this sequence was refused, or its answer was lost."""

    sequence: int
    failure: WriteFailure


class VersionRead(NamedTuple):
    """Answer to `effects.ReadVersion`."""

    version: ClusterVersion


class ControllerTick(NamedTuple):
    """Time passed: at the moment of the last `effects.WakeAt`, or at any other."""


class ControllerResigned(NamedTuple):
    """This node is the controller no more: its lease ran out (CL-Z8), or another was elected."""


ControllerEvent: TypeAlias = (
    ControllerElected
    | NodesRead
    | TopicsRead
    | StatesRead
    | AlterPartitionRequested
    | ImagePolled
    | ShutdownRequested
    | DrainedNodesRead
    | ElectLeadersRequested
    | ReassignmentRequested
    | TopicDeletionsRead
    | ConnectionBroken
    | ConnectionsRefused
    | MultiWritten
    | WriteFailed
    | VersionRead
    | ControllerTick
    | ControllerResigned
)
