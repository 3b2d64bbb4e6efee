"""The backend of a standalone node: a data directory, and a registration in ZooKeeper if it has one.

The directory is locked before ZooKeeper hears of the node, and a new one is made only after ZooKeeper has named the
cluster.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from muster.coordinator.config import Settings
from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.kafka.dispatch import next_connection_number
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.handlers.transactions import TransactionGate
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.backend.assignor_inputs import LogSpanOf, span_of_log
from muster.coordinator.server.backend.fencing import make_fencing_service
from muster.coordinator.server.backend.node_backend import BackendContext, MakeGroups, NodeBackend, RunningEngine
from muster.coordinator.server.backend.node_services import StagingHandlers, Stoppable
from muster.coordinator.server.backend.upkeep import NodeUpkeep
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.listeners.kafka_listener import KafkaListenerContext, NodeKafkaListener
from muster.coordinator.server.rpc_dispatch import ServiceMethod
from muster.coordinator.server.services.group_coordinator import GroupCoordinator, GroupServiceContext
from muster.coordinator.server.services.zookeeper_registration import (
    ZooKeeperRegistration,
    build_registration,
)
from muster.coordinator.server.transactions.transaction_coordinator import TransactionCoordinator
from muster.coordinator.server.transactions.transaction_rpcs import make_transaction_rpcs
from muster.coordinator.server.transactions.transactional_requests import RpcGroupTransactions, RpcRecordTransactions
from muster.coordinator.zookeeper.group_observer import ReportGroup
from muster.coordinator.zookeeper.layout import PLAINTEXT, BrokerZnode
from muster.coordinator.zookeeper.published_topics import OwnTopic
from muster.storage.broker.broker import Broker
from muster.storage.broker.record_log import StagedLog
from muster.storage.broker.requests import LogRequests, NewTopic, TopicChanges
from muster.storage.errors import StorageError
from muster.storage.files import RealFiles
from muster.storage.service.broker_service import BrokerService
from muster.storage.service.staging_service import StagingService
from muster.storage.staging.staging import Staging
from muster.storage.topics.catalog import format_id
from muster.storage.topics.data_dir import is_fresh, known_cluster_id

if TYPE_CHECKING:
    from muster.coordinator.observability.metrics.instruments import TransactionFigures
    from muster.coordinator.server.listeners.proxy_listener import NodeProxyListener
    from muster.coordinator.server.security.node_security import NodeSecurity


LAST_WORDS_S = 2.0
"""How long the end of a node waits for a flush of what was decided of transactions."""


class DataDirectory:
    """A node's data directory: `open`ed, then `disk`, then `close`d."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._disk: Broker | None = None

    @property
    def disk(self) -> Broker:
        assert self._disk is not None, "`open` comes first"
        return self._disk

    async def open(self, agree: Callable[[], Awaitable[str | None]]) -> None:
        """Lock the directory and open what lies there. agree: returns the cluster's id for a new directory; a directory
        that is known to be this node's is locked before that is asked."""
        fresh = is_fresh(RealFiles(), str(self._settings.data_dir))
        if not fresh:
            await asyncio.to_thread(self._open, None)
        cluster_id = await agree()
        if fresh:
            await asyncio.to_thread(self._open, cluster_id)

    def cluster_ids(self) -> tuple[str | None, str]:
        """The cluster's id by the directory, None for a new one, and an id for a cluster that has none."""
        return known_cluster_id(RealFiles(), str(self._settings.data_dir)), format_id(os.urandom(16))

    async def note_authorizer(self) -> None:
        """Older versions may open the directory of a node that asks nobody who they are, once nothing refuses that."""
        await asyncio.to_thread(self.disk.set_guarded, self._settings.authorizer != "none")

    def copies(self) -> list[str]:
        """Topics of a cluster of which there are copies; asked while `open` agrees on the cluster's id."""
        held = {} if self._disk is None else self._disk.held_topics()
        return [name for name, topic in held.items() if topic.held is not None]

    async def close(self) -> None:
        if self._disk is not None:
            await asyncio.to_thread(self._disk.close)

    def _open(self, cluster_id: str | None) -> None:
        settings = self._settings
        self._disk = Broker(settings.data_dir, settings, node_id=settings.node_id, cluster_id=cluster_id)
        if settings.authorizer != "none":  # before anything is written that only it may read
            self._disk.set_guarded(True)


class LogTopics:
    """The topics of a node's log, for `PublishedTopics`. changes: asked once the node serves."""

    def __init__(self, disk: Callable[[], Broker], changes: Callable[[], TopicChanges]) -> None:
        self._disk = disk
        self._changes = changes

    def topics(self) -> Mapping[str, OwnTopic]:
        return {
            name: OwnTopic(topic.partitions, format_id(topic.id), topic.configs)
            for name, topic in self._disk().topics().items()
            if not topic.internal
        }

    async def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> str:
        return explain_refusal(await self._changes().create([NewTopic(name, partitions, configs)]))

    async def grow(self, name: str, partitions: int) -> str:
        return explain_refusal(await self._changes().grow([(name, partitions)]))

    async def configure(self, name: str, configs: Mapping[str, str]) -> str:
        def changes() -> Mapping[str, str | None]:
            before = self._disk().topic(name).configs
            gone: dict[str, str | None] = dict.fromkeys(before.keys() - configs.keys())
            return gone | {key: value for key, value in configs.items() if before.get(key) != value}

        return explain_refusal(await self._changes().change([(name, changes)]))

    async def delete(self, name: str) -> str:
        topic = self._disk().topics().get(name)
        return "" if topic is None else explain_refusal(await self._changes().delete([topic]))


def explain_refusal(results: Sequence[object]) -> str:
    """What the one result says against it."""
    (result,) = results
    return str(result) if isinstance(result, StorageError) else ""


class DirectoryBackend:
    """What the backends of a data directory share."""

    engine_figures = measured = None
    _transactions: TransactionCoordinator | None = None
    _flushed_together = True
    """Whether a transaction's first records and the addition of their partition may be flushed at the same time."""

    def __init__(self, context: BackendContext) -> None:
        self._settings = context.settings
        self._certificates = context.certificates
        self._clock = context.clock
        self._doors = context.doors
        self._directory = DataDirectory(context.settings)
        self._groups: EngineDriver | None = None

    @property
    def disk(self) -> Broker:
        return self._directory.disk

    @property
    def requests(self) -> LogRequests:
        raise NotImplementedError

    @property
    def _log(self) -> StagedLog:
        """What listeners and services write to, once the node has joined."""
        raise NotImplementedError

    @property
    def log_span(self) -> LogSpanOf:
        return partial(span_of_log, self._log)

    def add_topic_news(self, change: TopicsChanged) -> TopicsChanged:
        return change

    def staging(self) -> StagingHandlers:
        return StagingService(Staging(self._log), self.requests.commit)

    def fences(self, driver: EngineDriver, engine: Engine) -> dict[str, ServiceMethod]:
        return make_fencing_service(driver, engine, self._log, self.requests)

    # -- transactions -------------------------------------------------------------------------------------------------

    @cached_property
    def _gate(self) -> TransactionGate | None:
        """Of the first records of transactions; the Kafka listener makes its own, for a gate keeps nothing."""
        if self._transactions is None:
            return None
        verifies = self._settings.transaction_partition_verification_enable
        return TransactionGate(self._log, self._transactions, verifies=verifies, together=self._flushed_together)

    def _with_transactions(self, context: GroupServiceContext) -> GroupServiceContext:
        """The context, with what the groups' service asks of transactional ids where this node coordinates any."""
        if self._transactions is None or self._gate is None:
            return context
        groups = GroupRequests(context.driver, context.shards)
        return replace(context, transactions=RpcGroupTransactions(self._transactions, groups, self._gate))

    def _record_transactions(self) -> RpcRecordTransactions | None:
        """The same of the records' service."""
        if self._gate is None or self._groups is None:
            return None
        return RpcRecordTransactions(
            self._gate, self.requests, self._groups, max_timeout_ms=self._settings.transaction_max_timeout_ms
        )

    def transaction_figures(self) -> "TransactionFigures | None":
        return None if self._transactions is None else self._transactions.figures()

    async def resume_transactions(self, conditions: Conditions) -> None:
        """Raises PartitionCountConflict."""
        if self._transactions is not None:
            await self._transactions.open(conditions)

    def transactions(self) -> dict[str, ServiceMethod]:
        history = None if self._transactions is None else self._transactions.history
        return make_transaction_rpcs(self._transactions, history, node_id=self._settings.node_id)

    async def _end_transactions(self) -> None:
        if self._transactions is not None:
            with suppress(TimeoutError):
                await self._transactions.close(LAST_WORDS_S)


class StandaloneBackend(DirectoryBackend):
    """A data directory, and a registration in ZooKeeper if the node has one."""

    _group_log: BrokerGroupLog
    cluster = figures = None

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self.zookeeper: ZooKeeperRegistration | None = None

    @property
    def record_log(self) -> Broker:
        return self._directory.disk

    @property
    def _log(self) -> Broker:
        return self._directory.disk

    @cached_property
    def requests(self) -> LogRequests:
        return LogRequests.standalone(self.disk)

    async def open(self, seen: ReportGroup) -> None:
        await self._directory.open(partial(self._meet, seen))

    async def _meet(self, seen: ReportGroup) -> str | None:
        """The cluster's id, agreed on before a data directory is made for it; None where there is nobody to ask."""
        if not self._settings.zookeeper_connect:
            return None
        own, fresh = self._directory.cluster_ids()
        self.zookeeper = side = await ZooKeeperRegistration.open(
            self._settings,
            self._clock,
            self._registration,
            LogTopics(lambda: self.disk, lambda: self.requests.topics),
            seen,
        )
        return await side.cluster_id(own, fresh)

    def _registration(self) -> BrokerZnode:
        listener = self._settings.kafka_listener
        doors, protocol = self._doors(), PLAINTEXT if listener is None else listener.protocol
        return build_registration(doors.grpc, doors.kafka, self._clock.now_ms(), protocol)

    async def rights_store(self) -> None:
        """It is in a log of this node."""

    async def join(self, security: "NodeSecurity | None", make_groups: MakeGroups) -> None:
        """The groups are known before the node is. Raises PartitionCountConflict."""
        settings = self._settings
        await self._directory.note_authorizer()
        count, size = settings.offsets_topic_num_partitions, settings.offsets_topic_segment_bytes
        log = self._group_log = await asyncio.to_thread(BrokerGroupLog, self.disk, count, size)
        make_groups(lambda limits, make_shard, options: Engine(log, count, limits, make_shard, options), load=True)
        if self.zookeeper is not None:
            await self.zookeeper.register()

    # -- services -----------------------------------------------------------------------------------------------------

    def coordinate(self, running: RunningEngine) -> None:
        """All shards are this node's already."""
        self._groups = driver = running.driver
        self._transactions = TransactionCoordinator(
            self._settings, self.disk, lambda: self.requests, driver, self._clock, next_connection_number, running.fail
        )

    def group_service(self, context: GroupServiceContext) -> GroupCoordinator:
        return GroupCoordinator(self._with_transactions(context))

    def record_service(self, advertised: Callable[[], tuple[str, int]], room: Callable[[Any], int]) -> BrokerService:
        return BrokerService(
            self.requests,
            node_id=self._settings.node_id,
            advertised=advertised,
            room=room,
            transactions=self._record_transactions(),
        )

    def table(self) -> dict[str, ServiceMethod]:
        return {}

    async def serve_kafka(self, door: "NodeKafkaListener | NodeProxyListener", context: KafkaListenerContext) -> None:
        zookeeper = self.zookeeper
        await cast(NodeKafkaListener, door).start(
            context,
            self.requests,
            shards=self._settings.offsets_topic_num_partitions,
            observed=zookeeper.groups if zookeeper is not None else None,
            elsewhere=zookeeper.has_elsewhere if zookeeper is not None else lambda topic: False,
            transactions=self._transactions,
        )

    def upkeep(self, conditions: Conditions, engine: Engine, fail: Callable[[BaseException], None]) -> Stoppable:
        settings, certificates = self._settings, self._certificates
        return NodeUpkeep(settings, self._clock, conditions, self.disk, self._group_log, engine, fail, certificates)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def hand_over(self) -> None:
        await self.leave()

    async def leave(self) -> None:
        zookeeper, self.zookeeper = self.zookeeper, None
        if zookeeper is not None:
            await zookeeper.close()

    async def close(self) -> None:
        await self._end_transactions()
        await self._directory.close()


if TYPE_CHECKING:
    _CONFORMS: type[NodeBackend] = StandaloneBackend
