"""The backend of a node of a cluster: a data directory with this node's copies, and the part it has in the cluster."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from muster.coordinator.edge.cluster_view import ClusterView
from muster.coordinator.replication.io.replicated_log import ReplicatedLog
from muster.coordinator.replication.io.replicated_requests import ReplicatedRequests
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.backend import node_services
from muster.coordinator.server.backend.node_backend import BackendContext, MakeGroups, NodeBackend, RunningEngine
from muster.coordinator.server.backend.node_services import Stoppable
from muster.coordinator.server.backend.standalone_backend import DirectoryBackend
from muster.coordinator.server.backend.upkeep import NodeUpkeep
from muster.coordinator.server.cluster_backend.cluster_backend import ClusterBackend
from muster.coordinator.server.cluster_backend.cluster_description import ClusterConditions, ClusterMetricsSource
from muster.coordinator.server.cluster_backend.cluster_transactions import ClusterTransactionCoordinator
from muster.coordinator.server.listeners.kafka_listener import KafkaListenerContext, NodeKafkaListener
from muster.coordinator.server.rpc_dispatch import ServiceMethod
from muster.coordinator.server.services.group_coordinator import GroupCoordinator, GroupServiceContext
from muster.coordinator.zookeeper.group_observer import ReportGroup
from muster.storage.broker.record_log import RecordLog
from muster.storage.service.broker_service import BrokerService

if TYPE_CHECKING:
    from muster.coordinator.server.listeners.proxy_listener import NodeProxyListener
    from muster.coordinator.server.security.node_security import NodeSecurity
    from muster.coordinator.server.security.security_store import SecurityStore


class ReplicatedBackend(DirectoryBackend):
    """A data directory with this node's copies, and its part in the cluster. Raises AddressTaken."""

    _transactions: ClusterTransactionCoordinator | None = None
    _flushed_together = False
    """Data waits until the addition is committed (TX-N3)."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._security: NodeSecurity | None = None
        self._joined = False
        self._part = ClusterBackend(context.settings, context.certificates)
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

    def coordinate(self, running: RunningEngine) -> None:
        self._part.coordinate(running)
        self._groups = running.driver
        self._transactions = self._part.make_transactions(self.disk, running.driver, self._clock, running.fail)

    def group_service(self, context: GroupServiceContext) -> GroupCoordinator:
        return self._part.group_service(self._with_transactions(context))

    def record_service(self, advertised: Callable[[], tuple[str, int]], room: Callable[[Any], int]) -> BrokerService:
        return self._part.record_service(advertised, room, self._record_transactions())

    def table(self) -> dict[str, ServiceMethod]:
        return self._part.table()

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
