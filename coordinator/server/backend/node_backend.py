"""The port of a node's backend: where its state is kept, and what it is one node of.

`StandaloneBackend` keeps everything in a data directory, `ReplicatedBackend` (cluster_backend) shares it with the other
nodes of a cluster, and `KafkaNodeBackend` (kafka_backend) keeps it in an existing Kafka cluster.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from muster.coordinator.config import Settings
from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.core.model.types import Limits
from muster.coordinator.edge.cluster_view import ClientAddresses
from muster.coordinator.runtime.engine import Engine, EngineOptions, MakeShard
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.backend.assignor_inputs import LogSpanOf, MeasuredSpans
from muster.coordinator.server.backend.node_services import StagingHandlers, Stoppable
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.listeners.kafka_listener import KafkaListenerContext, NodeKafkaListener
from muster.coordinator.server.rpc_dispatch import ServiceMethod
from muster.coordinator.server.services.group_coordinator import GroupCoordinator, GroupServiceContext
from muster.coordinator.values import frozen_value
from muster.coordinator.zookeeper.group_observer import ReportGroup
from muster.storage.broker.broker import Broker
from muster.storage.broker.record_log import RecordLog
from muster.storage.broker.requests import RecordRequests
from muster.storage.service.broker_service import BrokerService

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster_view import ClusterView
    from muster.coordinator.observability.metrics.instruments import KafkaBackendFigures, TransactionFigures
    from muster.coordinator.server.cluster_backend.cluster_backend import ClusterBackend
    from muster.coordinator.server.cluster_backend.cluster_description import ClusterMetricsSource
    from muster.coordinator.server.listeners.proxy_listener import NodeProxyListener
    from muster.coordinator.server.security.listener_certificates import NodeCertificates
    from muster.coordinator.server.security.node_security import NodeSecurity
    from muster.coordinator.server.security.security_store import SecurityStore
    from muster.coordinator.server.services.member_session import ServerSessions
    from muster.coordinator.server.services.zookeeper_registration import ZooKeeperRegistration


MakeEngine: TypeAlias = Callable[[Limits, MakeShard, EngineOptions], Engine]
"""Makes a backend's engine, over its group log and with as many shards as it has."""


class MakeGroups(Protocol):
    """Lets a backend make the node's engine, once its group log is there."""

    def __call__(self, make: MakeEngine, *, load: bool = False) -> None:
        """load: all shards are this node's, and are loaded now."""


@frozen_value
class BackendContext:
    """What a backend is made of. doors: where clients are told to go, asked once the ports are bound."""

    settings: Settings
    clock: NodeClock
    certificates: "NodeCertificates | None"
    doors: Callable[[], ClientAddresses]


@frozen_value
class RunningEngine:
    """The engine that a backend has made, as the node runs it. fail: hears why the process must end. sessions: members
    of a shard that is lost are sent away."""

    engine: Engine
    driver: EngineDriver
    clock_ms: Callable[[], int]
    fail: Callable[[BaseException], None]
    sessions: "ServerSessions"


class NodeBackend(Protocol):
    """Made in the loop it lives in, then `open`ed and `join`ed; `hand_over`, `leave` and `close` end it."""

    @property
    def disk(self) -> Broker | None:
        """The log as it lies in the data directory, once that is open; None for a node without one."""

    @property
    def record_log(self) -> RecordLog:
        """The topics and logs for this node's listeners; before `join`, those that it knows by itself."""

    @property
    def requests(self) -> RecordRequests:
        """The requests for records and topics, once the node has joined."""

    @property
    def cluster(self) -> "ClusterView | None":
        """The other nodes, once this one has joined; None for a standalone node."""

    @property
    def zookeeper(self) -> "ZooKeeperRegistration | ClusterBackend | None":
        """This node's part in ZooKeeper, until it leaves."""

    @property
    def figures(self) -> "ClusterMetricsSource | None":
        """The cluster's metrics."""

    @property
    def engine_figures(self) -> "Callable[[], KafkaBackendFigures] | None":
        """The metrics of the Kafka cluster below, if there is one."""

    @property
    def transaction_figures(self) -> "Callable[[], TransactionFigures | None] | None":
        """The metrics of the transactional ids that this node coordinates, if it does."""

    @property
    def measured(self) -> MeasuredSpans | None:
        """Where many logs begin and end, if another node or cluster has to be asked."""

    @property
    def log_span(self) -> LogSpanOf:
        """Where a partition's log begins and ends."""

    def add_topic_news(self, change: TopicsChanged) -> TopicsChanged:
        """The change, with what is known besides the catalog: topics that a broker disowns, and how late it is told."""

    async def open(self, seen: ReportGroup) -> None:
        """Open the state or connect to it. `seen` receives groups that are observed in ZooKeeper."""

    async def rights_store(self) -> "SecurityStore | None":
        """The store of ACLs and users, if this node shares it with others. Raises SecurityDamaged, StorageError."""

    async def join(self, security: "NodeSecurity | None", make_groups: MakeGroups) -> None:
        """Register with the other nodes and make the engine, in the order that this backend needs."""

    def coordinate(self, running: RunningEngine) -> None:
        """From now on run the groups of the shards that are this node's."""

    async def resume_transactions(self, conditions: Conditions) -> None:
        """Go on with the transactions that the log has, where this node coordinates any."""

    def group_service(self, context: GroupServiceContext) -> GroupCoordinator:
        """The GroupCoordinator service."""

    def record_service(
        self, advertised: Callable[[], tuple[str, int]], room: Callable[[Any], int]
    ) -> BrokerService: ...

    def table(self) -> dict[str, ServiceMethod]:
        """Calls that only this kind of node answers."""

    def staging(self) -> StagingHandlers:
        """The Staging service."""

    def fences(self, driver: EngineDriver, engine: Engine) -> dict[str, ServiceMethod]:
        """The rows of the Fencing service."""

    def transactions(self) -> dict[str, ServiceMethod]:
        """The rows of the Transactions service."""

    async def serve_kafka(self, door: "NodeKafkaListener | NodeProxyListener", context: KafkaListenerContext) -> None:
        """Answer Kafka clients at the listener, which is bound."""

    def upkeep(self, conditions: Conditions, engine: Engine, fail: Callable[[BaseException], None]) -> Stoppable:
        """Start the periodic work."""

    async def hand_over(self) -> None:
        """At the begin of a stop: let other nodes take over, as far as they can."""

    async def leave(self) -> None:
        """Be known to the others no longer. A second call does nothing."""

    async def close(self) -> None:
        """Release the data directory."""
