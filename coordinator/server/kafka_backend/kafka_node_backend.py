"""What a node has in place of a data directory when its state is in an existing Kafka: that Kafka.

The node has no log to look after; its upkeep is a task on the loop that looks at the upstream periodically.
DescribeConfigs and AlterConfigs that pass a node are answered for groups and for the node itself; all else is the
upstream's (KB-X12).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from muster.coordinator.config import Settings
from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.kafka.handlers.configs import ConfigHandlers, GroupConfigs
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka_backend.nodes_group import AssignedCluster
from muster.coordinator.kafka_backend.proxy.broker_addresses import ProxyAddresses
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.server.backend.assignor_inputs import LogSpanOf, MeasuredSpans
from muster.coordinator.server.backend.node_backend import BackendContext, MakeGroups, NodeBackend, RunningEngine
from muster.coordinator.server.backend.node_services import FENCE_SERVICE
from muster.coordinator.server.backend.upkeep import ConditionLooks
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.kafka_backend.backend import KafkaBackend
from muster.coordinator.server.kafka_backend.grpc_services import OF_THAT_KAFKA, RefusedFencing, RefusedStaging
from muster.coordinator.server.kafka_backend.upstream_diagnostics import NAMES, broker_names_sentence, set_condition
from muster.coordinator.server.listeners.kafka_listener import KafkaListenerContext, NodeKafkaListener
from muster.coordinator.server.listeners.proxy_listener import NodeProxyListener
from muster.coordinator.server.rpc_dispatch import ServiceMethod, methods_of
from muster.coordinator.server.services.group_coordinator import GroupCoordinator, GroupServiceContext
from muster.coordinator.server.transactions.transaction_rpcs import make_transaction_rpcs
from muster.coordinator.zookeeper.group_observer import ReportGroup
from muster.storage.broker.record_log import RecordLog
from muster.storage.broker.requests import RecordRequests
from muster.storage.service.broker_service import BrokerService

if TYPE_CHECKING:
    from muster.coordinator.observability.metrics.instruments import KafkaBackendFigures
    from muster.coordinator.server.security.listener_certificates import NodeCertificates
    from muster.coordinator.server.security.node_security import NodeSecurity
    from muster.coordinator.server.security.security_store import SecurityStore


# Settings by Kafka's tools (KB-X12)
# ----------------------------------


class ProxyConfigs(ConfigHandlers):
    """As its base, of a node that clients know by another id."""

    def __init__(self, requests: RecordRequests, groups: GroupConfigs, places: ProxyAddresses) -> None:
        super().__init__(requests, places.node_id, groups)
        self._places = places

    def _nodes(self) -> list[str]:
        return [str(node.node_id) for node in self._places.nodes()]


# The node's backend, and its upkeep
# ----------------------------------

TICK_S: Final = 1.0
"""How often it is looked what is wrong."""


class KafkaNodeBackend:
    """See the module."""

    disk = zookeeper = figures = None

    def __init__(self, context: BackendContext) -> None:
        self._settings = context.settings
        self._certificates = context.certificates
        self._part = KafkaBackend(context)
        self.measured: MeasuredSpans | None = None
        self.engine_figures: Callable[[], KafkaBackendFigures] | None = None
        self.transaction_figures = None

    @property
    def cluster(self) -> AssignedCluster:
        return self._part.view

    @property
    def record_log(self) -> RecordLog:
        return self._part.broker

    @property
    def requests(self) -> RecordRequests:
        return self._part.requests

    async def open(self, seen: ReportGroup) -> None:
        """Look at the upstream. Raises UpstreamRefusedNode. There is no ZooKeeper in which anything could be seen."""
        await self._part.meet()
        self.measured = self._part.ends.measured
        self.engine_figures = self._part.figures

    async def rights_store(self) -> "SecurityStore | None":
        return None if self._part.rights is None else self._part.rights.store

    async def join(self, security: "NodeSecurity | None", make_groups: MakeGroups) -> None:
        """Know who may do what. Whose shards are whose is dealt once the engine is there."""
        if security is not None and self._part.rights is not None:
            await self._part.rights.share(security)
        make_groups(self._part.engine)

    async def hand_over(self) -> None:
        await self._part.let_go()

    async def leave(self) -> None:
        await self._part.close()

    async def close(self) -> None:
        """Nothing is held."""

    # -- services -----------------------------------------------------------------------------------------------------

    @property
    def log_span(self) -> LogSpanOf:
        return self._part.ends.span

    def add_topic_news(self, change: TopicsChanged) -> TopicsChanged:
        told = self._part.topics.event()
        return replace(change, disowned=told.disowned, late_ms=self._part.topics.late_ms)

    def coordinate(self, running: RunningEngine) -> None:
        self._part.coordinate(running)

    async def resume_transactions(self, conditions: Conditions) -> None:
        """There are none here that this node would coordinate."""

    def group_service(self, context: GroupServiceContext) -> GroupCoordinator:
        return self._part.group_service(context)

    def record_service(self, advertised: Callable[[], tuple[str, int]], room: Callable[[Any], int]) -> BrokerService:
        return self._part.record_service(advertised, room)

    def table(self) -> dict[str, ServiceMethod]:
        return self._part.table()

    def transactions(self) -> dict[str, ServiceMethod]:
        return make_transaction_rpcs(None, node_id=self._settings.node_id, remedy=OF_THAT_KAFKA)

    async def serve_kafka(self, door: NodeKafkaListener | NodeProxyListener, context: KafkaListenerContext) -> None:
        assert isinstance(door, NodeProxyListener), "such a node has one before its upstream"
        side, broker = self._part, self._part.broker
        side.traffic = door
        groups = GroupConfigs(GroupRequests(context.driver, side.shards), self.cluster)
        await side.met()
        await door.start(
            context,
            side.upstream,
            shards=side.shards,
            log_span=lambda topic, partition: (
                broker.start_offset(topic, partition),
                broker.high_watermark(topic, partition),
            ),
            configs=partial(ProxyConfigs, self.requests, groups),
            cluster=self.cluster,
            transactions=side.transactions_of(context.partitions),
            topics_changed=side.topics.look_soon,
        )

    def staging(self) -> RefusedStaging:
        return RefusedStaging()

    def fences(self, driver: EngineDriver, engine: Engine) -> dict[str, ServiceMethod]:
        return methods_of(FENCE_SERVICE, RefusedFencing())

    def upkeep(self, conditions: Conditions, engine: Engine, fail: Callable[[BaseException], None]) -> "KafkaUpkeep":
        return KafkaUpkeep(self._settings, self._part, conditions, self._certificates)


class KafkaUpkeep(ConditionLooks):
    """What is wrong with the Kafka, and with what this node keeps there."""

    def __init__(
        self, settings: Settings, side: KafkaBackend, conditions: Conditions, certificates: "NodeCertificates | None"
    ) -> None:
        self._settings = settings
        self._side = side
        super().__init__("conditions of the upstream", conditions, certificates, pause_s=TICK_S)

    def looks(self) -> Iterator[Callable[[], object]]:
        side, conditions = self._side, self._conditions
        yield lambda: side.shard_diagnostics.report_shards(side.owning, conditions, side.owning.now_ms())
        yield lambda: side.upstream_diagnostics.report_conditions(conditions)
        yield lambda: side.look_at_transactions(conditions)
        yield self._look_at_names
        for part in (side.rights, side.mirroring):
            if part is not None:
                yield partial(part.report_conditions, conditions)

    def _look_at_names(self) -> None:
        shown = None if self._certificates is None else self._certificates.of("kafka")
        if shown is not None:
            brokers = self._side.upstream.view.brokers
            set_condition(self._conditions, NAMES, broker_names_sentence(self._settings, brokers, shown.covers))


if TYPE_CHECKING:
    _CONFORMS: type[NodeBackend] = KafkaNodeBackend
