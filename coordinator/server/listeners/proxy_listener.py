"""The Kafka listener in Kafka-backed mode: answers what concerns Muster's groups and proxies the rest to the brokers.

Imported only in Kafka-backed mode. It has the shape of `kafka_listener.NodeKafkaListener`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.edge.listener_base import UNRESTRICTED, ListenerTls
from muster.coordinator.kafka.dispatch import Dispatcher, RequestAuthorizer
from muster.coordinator.kafka.handlers.group_requests import GroupDriver, GroupRequests
from muster.coordinator.kafka.handlers.handlers import GroupHandlers
from muster.coordinator.kafka.handlers.metadata import AdvertisedEndpoint
from muster.coordinator.kafka_backend.backend_settings import proxy_address_of
from muster.coordinator.kafka_backend.proxy.broker_addresses import (
    BrokerHosts,
    BrokerPorts,
    ProxyAddresses,
    broker_of_name,
)
from muster.coordinator.kafka_backend.proxy.broker_connection import BrokerConnector, ProxyTraffic
from muster.coordinator.kafka_backend.proxy.client_connection import ProxyListener, ProxyPort
from muster.coordinator.kafka_backend.proxy.client_login import RelayRules
from muster.coordinator.kafka_backend.proxy.group_answers import (
    READ_HERE,
    SETTINGS,
    NotCoordinatedHere,
    ProxyCoordinators,
    TransactionsRefused,
    served_apis,
)
from muster.coordinator.kafka_backend.proxy.request_splitting import groups_by_name
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.server.grpc.listener import AddressTaken, describe_remedy
from muster.coordinator.server.listeners.kafka_listener import (
    KafkaListenerContext,
    KafkaPortListener,
    charge_connections,
    make_listener_limits,
    make_quota_limits,
)

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster_view import ClusterView
    from muster.coordinator.server.security.node_security import NodeSecurity

log = structlog.get_logger("muster.kafka")


class NodeProxyListener(KafkaPortListener[ProxyListener]):
    """Bound before the upstream is asked, served once it was, drained when the node stops."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, ProxyListener(make_listener_limits(settings)))
        self._reaching: BrokerConnector | None = None
        self.traffic = ProxyTraffic()
        """What passed, for metrics."""

    def bind(self) -> None:
        """Take the ports, those of all brokers too. Raises AddressTaken."""
        super().bind()
        host = self._bound.host
        first = self._settings.engine_kafka_broker_id_first
        try:
            self._listener.bind_for(host, enumerate(self._settings.broker_ports, first))
        except OSError as error:
            self._listener.give_back()
            cure = describe_remedy(error, "engine.kafka.broker.ports")
            raise AddressTaken(f"cannot listen on {host}:{error.filename}: {cure}") from error

    async def start(
        self,
        context: KafkaListenerContext,
        upstream: Upstream,
        *,
        shards: int,
        log_span: Callable[[str, int], tuple[int, int]],
        configs: Callable[[ProxyAddresses], object] | None = None,
        cluster: "ClusterView | None" = None,
        transactions: Callable[[GroupRequests], object] | None = None,
        topics_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Answer clients. log_span: of the upstream's topics, as are the context's partitions. configs: makes who
        answers for settings of groups and nodes. cluster: knows the other nodes and who owns which shard. transactions:
        makes, for the groups of a port, what answers AddOffsetsToTxn and TxnOffsetCommit; None: both are refused.
        topics_changed: told when a client has made, deleted or widened topics."""
        settings, security, tls = self._settings, context.security, context.tls
        driver, partitions = context.driver, context.partitions
        places = self._places(shards, cluster)
        logged_in = proxy_address_of(settings)
        reaching = self._reaching = BrokerConnector(upstream, logged_in)
        is_ours = groups_by_name(
            settings.engine_kafka_groups, settings.engine_kafka_groups_except, settings.engine_kafka_cluster
        )

        login = None if security is None else make_login_relay(settings, security)
        guard, limiting = make_guarding(security), make_quota_limits(security, partitions, settings)
        if security is not None:
            charge_connections(self._listener, security, driver, shards)

        def port_of(broker: int | None) -> ProxyPort:
            leg = reaching.to_any if broker is None else lambda: reaching.to(broker)
            given = self.traffic, context.instruments, topics_changed, login, logged_in is not None
            return ProxyPort(broker, places, is_ours, leg, *given)

        def dispatch_of(groups: GroupDriver) -> Dispatcher:
            handlers = GroupHandlers(
                groups,
                shards=shards,
                endpoint=lambda: AdvertisedEndpoint(settings.node_id, *self.advertised),
                partitions=partitions,
                log_span=log_span,
                rights_of=UNRESTRICTED if security is None else security.topic_rights,
            )
            txn = TransactionsRefused() if transactions is None else transactions(GroupRequests(groups, shards))
            parts = [ProxyCoordinators(places), txn, handlers]
            if configs is not None:  # on all ports: Kafka's tools ask for a group's settings wherever they are
                parts.append(configs(places))
            apis = served_apis() if configs is not None else served_apis(READ_HERE - SETTINGS)
            return Dispatcher(parts, context.instruments, context.tell, guard, limiting, apis)

        here, elsewhere = dispatch_of(driver), dispatch_of(NotCoordinatedHere())
        await self._listener.serve(port_of(None), here, port_of, elsewhere, tls, self._whom(tls))
        log.info("listening", host=self._bound.host, port=self._bound.port, advertised=list(self.advertised))

    async def close(self, grace_s: float) -> None:
        await super().close(grace_s)
        if self._reaching is not None:
            self._reaching.close()

    def _whom(self, tls: ListenerTls | None) -> Callable[[str | None], int | None] | None:
        """Which broker a name stands for, where brokers are told apart by names."""
        hosts = self._hosts
        if tls is None or hosts is None:
            return None
        covers = tls.covers
        return lambda name: broker_of_name(name, hosts, self.advertised.host, covers)

    @property
    def _hosts(self) -> BrokerHosts | None:
        pattern = self._settings.engine_kafka_broker_hosts
        return BrokerHosts(pattern, lambda: self.advertised.port) if pattern else None

    def _places(self, shards: int, cluster: "ClusterView | None") -> ProxyAddresses:
        settings = self._settings
        ports = BrokerPorts(lambda: self.advertised.host, settings.broker_ports, settings.engine_kafka_broker_id_first)
        return ProxyAddresses(
            settings.node_id,
            settings.engine_kafka_node_id_base,
            lambda: self.advertised,
            self._hosts or ports,
            shards,
            cluster,
        )


def make_login_relay(settings: Settings, security: "NodeSecurity") -> RelayRules | None:
    """None where the listener asks nobody to log in."""
    if settings.kafka_listener is None or not settings.kafka_listener.asks_by_sasl:
        return None
    return RelayRules(
        settings.mechanisms,
        settings.oauthbearer_sub_claim,
        settings.sasl_server_max_receive_size,
        settings.connection_setup_timeout_ms / 1000,
        settings.connection_failed_authentication_delay_ms / 1000,
        lambda host, mechanism, why: security.failures.count_failure(host, "kafka", mechanism, why),
    )


def make_guarding(security: "NodeSecurity | None") -> RequestAuthorizer | None:
    """None where nobody is asked what they may."""
    if security is None:
        return None
    from muster.coordinator.kafka.authorization.guard import HandlerGuard
    from muster.coordinator.kafka.authorization.judge import NodeTopics

    return HandlerGuard(security.authorizer, NodeTopics(lambda: security.topics(), False), security.audit.refused)
