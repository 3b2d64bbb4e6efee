"""What nodes can stand on: a data directory, or somebody's Kafka."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from muster.coordinator.config import Settings
from muster.coordinator.edge.told import ClientAddresses
from muster.coordinator.server.backend.node_backend import NodeBackend
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.listeners.kafka_listener import NodeKafkaListener

if TYPE_CHECKING:
    from muster.coordinator.server.listeners.proxy_listener import NodeProxyListener
    from muster.coordinator.server.security.listeners import NodeCertificates


def make_kafka_listener(settings: Settings) -> "NodeKafkaListener | NodeProxyListener | None":
    """What serves Kafka's protocol, if anything does."""
    if not settings.kafka_listeners:
        return None
    if not settings.upstream:
        return NodeKafkaListener(settings)
    from muster.coordinator.server.listeners.proxy_listener import NodeProxyListener

    return NodeProxyListener(settings)


def make_backend(
    settings: Settings, clock: NodeClock, certificates: "NodeCertificates | None", doors: Callable[[], ClientAddresses]
) -> NodeBackend:
    """That of a node with these settings. Raises AddressTaken."""
    if not settings.upstream:
        return NodeBackend(settings, clock, certificates, doors)
    from muster.coordinator.server.kafka_backend.ground import KafkaNodeBackend

    return KafkaNodeBackend(settings, clock, certificates, doors)
