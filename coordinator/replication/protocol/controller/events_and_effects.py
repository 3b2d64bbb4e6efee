"""What the controller receives, and what it asks of its caller in return. Facts, no bytes.

The caller reads znodes and requests and passes the facts on; it decides nothing. A request carries an id of the
caller's and is answered once, by `Respond` with that id. How an effect looks in ZooKeeper and on the wire is the
caller's business.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    NO_VERSION,
    ClusterImage,
    ClusterNode,
    ClusterState,
    ClusterTopic,
    ImageVersion,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
)

# Events: what the controller receives
# ------------------------------------

RequestId: TypeAlias = int


class ClusterVersion(NamedTuple):
    """`/muster/cluster/version`: the last write of states and topics, and the version of that znode."""

    known: ImageVersion = NO_VERSION
    version: int = NO_EPOCH


class ControllerElected(NamedTuple):
    """This node is the controller.

    epoch: the controller epoch that it wrote; epoch_version: the version of `/controller_epoch` by it, which each
    write checks. version: as read after the election. image: what this node knows as one of the cluster, if it
    does. copies: by name, the ids of the topics that it has copies of. `NodesRead`, `TopicsRead` (complete),
    `DrainedNodesRead` and what waits in ZooKeeper (`ElectLeadersRequested`, `ReassignmentRequested`,
    `TopicDeletionsRead`) follow, read after the election; the states when `ReadPartitionStates` asks for them.
    """

    node: int
    epoch: int
    epoch_version: int
    version: ClusterVersion
    image: ClusterImage | None = None
    copies: Mapping[str, bytes] = MappingProxyType({})


class NodesRead(NamedTuple):
    """All registrations there are, by node id; those without `muster.directory` left out (CL-Z2)."""

    nodes: Mapping[int, ClusterNode]


class UnidentifiedTopic(NamedTuple):
    """A topic whose znode says no id. in_sync: the nodes in the ISR or ELR of any of its partitions; None where no
    partition has a state, and so nobody has ever had a log of it."""

    topic: ClusterTopic
    in_sync: frozenset[int] | None


class TopicsRead(NamedTuple):
    """Topics as they are in ZooKeeper now, with what is set for them (`ClusterTopic.version` told). complete: these
    are all;
    else only they were looked at. gone: of those looked at, which were not there. unidentified: those whose znode says
    no id (CL-A11), which `topics` leaves out."""

    topics: tuple[ClusterTopic, ...]
    complete: bool = False
    gone: tuple[str, ...] = ()
    unidentified: tuple[UnidentifiedTopic, ...] = ()


class StatesRead(NamedTuple):
    """Answer to `ReadPartitionStates`: every state there is, by partition (not unit: both halves of a shard),
    and the cluster's version as it was before the states were read. broken: those that cannot be read (CL-C13)."""

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
    """AlterPartition. Answered by `AlterPartitionResult`."""

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
    """ControlledShutdown. Answered by `ShutdownResult`: when the node leads nothing more, or after
    `Settings.shutdown_wait_ms`."""

    request: RequestId
    node: int
    node_epoch: int


class DrainedNodesRead(NamedTuple):
    """The nodes in `/muster/cluster/drained`, all of them (`muster cluster drain` and `undrain`): they lead nothing as
    long as others can, and stay followers. Told before the topics of a term, so that none is elected by it."""

    nodes: frozenset[int]


class ElectionType(Enum):
    """Kafka's types of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectLeadersRequested(NamedTuple):
    """ElectLeaders, or `/admin/preferred_replica_election` and, unclean, `/muster/cluster/unclean_election` (request
    None: nobody hears the answer, and the znode is removed). Answered by `Answered`."""

    request: RequestId | None
    places: tuple[TopicPartition, ...]
    election: ElectionType = ElectionType.PREFERRED


class ReassignmentRequested(NamedTuple):
    """AlterPartitionReassignments, or `/admin/reassign_partitions` (request None, as above): the replicas wanted,
    None to cancel. Answered by `Answered` when it is written that they come and go."""

    request: RequestId | None
    wanted: Mapping[TopicPartition, tuple[int, ...] | None]


class TopicDeletionsRead(NamedTuple):
    """The names in `/admin/delete_topics`, all of them."""

    names: tuple[str, ...]


class ConnectionBroken(NamedTuple):
    """Somebody's connection to a node broke (CL-C9)."""

    node: int


class ConnectionsRefused(NamedTuple):
    """Answer to `ProbeNode`, about the same registration: when connections were refused by ECONNREFUSED, in
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
    """Answer to `ReadClusterVersion`."""

    version: ClusterVersion


class ControllerTick(NamedTuple):
    """Time passed: at the moment of the last `WakeControllerAt`, or at any other."""


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


# Effects: what it asks of its caller
# -----------------------------------


class PutPartitionState(NamedTuple):
    """The state znode of a partition. at: the version it has to have; NO_EPOCH: it has to be made, with its parents."""

    place: TopicPartition
    state: PartitionState
    at: int


class DeletePartitionState(NamedTuple):
    """The state znode of a partition of a topic that is deleted goes, with the znode above it."""

    place: TopicPartition
    at: int


class PutTopicZnode(NamedTuple):
    """The znode of a topic whose assignments change, or which gets its id; `topic.version` is what it has to have. The
    edge draws the id of one that has none yet."""

    topic: ClusterTopic


class CreateInternalTopic(NamedTuple):
    """An internal topic that is not there yet (CL-C12). Its id is drawn by the edge, its settings are the edge's,
    too."""

    name: str
    partitions: tuple[ReplicaAssignment, ...]


class DeleteTopicZnode(NamedTuple):
    """The znode of a topic goes, its settings, and its marker in `/admin/delete_topics`. Nothing else is below it."""

    name: str
    at: int


WriteOperation: TypeAlias = (
    PutPartitionState | DeletePartitionState | PutTopicZnode | CreateInternalTopic | DeleteTopicZnode
)


class WriteMulti(NamedTuple):
    """One multi: check `/controller_epoch` at epoch_version; the operations; set `/muster/cluster/version` to
    (epoch, sequence), at cluster_version (NO_EPOCH: make it). Answered by `Written` or `WriteFailed`; until then
    there is no other.

    That the cluster's version is checked as well puts all writes of a term into one order: one whose answer was lost,
    and which is done later than all thought, can only fail.
    """

    epoch: int
    epoch_version: int
    sequence: int
    cluster_version: int
    operations: tuple[WriteOperation, ...]


class ReadClusterVersion(NamedTuple):
    """After a lost answer (CL-Z6): sync, read `/muster/cluster/version`. Answered by `VersionRead`, however long
    it takes."""


class ReadPartitionStates(NamedTuple):
    """Sync; read the cluster's version, then all topics (`TopicsRead`, complete), then all states
    (`StatesRead`)."""


class IsrResult(NamedTuple):
    """For one item of IsrProposal: with NONE the state as it is now."""

    topic_id: bytes
    partition: int
    error: ErrorCode
    state: PartitionState | None = None


class AlterPartitionResult(NamedTuple):
    error: ErrorCode
    results: tuple[IsrResult, ...] = ()
    """In the order of the items."""


class ShutdownResult(NamedTuple):
    error: ErrorCode
    remaining: tuple[TopicPartition, ...] = ()
    """What the node still leads."""


class AdminResult(NamedTuple):
    """For what operators ask: one word for all, and one for each partition."""

    error: ErrorCode = ErrorCode.NONE
    results: Mapping[TopicPartition, ErrorCode] = {}


ResponseBody: TypeAlias = ClusterState | AlterPartitionResult | ShutdownResult | AdminResult


class Respond(NamedTuple):
    request: RequestId
    body: ResponseBody


class ProbeNode(NamedTuple):
    """Connect to the node's replication door, three times within 300 ms while it refuses, and say `Refused`."""

    node: int
    node_epoch: int


class ElectionKind(Enum):
    """How far an election kept what was committed; the ledger's words."""

    ISR = "isr"
    ELR = "elr"
    LAST_KNOWN = "last known"
    UNCLEAN = "unclean"
    OFFLINE = "offline"
    """Nobody leads."""


class ElectionNote(NamedTuple):
    """An election was written: for the ledger. decided_ms, took_ms: of the clock of `now_ms`; took_ms runs from what
    led to it until it was written."""

    unit: TopicPartition
    epoch: int
    before: int
    after: int
    clean: ElectionKind
    cause: str
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    decided_ms: int
    took_ms: int


class WarnOperator(NamedTuple):
    """Something that could not be applied, and was skipped (CL-C13)."""

    text: str


class AdminMarker(Enum):
    PREFERRED = "preferred_replica_election"
    UNCLEAN = "unclean_election"
    REASSIGN = "reassign_partitions"
    DELETE = "delete_topics"


class RemoveMarker(NamedTuple):
    """What an operator left in ZooKeeper was taken in. name: the topic, of DELETE."""

    marker: AdminMarker
    name: str = ""


class WakeControllerAt(NamedTuple):
    """`ControllerTick` is wanted at this moment at the latest. A later one replaces it."""

    at_ms: int


class ResignController(NamedTuple):
    """The term is over: another has written a higher epoch. All that waited has been answered."""


ControllerEffect: TypeAlias = (
    WriteMulti
    | ReadClusterVersion
    | ReadPartitionStates
    | Respond
    | ProbeNode
    | ElectionNote
    | WarnOperator
    | RemoveMarker
    | WakeControllerAt
    | ResignController
)
