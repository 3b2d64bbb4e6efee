"""Kafka's door of a node over somebody's Kafka: what is for Muster's groups is answered, all else passes to brokers.

Imported only where engine is a Kafka. It has the shape of `doors/kafka.py`'s door.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

import structlog

from muster.coordinator.config import Address, Settings
from muster.coordinator.edge.audit import Tell
from muster.coordinator.edge.rights import everything
from muster.coordinator.edge.transport.tls import Tls
from muster.coordinator.engine.configured import proxy_reach_of
from muster.coordinator.engine.proxy.answering import (
    READ_HERE,
    SETTINGS,
    Coordinators,
    NotHere,
    NoTransactions,
    served,
)
from muster.coordinator.engine.proxy.leg import Traffic
from muster.coordinator.engine.proxy.login.relaying import LoginRules
from muster.coordinator.engine.proxy.names import whose
from muster.coordinator.engine.proxy.ours import ours_by_name
from muster.coordinator.engine.proxy.passage import Port
from muster.coordinator.engine.proxy.places import Hosts, Places, Ports
from muster.coordinator.engine.proxy.ports import ProxyListener
from muster.coordinator.engine.proxy.reaching import Reaching
from muster.coordinator.engine.upstream.upstream import Upstream
from muster.coordinator.kafka.dispatch import Dispatch, Guarding
from muster.coordinator.kafka.groups.asking import GroupDriver, Groups
from muster.coordinator.kafka.groups.handlers import GroupHandlers
from muster.coordinator.kafka.log.metadata import Endpoint
from muster.coordinator.server.doors.kafka import charge, limiting_of, listener_limits
from muster.coordinator.server.grpc.listener import AddressTaken, cure_of

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster import Cluster
    from muster.coordinator.metrics.instruments import Instruments
    from muster.coordinator.server.driver.drive import Driver
    from muster.coordinator.server.security.security import Security

log = structlog.get_logger("muster.kafka")


class ProxyDoor:
    """Bound before the upstream is asked, served once it was, drained when the node stops."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._listener = ProxyListener(listener_limits(settings))
        self._bound = settings.kafka_address or Address("", 0)
        self._reaching: Reaching | None = None
        self.traffic = Traffic()
        """What passed, for metrics."""

    @property
    def bound(self) -> Address:
        """Where the node's own port is; the port is known once it is bound."""
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
        """Take the ports, those of all brokers too. Raises AddressTaken."""
        host, port = self._bound
        try:
            self._bound = Address(host, self._listener.bind(host, port))
        except OSError as error:
            raise AddressTaken(f"cannot listen on {host}:{port}: {cure_of(error, 'kafka.listeners')}") from error
        first = self._settings.engine_kafka_broker_id_first
        try:
            self._listener.bind_for(host, enumerate(self._settings.broker_ports, first))
        except OSError as error:
            self._listener.give_back()
            cure = cure_of(error, "engine.kafka.broker.ports")
            raise AddressTaken(f"cannot listen on {host}:{error.filename}: {cure}") from error

    def give_back(self) -> None:
        self._listener.give_back()

    async def start(
        self,
        driver: GroupDriver,
        upstream: Upstream,
        *,
        shards: int,
        partitions: Callable[[], Mapping[str, int]],
        log_span: Callable[[str, int], tuple[int, int]],
        configs: Callable[[Places], object] | None = None,
        tell: Tell,
        ours: Callable[[str], bool] | None = None,
        cluster: "Cluster | None" = None,
        transactions: Callable[[Groups], object] | None = None,
        topics_changed: Callable[[], None] = lambda: None,
        instruments: "Instruments | None" = None,
        tls: Tls | None = None,
        security: "Security | None" = None,
    ) -> None:
        """Answer clients. partitions, log_span: of the upstream's topics. configs: makes who answers for settings of
        groups and nodes. ours: which groups are Muster's, if not by their names alone. cluster: knows the other nodes
        and who owns which shard. transactions: makes, for the groups of a port, what answers AddOffsetsToTxn and
        TxnOffsetCommit; None: both are refused. topics_changed: told when a client has made, deleted or widened
        topics."""
        settings = self._settings
        places = self._places(shards, cluster)
        logged_in = proxy_reach_of(settings)
        reaching = self._reaching = Reaching(upstream, logged_in)
        is_ours = ours or ours_by_name(
            settings.engine_kafka_groups, settings.engine_kafka_groups_except, settings.engine_kafka_cluster
        )

        login = None if security is None else logins_of(settings, security)
        guard, limiting = guarding_of(security), limiting_of(security, partitions, settings)
        if security is not None:
            charge(self._listener, security, cast("Driver", driver), shards)

        def port_of(broker: int | None) -> Port:
            leg = reaching.to_any if broker is None else lambda: reaching.to(broker)
            given = self.traffic, instruments, topics_changed, login, logged_in is not None
            return Port(broker, places, is_ours, leg, *given)

        def dispatch_of(groups: GroupDriver) -> Dispatch:
            handlers = GroupHandlers(
                groups,
                shards=shards,
                endpoint=lambda: Endpoint(settings.node_id, *self.advertised),
                partitions=partitions,
                log_span=log_span,
                rights_of=everything if security is None else security.topic_rights,
            )
            txn = NoTransactions() if transactions is None else transactions(Groups(groups, shards))
            parts = [Coordinators(places), txn, handlers]
            if configs is not None:  # on all ports: Kafka's tools ask for a group's settings wherever they are
                parts.append(configs(places))
            apis = served() if configs is not None else served(READ_HERE - SETTINGS)
            return Dispatch(parts, instruments, tell, guard, limiting, apis)

        here, elsewhere = dispatch_of(driver), dispatch_of(NotHere())
        await self._listener.serve(port_of(None), here, port_of, elsewhere, tls, self._whom(tls))
        log.info("listening", host=self._bound.host, port=self._bound.port, advertised=list(self.advertised))

    def drain(self) -> None:
        """Take no further requests; connections close as soon as what they asked is answered."""
        self._listener.drain()

    async def close(self, grace_s: float) -> None:
        await self._listener.close(grace_s)
        if self._reaching is not None:
            self._reaching.close()

    def _whom(self, tls: Tls | None) -> Callable[[str | None], int | None] | None:
        """Which broker a name stands for, where brokers are told apart by names."""
        hosts = self._hosts
        if tls is None or hosts is None:
            return None
        covers = tls.covers
        return lambda name: whose(name, hosts, self.advertised.host, covers)

    @property
    def _hosts(self) -> Hosts | None:
        pattern = self._settings.engine_kafka_broker_hosts
        return Hosts(pattern, lambda: self.advertised.port) if pattern else None

    def _places(self, shards: int, cluster: "Cluster | None") -> Places:
        settings = self._settings
        ports = Ports(lambda: self.advertised.host, settings.broker_ports, settings.engine_kafka_broker_id_first)
        return Places(
            settings.node_id,
            settings.engine_kafka_node_id_base,
            lambda: self.advertised,
            self._hosts or ports,
            shards,
            cluster,
        )


def logins_of(settings: Settings, security: "Security") -> LoginRules | None:
    """None where the listener asks nobody to log in."""
    if settings.kafka_door is None or not settings.kafka_door.asks_by_sasl:
        return None
    return LoginRules(
        settings.mechanisms,
        settings.oauthbearer_sub_claim,
        settings.sasl_server_max_receive_size,
        settings.connection_setup_timeout_ms / 1000,
        settings.connection_failed_authentication_delay_ms / 1000,
        lambda host, mechanism, why: security.failures.told(host, "kafka", mechanism, why),
    )


def guarding_of(security: "Security | None") -> Guarding | None:
    """None where nobody is asked what they may."""
    if security is None:
        return None
    from muster.coordinator.kafka.rights.catalog import NodeTopics
    from muster.coordinator.kafka.rights.guard import Guard

    return Guard(security.authorizer, NodeTopics(lambda: security.topics(), False), security.audit.refused)
