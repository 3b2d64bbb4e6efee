"""Coordinates the transactional ids whose shards this node leads, and answers other nodes for them (TX-N1 to TX-N7).

As on a standalone node there is a second engine, made once `__transaction_state` is in the cluster's image; it serves
the shards whose partitions the node leads, as the groups' engine serves those of groups. Markers go to whoever leads
the partition: into a log of this node, to the groups' engine of this node, or to another node's door.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.core.model.types import Limits
from muster.coordinator.edge.background_tasks import RestartedTask, SupervisedTasks
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.dispatch import next_connection_number
from muster.coordinator.kafka.handlers.group_requests import GroupDriver
from muster.coordinator.kafka.handlers.transaction_batches import NodeMarker
from muster.coordinator.kafka.handlers.transaction_markers import STORAGE_FAILED, RequestedMarkers
from muster.coordinator.replication.io.replica_manager import ReplicaManager
from muster.coordinator.replication.io.replicated_log import ReplicatedLog
from muster.coordinator.replication.io.shards.replicated_shards import ReplicatedTransactionLog, WarmShards
from muster.coordinator.replication.io.shards.shard_coordination import ShardCoordination
from muster.coordinator.replication.io.wire.node_api import AbortRecord, AbortsQuery, AbortValues
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_NODE_ID,
    TRANSACTIONS,
    ImageChanges,
    TopicPartition,
)
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.leased import LeasedEngine
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.runtime.transaction_shards import LedTransactionCores, transaction_topic
from muster.coordinator.server.cluster_backend.cluster_aborts import ClusterAbortLog
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.transactions.marker_writer import MARKERS_PER_TURN, content_of
from muster.coordinator.server.transactions.transaction_coordinator import TransactionCoordinator, transaction_limits
from muster.coordinator.transactions.effects import SendMarkers
from muster.coordinator.transactions.events import MarkersWritten, PartitionAddition, TransactionRequest
from muster.coordinator.transactions.node_requests import NETWORK_EXCEPTION
from muster.coordinator.transactions.records import TopicPartition as Place
from muster.coordinator.zookeeper.errors import MalformedZnode, ZooKeeperError
from muster.storage.broker.broker import Broker
from muster.storage.broker.record_log import RecordLog
from muster.storage.broker.requests import LogRequests
from muster.storage.errors import StorageError, TopicAlreadyExists
from muster.storage.logs.producer_state import MarkerToWrite

log = structlog.get_logger("muster.transactions")

Reply = TypeVar("Reply")

AWAY: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
NOT_LED: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER

PATIENCE_S: Final = 0.5
"""How long a coordinator waits for a marker of a log of its own node to be committed, before it asks again (TX-C10)."""

DOOR_PATIENCE_S: Final = 0.05
"""The same of markers that other nodes send: what they send meanwhile waits for the answer (TX-N25)."""

MOST_UNDER_WAY: Final = 10_000
"""Markers whose outcome is kept for whoever asks again; of older ones, another is written."""

RETRY_S: Final = 0.1

ASKED_AGAIN_MS: Final = 2_000
"""Within this time a coordinator asks again for a marker that nobody could write (TX-C10), unless it is one no more."""

UNKNOWN_PARTITION: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

FOUND_BY_LOG: Final = frozenset({47, 52})
"""INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED: what the log has of the producer speaks against it."""


class OtherTransactionNodes(Protocol):
    """What other nodes are asked: see `RemoteTransactions`. A node that does not answer is told as an error."""

    async def ask_additions(self, node: int, addition: PartitionAddition) -> Mapping[Place, int]: ...

    async def write_markers(
        self, node: int, marker: NodeMarker, partitions: Sequence[Place]
    ) -> Mapping[Place, int]: ...

    def nodes_changed(self) -> None: ...


# Markers
# -------


class CommittedAppends:
    """Appends markers to the logs that this node leads. Awaited, a marker is committed, or the number says why it is
    not (TX-N5)."""

    def __init__(self, records: ReplicatedLog, side: ReplicaManager, clock_ms: Callable[[], int]) -> None:
        self._records = records
        self._side = side
        self._clock_ms = clock_ms
        self._grown: list[TopicPartition] = []

    def append(self, place: Place, marker: MarkerToWrite) -> Awaitable[int]:
        """See `AppendMarker`."""
        led, code = TopicPartition(*place), 0
        try:
            end = self._records.append_marker(*place, marker, self._clock_ms()).last_offset + 1
        except StorageError as error:
            if isinstance(error.__cause__, OSError):
                self._side.unwritable(led, str(error))
            if error.code not in FOUND_BY_LOG:
                raise
            # What a former leader's log says of a producer may be cut away yet.
            code, end = error.code, self._side.replicas.led[led].log.end
        if not self._grown:
            asyncio.get_running_loop().call_soon(self._tell_grown)
        self._grown.append(led)
        return self._committed(self._side.committing.wait(led, end), code)

    def _tell_grown(self) -> None:
        """Once for all markers of a turn."""
        grown, self._grown = self._grown, []
        self._side.grown(grown)

    async def _committed(self, committed: "asyncio.Future[ErrorCode]", code: int) -> int:
        return await committed or code


MarkerKey: TypeAlias = tuple[Place, bytes, MarkerToWrite]
"""A marker, its partition, and the id of the topic that is meant, if that is known."""


class LedMarkers:
    """Has markers written by this node for coordinators, and says so as soon as they are committed.

    A marker that takes longer stays *under way*: its coordinator hears REQUEST_TIMED_OUT and sends it again (TX-C10),
    which then asks for its outcome instead of writing a second one (TX-N25).
    """

    def __init__(self, log: RecordLog, markers: RequestedMarkers) -> None:
        self._log = log
        self._markers = markers
        self._under_way: dict[MarkerKey, asyncio.Future[int]] = {}
        """Those whose coordinator does not know their outcome yet, oldest first."""
        self._slow: set[Place] = set()
        """Where a marker has been under way for longer than somebody has waited for it."""

    async def write_marker(
        self,
        marker: MarkerToWrite,
        places: Sequence[Place],
        topic_ids: Mapping[str, bytes],
        patience_s: float = DOOR_PATIENCE_S,
    ) -> dict[Place, int]:
        """Kafka's number of each partition: 0 once the marker is committed; 7 where that takes longer than
        `patience_s`, or already takes longer for another marker there; 3 where a topic of another id has the name. At
        most MARKERS_PER_TURN at a time: they are appended at once."""
        known = self._log.topics()
        other = {name for name, meant in topic_ids.items() if name in known and known[name].id != meant}
        keys = {place: (place, topic_ids.get(place[0], b""), marker) for place in places if place[0] not in other}
        asked = {place: self._begin(key) for place, key in keys.items()}
        refused = dict.fromkeys((place for place in places if place[0] in other), UNKNOWN_PARTITION)
        awaited = [each for place, each in asked.items() if place not in self._slow]
        if awaited:
            await asyncio.wait(awaited, timeout=patience_s)
        return refused | {place: self._take(keys[place], each) for place, each in asked.items()}

    def _begin(self, key: MarkerKey) -> "asyncio.Future[int]":
        place, _, marker = key
        under_way = self._under_way.get(key)
        if under_way is None:
            if len(self._under_way) >= MOST_UNDER_WAY:
                del self._under_way[next(iter(self._under_way))]
            under_way = self._under_way[key] = self._markers.begin(place, marker)
            under_way.add_done_callback(lambda _: self._slow.discard(place))
        return under_way

    def _take(self, key: MarkerKey, ended: "asyncio.Future[int]") -> int:
        if not ended.done():
            self._slow.add(key[0])
            return ErrorCode.REQUEST_TIMED_OUT
        if self._under_way.get(key) is ended:
            del self._under_way[key]
        return STORAGE_FAILED if ended.cancelled() or ended.exception() is not None else ended.result()


class SpreadMarkers:
    """Has each marker written by whoever leads its partition. Of partitions that nobody leads it is told so."""

    def __init__(
        self,
        side: ReplicaManager,
        here: LedMarkers,
        others: OtherTransactionNodes,
        report: Callable[[MarkersWritten], None],
        clock_ms: Callable[[], int],
    ) -> None:
        self._side = side
        self._here = here
        self._others = others
        self._report = report
        self._writing = SupervisedTasks()
        self._clock_ms = clock_ms
        self._leaderless: dict[tuple[str, Place], int] = {}
        """By transactional id and partition: when its marker was to be written last and nobody led; oldest first."""

    def start(self) -> None:
        """There is nothing to begin."""

    def without_leader(self) -> int:
        """Markers that wait until somebody leads their partition."""
        since_ms = self._clock_ms() - ASKED_AGAIN_MS
        while self._leaderless and (oldest := next(iter(self._leaderless.items())))[1] < since_ms:
            del self._leaderless[oldest[0]]
        return len(self._leaderless)

    async def stop(self) -> None:
        """What is not written yet is asked for again by whoever coordinates next."""
        await self._writing.close()

    def write(self, asked: SendMarkers) -> None:
        """Have these markers written: MARKERS_PER_TURN of them to begin with, and as many with each turn of the loop.
        Each portion is reported by itself."""
        self._begin_portion(asked, 0)

    def _begin_portion(self, asked: SendMarkers, first: int) -> None:
        behind = first + MARKERS_PER_TURN
        for node, places in self._by_leader(asked.partitions[first:behind]).items():
            self._writing.start(self._write_at(node, asked, places), "transaction markers")
        if behind < len(asked.partitions):
            asyncio.get_running_loop().call_soon(self._begin_portion, asked, behind)

    def _by_leader(self, places: Iterable[Place]) -> dict[int, list[Place]]:
        found: dict[int, list[Place]] = {}
        for place in places:
            leader, _ = self._side.replicas.leader_of(TopicPartition(*place))
            found.setdefault(leader, []).append(place)
        return found

    def _note_leader(self, node: int, transactional_id: str, places: Sequence[Place]) -> None:
        for place in places:
            self._leaderless.pop((transactional_id, place), None)
        if node == NO_NODE_ID:
            now_ms = self._clock_ms()
            self._leaderless |= {(transactional_id, place): now_ms for place in places if self._exists(place)}
        self.without_leader()  # what is old is forgotten whether or not anybody wants to know

    def _exists(self, place: Place) -> bool:
        """A topic that was deleted may be there again with fewer partitions."""
        return self._side.image.partition(TopicPartition(*place)) is not None

    async def _write_at(self, node: int, asked: SendMarkers, places: Sequence[Place]) -> None:
        self._note_leader(node, asked.transactional_id, places)
        marker, known = content_of(asked), asked.topic_ids
        topic_ids = {name: known[name] for name, _ in places if name in known}
        results: Mapping[Place, int] = {}
        try:
            if node == self._side.replicas.me:
                results = await self._here.write_marker(marker, places, topic_ids, PATIENCE_S)
            elif node != NO_NODE_ID:
                results = await self._others.write_markers(node, NodeMarker(marker, tuple(topic_ids.items())), places)
        finally:
            gone = frozenset(place for place in places if not self._exists(place))
            told = {place: 3 if place in gone else results.get(place, NOT_LED) for place in places}
            self._report(MarkersWritten(asked.transactional_id, asked.life, asked.number, told, gone))


# The coordinator
# ---------------


class ClusterTransactionCoordinator(TransactionCoordinator):
    """See `TransactionCoordinator`. It is also what the node's door asks on behalf of other nodes
    (`TransactionDesk`)."""

    alone = False

    def __init__(
        self,
        settings: Settings,
        disk: Broker,
        records: ReplicatedLog,
        requests: Callable[[], LogRequests],
        groups: GroupDriver,
        clock: NodeClock,
        fail: Callable[[BaseException], None],
        *,
        side: ReplicaManager,
        coordinating: ShardCoordination,
        others: OtherTransactionNodes,
        abort_log: ClusterAbortLog,
        read_count: Callable[[], Awaitable[int]],
    ) -> None:
        """records: the log of the cluster, of which this node leads a part. coordinating: of the shards of
        `__transaction_state`. abort_log: closed with this. read_count: how many of these ZooKeeper has; 0 for none."""
        self._abort_log = abort_log
        self._disk = disk
        self._side = side
        self._coordinating = coordinating
        self._others = others
        self._read_count = read_count
        self._count = 0
        self._records = records
        # It answers in the same terms as a node's own log does.
        super().__init__(settings, cast(Broker, records), requests, groups, clock, next_connection_number, fail)
        self._cores = LedTransactionCores(transaction_limits(settings), next_connection_number, coordinating.epoch)
        self._opening = RestartedTask("transactional ids of the cluster", self._open_when_made, returns=True)
        self._made = asyncio.Event()
        side.on_learned(self._learned)

    @property
    def shards(self) -> int:
        return self._count or super().shards

    async def open(self, conditions: Conditions) -> None:
        """Serve what this node leads as soon as there is a log of transactional ids."""
        self._conditions = conditions
        self._learned()
        self._opening.start()

    async def ask_every_shard(self, make: Callable[[int], TransactionRequest], wanted: type[Reply]) -> dict[int, Reply]:
        """The replies of the shards that this node leads: tools ask every node."""
        driver = self._driver
        if driver is None:
            return {}
        led = [shard for shard in range(self.shards) if self._coordinating.leads(shard)]
        questions: list[Any] = [(shard, make(driver.next_id())) for shard in led]
        return dict(zip(led, await driver.ask_all(questions, wanted), strict=True))

    async def draw_producer_id(self) -> int:
        """Of a block that no other node has. Raises StorageError."""
        return self._broker.next_producer_id()[0]

    async def ask_additions(self, addition: PartitionAddition) -> Mapping[Place, int]:
        leader = NO_NODE_ID
        if self._driver is not None:
            shard = self.shard_of(addition.transactional_id)
            if self._coordinating.leads(shard):
                return await self.add_partitions(addition)
            leader, _ = self._side.replicas.leader_of(TopicPartition(TRANSACTIONS, shard))
        if leader in (NO_NODE_ID, self._side.replicas.me):
            return dict.fromkeys(addition.partitions, AWAY)
        answer = await self._others.ask_additions(leader, addition)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return {place: loading if code == NETWORK_EXCEPTION else code for place, code in answer.items()}

    # -- what other nodes ask: see `TransactionDesk` ----------------------------------------------------------

    async def add_partitions(self, addition: PartitionAddition) -> Mapping[Place, int]:
        """Where a partition is not known here yet nothing is added: the marker of one that is unknown at the end counts
        as written (TX-N3)."""
        topics = self._side.image.topics
        if any(place[0] not in topics for place in addition.partitions):
            return dict.fromkeys(addition.partitions, AWAY)
        if self._driver is None:
            return dict.fromkeys(addition.partitions, ErrorCode.NOT_COORDINATOR)
        return await super().ask_additions(addition)

    async def write_marker(
        self, marker: MarkerToWrite, partitions: Sequence[Place], topic_ids: Mapping[str, bytes]
    ) -> Mapping[Place, int]:
        return await self._here.write_marker(marker, partitions, topic_ids)

    async def note_aborts(self, records: tuple[AbortRecord, ...]) -> ErrorCode:
        return await self._abort_log.append(records)

    async def read_aborts(self, asked: AbortsQuery) -> AbortValues:
        return await self._abort_log.read(asked)

    # -- the engine -------------------------------------------------------------------------------------------

    def _make_abort_log(self) -> ClusterAbortLog:
        return self._abort_log

    def _make_markers(self) -> SpreadMarkers:
        appends = CommittedAppends(self._records, self._side, self._clock.now_ms)
        self._here = LedMarkers(self._records, RequestedMarkers(self._records, appends.append, self._end_positions))
        return SpreadMarkers(self._side, self._here, self._others, self._markers_written, self._clock.now_ms)

    async def _ensure_topic(self) -> bool:
        made = TRANSACTIONS not in self._side.image.topics
        if made:
            await self._make_topic()
        try:
            self._count = await self._read_count()
        except (ZooKeeperError, MalformedZnode) as error:
            raise CoordinatorError(
                AWAY, f"the number of partitions of {TRANSACTIONS} cannot be read from ZooKeeper: {error}"
            ) from error
        if not self._count:
            raise CoordinatorError(AWAY, f"{TRANSACTIONS} is being made; ask again")
        return made

    async def _make_topic(self) -> None:
        """As any node makes topics of the cluster (CL-A1): one is the first."""
        settings = self._settings
        wanted = transaction_topic(self.shards, settings.transaction_state_log_segment_bytes)
        factor, least = settings.transaction_state_log_replication_factor, settings.transaction_state_log_min_isr
        configs = {**wanted.configs, "min.insync.replicas": str(least), "unclean.leader.election.enable": "false"}
        (made,) = await self._requests().topics.create([wanted._replace(configs=configs, replication_factor=factor)])
        if isinstance(made, StorageError) and not isinstance(made, TopicAlreadyExists):
            log.warning("the log of transactional ids cannot be made", why=str(made))
            raise CoordinatorError(AWAY, f"the log of transactional ids cannot be made: {made}")

    def _make_engine(self) -> Engine:
        engine = LeasedEngine(
            ReplicatedTransactionLog(self._disk, self._side),
            self.shards,
            Limits(),
            self._cores,
            self._engine_options(),
            authority=self._coordinating,
            commit_timeout_ms=self._settings.offsets_commit_timeout_ms,
        )
        engine.submit_all(self._topics_now(()))
        return engine

    async def _begin_shards(self, engine: Engine, driver: EngineDriver, *, made: bool) -> None:
        """Which ids hang is told by tools: in a cluster no addition and its data are flushed together (TX-N6)."""
        assert isinstance(engine, LeasedEngine), "it was made by `_make_engine`"
        warming = None
        if self._settings.offsets_warm_replicas:
            followed = ReplicatedTransactionLog(self._disk, self._side)
            warming = WarmShards(
                followed, self.shards, engine.new_core, lambda: self._side.replicas.copies, TRANSACTIONS
            )
        self._coordinating.start(engine, driver, self._clock.now_ms, warming)

    async def close(self, timeout_s: float) -> None:
        """Raises TimeoutError."""
        await self._opening.stop()
        await self._coordinating.stop()
        try:
            await super().close(timeout_s)
        finally:
            self._abort_log.close()

    # -- the image --------------------------------------------------------------------------------------------

    def _learned(self, changes: ImageChanges | None = None) -> None:
        self._others.nodes_changed()
        if TRANSACTIONS in self._side.image.topics:
            self._made.set()

    async def _open_when_made(self) -> None:
        """Whoever led before the node knew of the topic is served as soon as it does, whoever asked for the topic."""
        await self._made.wait()
        while True:
            try:
                await self._begin()
            except CoordinatorError as error:
                log.debug("transactional ids are not coordinated yet", why=error.message)
                await asyncio.sleep(RETRY_S)
            else:
                return
