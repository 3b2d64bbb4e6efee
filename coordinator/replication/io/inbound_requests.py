"""Answers the requests of other nodes: fetches and epochs by the replicas, the rest by the controller's side.

The half of the node that works with ZooKeeper and may be the controller appears here as `ControllerSide`; a node
that is not the controller has a desk that answers NOT_CONTROLLER (41).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from muster.coordinator.config import Address
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.handlers.transaction_batches import PartitionCodes
from muster.coordinator.replication.io.wire.node_api import (
    AbortRecord,
    AbortsQuery,
    AbortValues,
    ElectionEntry,
    EpochEnd,
    EpochQuery,
    GroupsWithSettings,
    LogEndsQuery,
    NodeName,
    PartitionLogEnd,
    PeerFetch,
    SecurityQuery,
    SecurityRecords,
    SecurityUpdate,
    SecurityUpdateResult,
    TransactionDesk,
)
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    ClusterImage,
    ClusterState,
    ImageVersion,
    TopicPartition,
    unit_of,
)
from muster.coordinator.replication.protocol.controller.events_and_effects import (
    AlterPartitionResult,
    IsrItem,
    OfflineReplica,
    ShutdownResult,
)
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas
from muster.coordinator.replication.protocol.replica_fetch import FetchAnswer
from muster.coordinator.transactions.events import PartitionAddition
from muster.storage.logs.producer_state import MarkerToWrite

# The desk that answers other nodes
# ---------------------------------

NoteElections: TypeAlias = Callable[[tuple[ElectionEntry, ...]], Awaitable[ErrorCode]]


class ControllerDesk(Protocol):
    """The controller's part of the desk (see `words.Desk`)."""

    async def alter_partition(self, node: NodeName, items: tuple[IsrItem, ...]) -> AlterPartitionResult: ...

    async def controlled_shutdown(self, node: NodeName) -> ShutdownResult: ...

    async def cluster_state(
        self, node: NodeName, known: ImageVersion, offline: tuple[OfflineReplica, ...], max_wait_ms: int
    ) -> ClusterState: ...


class SecurityDesk(Protocol):
    """See `words.Desk`."""

    async def read(self, asked: SecurityQuery) -> SecurityRecords: ...

    async def write(self, changed: SecurityUpdate) -> SecurityUpdateResult: ...


class NodeDesk:
    """See `words.Desk`."""

    def __init__(
        self,
        replicas: NodeReplicas,
        image: ClusterImage,
        controller: ControllerDesk,
        *,
        now_ms: Callable[[], int],
        happened: Callable[[], None],
        note: NoteElections | None = None,
    ) -> None:
        """note: puts records into the ledger of elections."""
        self.security: SecurityDesk | None = None
        """Who answers for `__security`, where it is asked who may do what."""
        self.groups: Callable[[], Awaitable[GroupsWithSettings]] | None = None
        """Who knows which groups that are coordinated here have settings, once any are."""
        self.transactions: TransactionDesk | None = None
        """This node's part in transactions, once it takes any."""
        self.let_go: Callable[[TopicPartition], None] = lambda unit: None
        """Hears of each answer by which this node says that it does not lead a unit any more."""
        self._note = note
        self._replicas = replicas
        self._image = image
        self._controller = controller
        self._now_ms = now_ms
        self._happened = happened

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._image.names.get(topic_id)

    def fetch(self, asked: PeerFetch) -> "asyncio.Future[FetchAnswer]":
        """Waits as long as there is nothing to tell. Who is no node of the cluster begins no session."""
        answer: asyncio.Future[FetchAnswer] = asyncio.get_running_loop().create_future()
        if asked.request.node not in self._image.nodes:
            answer.set_result(FetchAnswer(ErrorCode.STALE_BROKER_EPOCH))
            return answer

        def reply(told: FetchAnswer) -> None:
            if not answer.done():  # Its follower may be gone.
                answer.set_result(told)

        self._replicas.fetch(asked.request, reply, asked.max_wait_ms, self._now_ms(), min_bytes=asked.min_bytes)
        self._happened()
        return answer

    async def epochs(self, node: int, asked: tuple[EpochQuery, ...]) -> list[EpochEnd]:
        ends = [self._end(each) for each in asked]
        self._happened()
        return ends

    async def alter_partition(self, node: NodeName, items: tuple[IsrItem, ...]) -> AlterPartitionResult:
        return await self._controller.alter_partition(node, items)

    async def controlled_shutdown(self, node: NodeName) -> ShutdownResult:
        return await self._controller.controlled_shutdown(node)

    async def cluster_state(
        self, node: NodeName, known: ImageVersion, offline: tuple[OfflineReplica, ...], max_wait_ms: int
    ) -> ClusterState:
        return await self._controller.cluster_state(node, known, offline, max_wait_ms)

    async def note(self, records: tuple[ElectionEntry, ...]) -> ErrorCode:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if self._note is None else await self._note(records)

    async def read_security(self, asked: SecurityQuery) -> SecurityRecords:
        if self.security is None:
            return SecurityRecords(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return await self.security.read(asked)

    async def write_security(self, changed: SecurityUpdate) -> SecurityUpdateResult:
        if self.security is None:
            return SecurityUpdateResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return await self.security.write(changed)

    async def add_partitions(self, addition: PartitionAddition) -> PartitionCodes:
        if self.transactions is None:
            return dict.fromkeys(addition.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return await self.transactions.add_partitions(addition)

    async def write_marker(
        self, marker: MarkerToWrite, partitions: Sequence[tuple[str, int]], topic_ids: Mapping[str, bytes]
    ) -> PartitionCodes:
        if self.transactions is None:
            return dict.fromkeys(partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return await self.transactions.write_marker(marker, partitions, topic_ids)

    async def note_aborts(self, records: tuple[AbortRecord, ...]) -> ErrorCode:
        if self.transactions is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return await self.transactions.note_aborts(records)

    async def read_aborts(self, asked: AbortsQuery) -> AbortValues:
        if self.transactions is None:
            return AbortValues(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return await self.transactions.read_aborts(asked)

    async def groups_with_settings(self) -> GroupsWithSettings:
        if self.groups is None:
            return GroupsWithSettings(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return await self.groups()

    def log_ends(self, asked: LogEndsQuery) -> list[PartitionLogEnd]:
        """CL-L8: not the end of a log of which this leader may not know yet all that was committed before it led."""
        found = []
        for topic_id, number in asked.places:
            name = self._image.names.get(topic_id)
            led = None if name is None else self._replicas.led.get(TopicPartition(name, number))
            if led is None or led.topic_id != topic_id:
                continue
            offset = led.log.start if asked.earliest else led.leader.latest(led.half)
            if offset is not None:
                found.append(PartitionLogEnd(topic_id, number, offset))
        return found

    def _end(self, asked: EpochQuery) -> EpochEnd:
        """Who asks in a later epoch than that which is led here ends it (CL-L9), and is told so by its own epoch
        (CL-G5a): this node has let go."""
        place = TopicPartition(asked.topic, asked.partition)
        if self._image.partition(place) is None:
            return EpochEnd(*place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._replicas.shown(place, asked.leader_epoch)
        led = self._replicas.led.get(place)
        if led is None:
            leader_epoch = asked.leader_epoch if self._has_let_go(place, asked.leader_epoch) else NO_EPOCH
            if leader_epoch != NO_EPOCH:
                self.let_go(unit_of(place))
            return EpochEnd(*place, ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_epoch)
        if NO_EPOCH < asked.leader_epoch < led.leader.epoch:
            return EpochEnd(*place, ErrorCode.FENCED_LEADER_EPOCH)
        return EpochEnd(*place, ErrorCode.NONE, *led.log.end_for_epoch(asked.epoch))

    def _has_let_go(self, place: TopicPartition, epoch: int) -> bool:
        return epoch != NO_EPOCH and unit_of(place) not in self._replicas.leaders


# The controller's side, as this half of the node sees it
# -------------------------------------------------------


class CurrentController(NamedTuple):
    """Who holds `/controller`, as last seen, and where it is reached."""

    node: int
    address: Address


class ControllerSide(NamedTuple):
    """What the node's other half, the one at ZooKeeper, is to this one.

    controller: who it is, as last seen; None: nobody. node_epoch: of this node's registration, NO_EPOCH while it has
    none. register_anew: that one counts no more. broke: a node did not answer, and may be looked at (CL-C9). desk:
    answers what is asked of the controller. in_touch: whether ZooKeeper is; session_ms: how long its sessions are.
    heard: the controller has said how the cluster stands.
    """

    controller: Callable[[], CurrentController | None]
    node_epoch: Callable[[], int]
    register_anew: Callable[[], None]
    broke: Callable[[int], None]
    desk: ControllerDesk
    in_touch: Callable[[], bool] = lambda: True
    session_ms: int = 6_000
    heard: Callable[[], None] = lambda: None
