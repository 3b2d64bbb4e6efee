"""The backend of a node of a cluster: a data directory with this node's copies, and the part it has in the cluster."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from muster.coordinator.config import Settings
from muster.coordinator.edge.cluster_view import ClientAddresses, ClusterView
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.handlers.transactions import TransactionGate
from muster.coordinator.replication.io.replicated_log import ReplicatedLog
from muster.coordinator.replication.io.replicated_requests import ReplicatedRequests
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.backend import node_services
from muster.coordinator.server.backend.assignor_inputs import LogSpanOf, span_of_log
from muster.coordinator.server.backend.fencing import make_fencing_service
from muster.coordinator.server.backend.node_backend import MakeGroups, NodeBackend
from muster.coordinator.server.backend.node_services import StagingHandlers, Stoppable
from muster.coordinator.server.backend.standalone_backend import DirectoryBackend
from muster.coordinator.server.backend.upkeep import NodeUpkeep
from muster.coordinator.server.cluster_backend.cluster_backend import ClusterBackend
from muster.coordinator.server.cluster_backend.cluster_description import ClusterConditions, ClusterMetricsSource
from muster.coordinator.server.cluster_backend.cluster_transactions import ClusterTransactionCoordinator
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.listeners.kafka_listener import KafkaListenerContext, NodeKafkaListener
from muster.coordinator.server.rpc_dispatch import ServiceMethod
from muster.coordinator.server.services.group_coordinator import GroupCoordinator, GroupServiceContext
from muster.coordinator.server.transactions.transactional_requests import RpcGroupTransactions, RpcRecordTransactions
from muster.coordinator.zookeeper.group_observer import ReportGroup
from muster.storage.broker.record_log import RecordLog
from muster.storage.service.broker_service import BrokerService
from muster.storage.service.staging_service import StagingService
from muster.storage.staging.staging import Staging

if TYPE_CHECKING:
    from muster.coordinator.server.listeners.proxy_listener import NodeProxyListener
    from muster.coordinator.server.security.listener_certificates import NodeCertificates
    from muster.coordinator.server.security.node_security import NodeSecurity
    from muster.coordinator.server.security.security_store import SecurityStore
    from muster.coordinator.server.services.member_session import ServerSessions


class ReplicatedBackend(DirectoryBackend):
    """A data directory with this node's copies, and its part in the cluster. Raises AddressTaken."""

    _transactions: ClusterTransactionCoordinator | None = None

    def __init__(
        self,
        settings: Settings,
        clock: NodeClock,
        certificates: "NodeCertificates | None",
        doors: Callable[[], ClientAddresses],
    ) -> None:
        super().__init__(settings, clock, certificates, doors)
        self._security: NodeSecurity | None = None
        self._joined = False
        self._part = ClusterBackend(settings, certificates)
        self._part.bind()
        self.zookeeper: ClusterBackend | None = self._part

    @property
    def record_log(self) -> RecordLog:
        return self._part.broker if self._joined else self._directory.disk

    @property
    def requests(self) -> ReplicatedRequests:
        return self._part.requests

    @property
    def cluster(self) -> ClusterView:
        return self._part.view

    @property
    def figures(self) -> ClusterMetricsSource:
        return self._part.figures

    async def open(self, seen: ReportGroup) -> None:
        await self._directory.open(partial(self._meet, seen))

    async def _meet(self, seen: ReportGroup) -> str:
        own, fresh = self._directory.cluster_ids()
        return await self._part.meet(own, fresh, seen, self._directory.copies())

    async def rights_store(self) -> "SecurityStore | None":
        """What this node has of it; the rest comes from the cluster, in `join`."""
        if self._settings.authorizer == "none":
            return None
        from muster.coordinator.server.cluster_backend.shared_security import SharedSecurityStore

        store = SharedSecurityStore(self.disk)
        await asyncio.to_thread(store.load)
        return store

    async def join(self, security: "NodeSecurity | None", make_groups: MakeGroups) -> None:
        """The engine is made once the cluster has said how many shards there are."""
        self._security = security
        if security is not None:
            node_services.warn_of_own_rights(security, self._certificates)
        await self._part.enter(self.disk, self._doors(), node_services.node_rights_check(security))
        from muster.coordinator.server.cluster_backend.shared_security import follow_cluster_security

        await follow_cluster_security(security, self._part, self.disk)
        await self._directory.note_authorizer()
        self._joined = True
        make_groups(self._part.engine)

    # -- services -----------------------------------------------------------------------------------------------------

    @property
    def _log(self) -> ReplicatedLog:
        return self._part.broker

    @property
    def log_span(self) -> LogSpanOf:
        return partial(span_of_log, self._log)

    def coordinate(
        self,
        engine: Engine,
        driver: EngineDriver,
        clock_ms: Callable[[], int],
        fail: Callable[[BaseException], None],
        sessions: "ServerSessions",
    ) -> None:
        self._part.coordinate(engine, driver, clock_ms, fail, sessions)
        self._groups = driver
        self._transactions = self._part.make_transactions(self.disk, driver, self._clock, fail)

    @cached_property
    def _gate(self) -> TransactionGate | None:
        """Of the first records of transactions (TX-N3)."""
        if self._transactions is None:
            return None
        verifies = self._settings.transaction_partition_verification_enable
        return TransactionGate(self._log, self._transactions, verifies=verifies, together=False)

    def group_service(self, context: GroupServiceContext) -> GroupCoordinator:
        service, gate = self._transactions, self._gate
        if service is None or gate is None:
            return self._part.group_service(context)
        groups = GroupRequests(context.driver, context.shards)
        return self._part.group_service(replace(context, transactions=RpcGroupTransactions(service, groups, gate)))

    def record_service(self, advertised: Callable[[], tuple[str, int]], room: Callable[[Any], int]) -> BrokerService:
        transactions = None
        if self._gate is not None and self._groups is not None:
            transactions = RpcRecordTransactions(
                self._gate, self.requests, self._groups, max_timeout_ms=self._settings.transaction_max_timeout_ms
            )
        return self._part.record_service(advertised, room, transactions)

    def table(self) -> dict[str, ServiceMethod]:
        return self._part.table()

    def staging(self) -> StagingHandlers:
        return StagingService(Staging(self._log), self.requests.commit)

    def fences(self, driver: EngineDriver, engine: Engine) -> dict[str, ServiceMethod]:
        return make_fencing_service(driver, engine, self._log, self.requests)

    async def serve_kafka(self, door: "NodeKafkaListener | NodeProxyListener", context: KafkaListenerContext) -> None:
        part = self._part
        await cast(NodeKafkaListener, door).start(
            context,
            self.requests,
            shards=part.shards,
            observed=part.groups,
            elsewhere=part.has_elsewhere,
            cluster=self.cluster,
            admin=part.admin,
            transactions=self._transactions,
        )

    def upkeep(self, conditions: Conditions, engine: Engine, fail: Callable[[BaseException], None]) -> Stoppable:
        settings, certificates, losses = self._settings, self._certificates, self._part.group_log
        self._part.report_left_out(conditions)
        carried = ClusterConditions(conditions, self._part.side.replicas, self._part.proofs)
        upkeep = NodeUpkeep(settings, self._clock, conditions, self.disk, losses, engine, fail, certificates)
        upkeep.carries(carried.carry)
        return upkeep

    # -- the end ------------------------------------------------------------------------------------------------------

    async def hand_over(self) -> None:
        await self._part.let_go()

    async def leave(self) -> None:
        if self._security is not None:
            self._security.store.stop()
        await self._end_transactions()
        zookeeper, self.zookeeper = self.zookeeper, None
        if zookeeper is not None:
            await zookeeper.close()

    async def close(self) -> None:
        await self._directory.close()


if TYPE_CHECKING:
    _CONFORMS: type[NodeBackend] = ReplicatedBackend
