"""The Kafka listener of a node: Kafka's wire protocol, over the same groups and the same log as gRPC.

It is bound before the log is opened, serves once the groups are there, and drains when the node stops.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import structlog

from muster.coordinator.config import Address, Settings
from muster.coordinator.core.model.events import HeldBack
from muster.coordinator.edge.listener_base import UNRESTRICTED, ListenerTls, ReportAction
from muster.coordinator.kafka.connections.connection import ServerConnection
from muster.coordinator.kafka.connections.listener import ConnectionListener, ListenerLimits
from muster.coordinator.kafka.connections.received_requests import ConnectionLimits
from muster.coordinator.kafka.dispatch import Dispatcher, FinalizedFeatures, RequestAuthorizer, RequestLimiter
from muster.coordinator.kafka.handlers.configs import ConfigHandlers, GroupConfigs
from muster.coordinator.kafka.handlers.departed_readers import DepartedReaders
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.handlers.handlers import GroupHandlers, LogHandlers
from muster.coordinator.kafka.handlers.metadata import AdvertisedEndpoint
from muster.coordinator.kafka.handlers.partition_tools import SoleNodeHandlers
from muster.coordinator.kafka.handlers.quotas_and_users import DisabledAclHandlers, QuotaHandlers, ScramHandlers
from muster.coordinator.kafka.handlers.transactions import TransactionService
from muster.coordinator.kafka.protocol import (
    APIS,
    RAISES_EPOCH,
    TRANSACTION_VERSION,
    Api,
    transactional_apis,
    without_old_clients,
)
from muster.coordinator.runtime.shards import partition_for
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.grpc.listener import AddressTaken, describe_remedy
from muster.coordinator.server.services.zookeeper_registration import ZooKeeperGroups
from muster.storage.broker.record_log import RecordLog
from muster.storage.broker.requests import LogRequests

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster_view import ClusterView
    from muster.coordinator.kafka.handlers.cluster_backend import NodeConfigStore, PartitionAdministrator
    from muster.coordinator.observability.metrics.instruments import Instruments
    from muster.coordinator.server.security.node_security import NodeSecurity

    class Admin(PartitionAdministrator, NodeConfigStore, Protocol):
        """What is asked of a cluster by this door."""


log = structlog.get_logger("muster.kafka")

L = TypeVar("L", bound=ConnectionListener)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaListenerContext:
    """The node around a Kafka listener, whatever its backend.

    `partitions` gives the catalog's partition counts, `tell` hears what operators do. `tls`: None where clients are
    served in plain text. `security`: None where nobody is asked who they are or what they may. `departed` is shown
    what members join, and what is fetched.
    """

    driver: EngineDriver
    partitions: Callable[[], Mapping[str, int]]
    tell: ReportAction
    instruments: "Instruments | None" = None
    tls: ListenerTls | None = None
    security: "NodeSecurity | None" = None
    departed: DepartedReaders | None = None


class KafkaPortListener(Generic[L]):
    """The port of a node's Kafka listener: bound before the node can serve, and drained when it stops."""

    def __init__(self, settings: Settings, listener: L) -> None:
        self._settings = settings
        self._listener = listener
        self._bound = settings.kafka_address or Address("", 0)

    @property
    def bound(self) -> Address:
        """Where it listens; the port is known once it is bound."""
        return self._bound

    @property
    def advertised(self) -> Address:
        """Where Kafka clients are told to connect."""
        return self._settings.kafka_advertised_address(self._bound.port)

    @property
    def in_flight(self) -> int:
        return self._listener.in_flight

    @property
    def connections(self) -> int:
        return self._listener.connections

    @property
    def unread(self) -> int:
        """Bytes of answers that have not left."""
        return self._listener.unread

    def bind(self) -> None:
        """Take the port. Raises AddressTaken."""
        host, port = self._bound
        try:
            self._bound = Address(host, self._listener.bind(host, port))
        except OSError as error:
            raise AddressTaken(
                f"cannot listen on {host}:{port}: {describe_remedy(error, 'kafka.listeners')}"
            ) from error

    def give_back(self) -> None:
        self._listener.give_back()

    def drain(self) -> None:
        """Take no further requests; connections close as soon as what they asked is answered."""
        self._listener.drain()

    async def close(self, grace_s: float) -> None:
        await self._listener.close(grace_s)


class NodeKafkaListener(KafkaPortListener[ConnectionListener]):
    """Serves once the groups are there."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, ConnectionListener(make_listener_limits(settings)))

    async def start(
        self,
        context: KafkaListenerContext,
        requests: LogRequests,
        *,
        shards: int,
        observed: ZooKeeperGroups | None,
        elsewhere: Callable[[str], bool],
        cluster: "ClusterView | None" = None,
        admin: "Admin | None" = None,
        transactions: TransactionService | None = None,
    ) -> None:
        """Answer clients. `observed`: the groups of a ZooKeeper, if there is one. `elsewhere` says which topics other
        nodes of the ensemble have; `cluster` knows the others where this node is one of many, and `admin` says who is
        to lead there. `transactions`: who coordinates transactional ids, if anybody does."""
        settings, security = self._settings, context.security
        driver, partitions = context.driver, context.partitions

        def endpoint() -> AdvertisedEndpoint:
            return AdvertisedEndpoint(settings.node_id, *self.advertised)

        def log_span(topic: str, partition: int) -> tuple[int, int]:
            return requests.broker.start_offset(topic, partition), requests.broker.high_watermark(topic, partition)

        records = LogHandlers(
            requests,
            endpoint,
            node_id=settings.node_id,
            auto_create=settings.auto_create_topics_enable,
            directory=str(settings.data_dir.absolute()),
            elsewhere=elsewhere,
            cluster=cluster,
            departed=context.departed,
            transactions=transactions,
            verifies=settings.transaction_partition_verification_enable,
            conversions=None if context.instruments is None else context.instruments.conversions,
        )
        groups = GroupHandlers(
            driver,
            shards=shards,
            endpoint=endpoint,
            partitions=partitions,
            log_span=log_span,
            elsewhere=observed,
            rights_of=UNRESTRICTED if security is None else security.topic_rights,
            cluster=cluster,
            departed=context.departed,
            transactions=transactions,
            records=records,
            newest_connection=settings.transaction_newest_connection,
        )
        users = ScramHandlers(None if security is None else security.scram_users)
        quotas = QuotaHandlers(None if security is None else security.configured_quotas)
        configs = make_config_handlers(
            requests, settings.node_id, GroupConfigs(GroupRequests(driver, shards), cluster), cluster, admin
        )
        guard = make_guard(security, requests.broker, settings.auto_create_topics_enable)
        limiting = make_quota_limits(security, partitions, settings)
        if security is not None:
            charge_connections(self._listener, security, driver, shards)
        handlers = (
            groups,
            records,
            configs,
            make_acl_handlers(security),
            quotas,
            users,
            make_partition_handlers(requests.broker, settings.node_id, admin, cluster),
        )
        apis, features = what_is_told(None if transactions is None else settings.transaction_version)
        if not settings.old_clients:
            apis = without_old_clients(apis)
        dispatch = Dispatcher(handlers, context.instruments, context.tell, guard, limiting, apis, features)
        await self._listener.start(dispatch, make_connections(settings, security), context.tls)
        log.info("listening", host=self._bound.host, port=self._bound.port, advertised=list(self.advertised))


def what_is_told(level: int | None) -> tuple[tuple[Api, ...], FinalizedFeatures | None]:
    """The APIs and features of a node that coordinates transactional ids with this `transaction.version`; None: it
    does not.

    The epoch is the start of the node, ms: clients that stay over a restart take in what has changed, which they do
    for a higher epoch only.
    """
    if level is None:
        return APIS, None
    levels = {TRANSACTION_VERSION: level} if level >= RAISES_EPOCH else {}
    return transactional_apis(level), FinalizedFeatures(round(time.time() * 1000), levels)


def make_connections(settings: Settings, security: "NodeSecurity | None") -> Callable[..., ServerConnection] | None:
    """What makes the listener's connections, where its clients are asked to log in."""
    if security is None or settings.kafka_listener is None or not settings.kafka_listener.asks_by_sasl:
        return None
    from muster.coordinator.kafka.connections.sasl_login import SaslConnection

    return partial(SaslConnection, security.logins)


def make_listener_limits(settings: Settings) -> ListenerLimits:
    return ListenerLimits(
        settings.max_connections,
        settings.max_connections_per_ip,
        ConnectionLimits(
            max_frame=settings.socket_request_max_bytes,
            max_in_flight=settings.kafka_max_in_flight_requests_per_connection,
            max_in_flight_bytes=settings.kafka_max_in_flight_bytes_per_connection,
            max_unsent_bytes=settings.kafka_max_unsent_bytes_per_connection,
            max_idle_ms=settings.connections_max_idle_ms,
        ),
        settings.kafka_max_unsent_bytes,
        settings.max_connection_creation_rate,
    )


def make_acl_handlers(security: "NodeSecurity | None") -> object:
    """Who answers what is asked of access control lists."""
    if security is None:
        return DisabledAclHandlers()
    from muster.coordinator.kafka.handlers.acls import AclHandlers

    return AclHandlers(security.acls)


def make_config_handlers(
    requests: LogRequests,
    node_id: int,
    groups: GroupConfigs,
    cluster: "ClusterView | None",
    admin: "Admin | None",
) -> ConfigHandlers:
    if admin is None or cluster is None:
        return ConfigHandlers(requests, node_id, groups, cluster)
    from muster.coordinator.kafka.handlers.cluster_backend import ClusterConfigHandlers

    return ClusterConfigHandlers(requests, node_id, groups, cluster, admin)


def make_partition_handlers(
    log: RecordLog, node_id: int, admin: "Admin | None", cluster: "ClusterView | None"
) -> object:
    """Who answers what is asked of leaders and replicas."""
    if admin is None or cluster is None:
        return SoleNodeHandlers(log, node_id)
    from muster.coordinator.kafka.handlers.cluster_backend import PartitionAdminHandlers

    return PartitionAdminHandlers(admin, cluster)


def make_quota_limits(
    security: "NodeSecurity | None", partitions: Callable[[], Mapping[str, int]], settings: Settings
) -> RequestLimiter | None:
    if security is None:
        return None
    from muster.coordinator.kafka.connections.quota_enforcement import RequestQuotas

    return RequestQuotas(
        security.quotas, partitions, settings.num_partitions, security.counts, owners=security.topic_owners
    )


def charge_connections(
    listener: ConnectionListener, security: "NodeSecurity", driver: EngineDriver, shards: int
) -> None:
    """Charge connections by the quotas that are set, now and later."""
    from muster.coordinator.kafka.connections.quota_enforcement import ConnectionCharges

    def held(group_id: str, member_id: str, for_ms: int) -> None:
        driver.submit_event(partition_for(group_id, shards), HeldBack(group_id, member_id, for_ms))

    listener.charged_by(ConnectionCharges(security.quotas, held, asyncio.get_running_loop()))
    security.store.on_change(listener.charge)


def make_guard(security: "NodeSecurity | None", broker: RecordLog, auto_create: bool) -> RequestAuthorizer | None:
    """None where nobody is asked what they may: the handlers are as they are."""
    if security is None:
        return None
    from muster.coordinator.kafka.authorization.guard import HandlerGuard
    from muster.coordinator.kafka.authorization.judge import NodeTopics

    return HandlerGuard(security.authorizer, NodeTopics(broker.topics, auto_create), security.audit.refused)
