"""A door between nodes on loopback, with a desk that a test holds in its hands, and links to it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from muster.coordinator.config import Address
from muster.coordinator.edge.listener_base import ListenerTls
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.connections.listener import ListenerLimits
from muster.coordinator.kafka.handlers.transaction_batches import PartitionCodes
from muster.coordinator.replication.io.wire.node_api import (
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
)
from muster.coordinator.replication.io.wire.node_links import LinkCaller, LinkError, NodeLink
from muster.coordinator.replication.io.wire.node_listener import LIMITS, NodeListener, PeerIdentity
from muster.coordinator.replication.io.wire.node_proof import NodeProofs
from muster.coordinator.replication.protocol.cluster_metadata import ClusterState, ImageVersion, TopicPartition
from muster.coordinator.replication.protocol.controller.events_and_effects import (
    AlterPartitionResult,
    IsrItem,
    OfflineReplica,
    ShutdownResult,
)
from muster.coordinator.replication.protocol.replica_fetch import FetchAnswer, FetchItem, FetchRequest
from muster.coordinator.transactions.events import PartitionAddition
from muster.storage.logs.producer_state import MarkerToWrite
from tests.support.pace import pace

CLUSTER = "c9vPX0gkTYG0pVvlwLZ_sQ"
TOPIC, OTHER, STRANGE = b"t" * 16, b"o" * 16, b"s" * 16
NAMES = {TOPIC: "orders", OTHER: "others"}
"""Nobody knows the third."""
ORDERS = TopicPartition("orders", 0)
PATIENCE_S = 30.0


class HeldDesk:
    """Notes what is asked, and answers what a test put into `answers`, or when it says so (`held`)."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.gone: list[str] = []
        self.topic_ids: list[dict[str, bytes]] = []
        """What each marker that was asked for means."""
        self.held: asyncio.Event | None = None
        self.found: Callable[[PeerFetch], FetchAnswer] = lambda asked: FetchAnswer()
        self.answers: dict[str, Any] = {}
        self._changed = asyncio.Event()

    def topic_name(self, topic_id: bytes) -> str | None:
        return NAMES.get(topic_id)

    async def fetch(self, asked: PeerFetch) -> FetchAnswer:
        await self._wait("fetch", asked)
        return self.found(asked)

    async def epochs(self, node: int, asked: tuple[EpochQuery, ...]) -> list[EpochEnd]:
        await self._wait("epochs", node, asked)
        return list(self.answers.get("epochs", []))

    async def alter_partition(self, node: NodeName, items: tuple[IsrItem, ...]) -> AlterPartitionResult:
        await self._wait("alter_partition", node, items)
        answer: AlterPartitionResult = self.answers["alter_partition"]
        return answer

    async def controlled_shutdown(self, node: NodeName) -> ShutdownResult:
        await self._wait("controlled_shutdown", node)
        answer: ShutdownResult = self.answers["controlled_shutdown"]
        return answer

    async def cluster_state(
        self, node: NodeName, known: ImageVersion, offline: tuple[OfflineReplica, ...], max_wait_ms: int
    ) -> ClusterState:
        await self._wait("cluster_state", node, known, offline, max_wait_ms)
        answer: ClusterState = self.answers.get("cluster_state", ClusterState())
        return answer

    async def note(self, records: tuple[ElectionEntry, ...]) -> ErrorCode:
        await self._wait("note", records)
        return ErrorCode(self.answers.get("note", 0))

    async def read_security(self, asked: SecurityQuery) -> SecurityRecords:
        await self._wait("read_security", asked)
        read: SecurityRecords = self.answers.get("read_security", SecurityRecords())
        return read

    async def write_security(self, changed: SecurityUpdate) -> SecurityUpdateResult:
        await self._wait("write_security", changed)
        written: SecurityUpdateResult = self.answers.get("write_security", SecurityUpdateResult(ErrorCode.NONE))
        return written

    async def groups_with_settings(self) -> GroupsWithSettings:
        await self._wait("groups_with_settings")
        told: GroupsWithSettings = self.answers.get("groups_with_settings", GroupsWithSettings())
        return told

    async def add_partitions(self, addition: PartitionAddition) -> PartitionCodes:
        await self._wait("add_partitions", addition)
        codes: PartitionCodes = self.answers.get("add_partitions", {})
        return {place: codes.get(place, 0) for place in addition.partitions}

    async def write_marker(
        self, marker: MarkerToWrite, partitions: Sequence[tuple[str, int]], topic_ids: Mapping[str, bytes]
    ) -> PartitionCodes:
        self.topic_ids.append(dict(topic_ids))
        await self._wait("write_marker", marker, tuple(partitions))
        codes: PartitionCodes = self.answers.get("write_marker", {})
        return {place: codes.get(place, 0) for place in partitions}

    def log_ends(self, asked: LogEndsQuery) -> list[PartitionLogEnd]:
        self.asked.append(("log_ends", asked))
        found: list[PartitionLogEnd] = self.answers.get("log_ends", [])
        return found

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S * pace()):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def _wait(self, name: str, *asked: Any) -> None:
        self.asked.append((name, *asked))
        self._changed.set()
        if self.held is None:
            return
        try:
            await self.held.wait()
        except asyncio.CancelledError:
            self.gone.append(name)
            self._changed.set()
            raise


@asynccontextmanager
async def serving(
    desk: HeldDesk,
    *,
    limits: ListenerLimits = LIMITS,
    tls: ListenerTls | None = None,
    may: PeerIdentity | None = None,
    proofs: NodeProofs | None = None,
) -> AsyncIterator[NodeListener]:
    door = NodeListener(Address("127.0.0.1", 0), limits)
    door.bind()
    await door.start(desk, CLUSTER, tls=tls, may=may, proofs=proofs)
    try:
        yield door
    finally:
        await door.close(0.1)


async def linked(
    door: NodeListener, node: int = 2, cluster_id: str = CLUSTER, proofs: NodeProofs | None = None, **more: Any
) -> NodeLink:
    me = LinkCaller(cluster_id, node, proofs)
    return await NodeLink.connect(door.bound, me, timeout_s=PATIENCE_S * pace(), **more)


def whole(*places: TopicPartition, offset: int = 0) -> FetchRequest:
    """A request of node 2 that begins a session."""
    ids = {name: topic_id for topic_id, name in NAMES.items()}
    items = tuple(FetchItem(place, ids[place.topic], 3, offset, 2, 1) for place in places or (ORDERS,))
    return FetchRequest(2, 77, 0, 0, items)


async def fetch_of(
    link: NodeLink, fetch: FetchRequest, names: Callable[[bytes], str | None] = NAMES.get
) -> FetchAnswer:
    """What is told of it, or raised."""
    came: asyncio.Future[FetchAnswer] = asyncio.get_running_loop().create_future()

    def told(answer: FetchAnswer | LinkError) -> None:
        if isinstance(answer, LinkError):
            came.set_exception(answer)
        else:
            came.set_result(answer)

    link.fetch_then(fetch, names, told, max_wait_ms=500, min_bytes=1, deadline_s=PATIENCE_S * pace())
    return await came
