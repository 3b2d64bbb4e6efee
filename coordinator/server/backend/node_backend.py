"""What keeps a node's state: its data directory, and its place in a cluster where it has one.

The directory is locked before ZooKeeper hears of the node, and a new one is made only after ZooKeeper has named the
cluster. `kafka_backend` has the one whose state is in a Kafka cluster.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

from muster.coordinator.config import Settings
from muster.coordinator.edge.cluster_view import ClientAddresses
from muster.coordinator.edge.listener_base import ReportAction as TellAction
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.backend import node_services
from muster.coordinator.server.backend.assignor_inputs import LogSpanOf, MeasuredSpans, span_of_log
from muster.coordinator.server.backend.fencing import make_fencing_service
from muster.coordinator.server.backend.node_services import SharedBackend, StagingHandlers, Stoppable
from muster.coordinator.server.backend.upkeep import LossReporter, NodeUpkeep
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.listeners.kafka_listener import NodeKafkaListener
from muster.coordinator.server.rpc_dispatch import ServiceMethod
from muster.coordinator.server.services.zookeeper_registration import ZooKeeperRegistration, build_registration
from muster.coordinator.zookeeper.group_observer import ReportGroup
from muster.storage.broker.broker import Broker
from muster.storage.broker.record_log import RecordLog, StagedLog
from muster.storage.broker.requests import LogRequests
from muster.storage.files import RealFiles
from muster.storage.service.staging_service import StagingService
from muster.storage.staging.staging import Staging
from muster.storage.topics.catalog import format_id
from muster.storage.topics.data_dir import is_fresh, known_cluster_id

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster_view import ClusterView
    from muster.coordinator.observability.metrics.instruments import Instruments, KafkaBackendFigures
    from muster.coordinator.server.cluster_backend.cluster_backend import ClusterBackend
    from muster.coordinator.server.cluster_backend.cluster_description import ClusterMetricsSource
    from muster.coordinator.server.listeners.proxy_listener import NodeProxyListener
    from muster.coordinator.server.security.listener_certificates import NodeCertificates
    from muster.coordinator.server.security.node_security import NodeSecurity
    from muster.coordinator.server.security.security_store import SecurityStore


class NodeBackend:
    """Made in the loop it lives in, then `take`n; `leave` ends it. doors: asked once the ports are known."""

    _disk: Broker

    def __init__(
        self,
        settings: Settings,
        clock: NodeClock,
        certificates: "NodeCertificates | None",
        doors: Callable[[], ClientAddresses],
    ) -> None:
        self._settings = settings
        self._certificates = certificates
        self._clock = clock
        self._doors = doors
        self._security: NodeSecurity | None = None
        self.joined: SharedBackend | None = self._join(certificates)
        """What it is one node of; None for a node on its own, and for nodes beside each other."""
        self.zookeeper: ZooKeeperRegistration | ClusterBackend | None = self._by_zookeeper

    @property
    def disk(self) -> Broker | None:
        """The log as it lies in the data directory, once that is open; None for a node without one."""
        return self._disk

    @property
    def record_log(self) -> RecordLog:
        """The topics and logs that this node can read before it is known to others."""
        return self._disk

    @property
    def _by_zookeeper(self) -> "ClusterBackend | None":
        """Its cluster, which meets at ZooKeeper."""
        return cast("ClusterBackend | None", self.joined)

    @property
    def cluster(self) -> "ClusterView | None":
        """What is known of the other nodes, once it has registered."""
        return None if self._by_zookeeper is None else self._by_zookeeper.view

    async def take(self, seen: ReportGroup) -> None:
        """Lock the data directory, open what lies there, and meet ZooKeeper. `seen` gets what is seen of groups.

        What is known to be this node's is locked first; what is to be made waits until ZooKeeper has named the cluster.
        """
        fresh = is_fresh(RealFiles(), str(self._settings.data_dir))
        if not fresh:
            await asyncio.to_thread(self._open, None)
        cluster_id = await self._meet(seen)
        if fresh:
            await asyncio.to_thread(self._open, cluster_id)

    async def group_log(self) -> BrokerGroupLog:
        """That of a node which keeps its groups by itself. Raises PartitionCountConflict."""
        settings = self._settings
        count, size = settings.offsets_topic_num_partitions, settings.offsets_topic_segment_bytes
        return await asyncio.to_thread(BrokerGroupLog, self._disk, count, size)

    def rights_store(self) -> "SecurityStore | None":
        """Where it is kept who may do what, if not in a log of this node or its cluster."""
        return None

    async def register(self, security: "NodeSecurity | None" = None) -> None:
        """Be known to others, once it is known that the log can be served; in a cluster, hear how that stands, and who
        may do what."""
        if (joined := self._by_zookeeper) is not None:
            self._security = security
            await joined.enter(self._disk, self._doors(), node_services.node_rights_check(security))
            await node_services.share_security(security, joined, self._disk)
        elif isinstance(self.zookeeper, ZooKeeperRegistration):
            await self.zookeeper.register()

    @property
    def figures(self) -> "ClusterMetricsSource | None":
        """What of the cluster is to be measured."""
        return None if self._by_zookeeper is None else self._by_zookeeper.figures

    # -- what stands on it --------------------------------------------------------------------------------------------

    def span_of(self, broker: RecordLog) -> LogSpanOf:
        """Where a partition's log begins and ends."""
        return partial(span_of_log, broker)

    engine_figures: "Callable[[], KafkaBackendFigures] | None" = None
    """What is to be measured of a Kafka below; None where there is none."""

    measured: MeasuredSpans | None = None
    """The same of many partitions, where others are to say."""

    async def serve_kafka(
        self,
        door: "NodeKafkaListener | NodeProxyListener",
        driver: EngineDriver,
        requests: LogRequests,
        *,
        partitions: Callable[[], Mapping[str, int]],
        instruments: "Instruments | None",
        tell: TellAction,
        security: "NodeSecurity | None",
    ) -> None:
        """Have Kafka's clients answered at the door, which is bound."""
        zookeeper = self.zookeeper
        await cast(NodeKafkaListener, door).start(
            driver,
            requests,
            instruments=instruments,
            shards=self.shards,
            partitions=partitions,
            observed=zookeeper.groups if zookeeper is not None else None,
            elsewhere=zookeeper.has_elsewhere if zookeeper is not None else lambda topic: False,
            tell=tell,
            security=security,
            tls=node_services.listener_tls(self._certificates, "kafka"),
            cluster=self.cluster,
            admin=None if self.joined is None else self.joined.admin,
        )

    @property
    def shards(self) -> int:
        return self._settings.offsets_topic_num_partitions if self.joined is None else self.joined.shards

    def log_requests(self) -> LogRequests:
        """The requests for records and topics; made once per node."""
        return LogRequests(self._disk) if self.joined is None else self.joined.requests

    def staging(self, requests: LogRequests) -> StagingHandlers:
        """The Staging service."""
        log: StagedLog = self._disk if (joined := self._by_zookeeper) is None else joined.broker
        return StagingService(Staging(log), requests.commit)

    def fences(self, driver: EngineDriver, engine: Engine, requests: LogRequests) -> dict[str, ServiceMethod]:
        """The rows of the Fencing service."""
        return make_fencing_service(driver, engine, requests.broker, requests)

    def upkeep(
        self, conditions: Conditions, group_log: LossReporter, engine: Engine, fail: Callable[[BaseException], None]
    ) -> Stoppable:
        """What is done by the clock, from now on."""
        settings, certificates = self._settings, self._certificates
        return NodeUpkeep(settings, self._clock, conditions, self._disk, group_log, engine, fail, certificates)

    # -- the end ------------------------------------------------------------------------------------------------------

    async def leave(self) -> None:
        if self._security is not None:
            self._security.store.stop()
        zookeeper, self.zookeeper = self.zookeeper, None
        if zookeeper is not None:
            await zookeeper.close()

    async def close(self) -> None:
        """Give the data directory back."""
        if hasattr(self, "_disk"):
            await asyncio.to_thread(self._disk.close)

    def _join(self, certificates: "NodeCertificates | None") -> "SharedBackend | None":
        if not self._settings.inter_broker_listeners:
            return None
        from muster.coordinator.server.cluster_backend.cluster_backend import ClusterBackend

        joined = ClusterBackend(self._settings, certificates)
        joined.bind()
        return joined

    def _open(self, cluster_id: str | None) -> None:
        settings = self._settings
        self._disk = Broker(settings.data_dir, settings, node_id=settings.node_id, cluster_id=cluster_id)

    async def _meet(self, seen: ReportGroup) -> str | None:
        """The cluster's id, agreed on before a data directory is made for it; None where there is nobody to ask."""
        settings = self._settings
        if not settings.zookeeper_connect:
            return None
        own = known_cluster_id(RealFiles(), str(settings.data_dir))
        fresh = format_id(os.urandom(16))
        if (joined := self._by_zookeeper) is not None:
            return await joined.meet(own, fresh, seen)
        self.zookeeper = side = await ZooKeeperRegistration.open(
            settings,
            self._clock,
            lambda: build_registration(self._doors().grpc, self._doors().kafka, self._clock.now_ms()),
            lambda: {name: topic.partitions for name, topic in self._disk.topics().items() if not topic.internal},
            seen,
        )
        return await side.cluster_id(own, fresh)


def cluster_service_names(settings: Settings) -> tuple[str, ...]:
    """What is served beside the rest, for health and reflection."""
    if not settings.inter_broker_listeners:
        return ()
    from muster.coordinator.server.cluster_backend.cluster_service import CLUSTER_SERVICE

    return (CLUSTER_SERVICE.full_name,)
