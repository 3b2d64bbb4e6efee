"""What the controller asks of its edge. Facts, no bytes: what they are in ZooKeeper and on the wire is the edge's."""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.controller.events import RequestId
from muster.coordinator.replication.protocol.facts import (
    ClusterTopic,
    PartitionState,
    ReplicaAssignment,
    TopicPartition,
)
from muster.coordinator.replication.protocol.image import ClusterState


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
    """The znode of a topic whose assignments change; `topic.version` is what it has to have."""

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
    (epoch, sequence), at cluster_version (NO_EPOCH: make it). Answered by `events.Written` or `WriteFailed`; until then
    there is no other.

    That the cluster's version is checked as well puts all writes of a reign into one order: one whose answer was lost,
    and which is done later than all thought, can only fail.
    """

    epoch: int
    epoch_version: int
    sequence: int
    cluster_version: int
    operations: tuple[WriteOperation, ...]


class ReadClusterVersion(NamedTuple):
    """After a lost answer (CL-Z6): sync, read `/muster/cluster/version`. Answered by `events.VersionRead`, however long
    it takes."""


class ReadPartitionStates(NamedTuple):
    """Sync; read the cluster's version, then all topics (`events.TopicsSeen`, complete), then all states
    (`events.StatesRead`)."""


class IsrResult(NamedTuple):
    """For one item of AlterIsr: with NONE the state as it is now."""

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
    """Connect to the node's replication door, three times within 300 ms while it refuses, and say `events.Refused`."""

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
    """`events.Tick` is wanted at this moment at the latest. A later one replaces it."""

    at_ms: int


class ResignController(NamedTuple):
    """The reign is over: another has written a higher epoch. All that waited has been answered."""


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
