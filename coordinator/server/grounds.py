"""What nodes can stand on: a data directory, or somebody's Kafka."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from muster.coordinator.config import Settings
from muster.coordinator.server.doors.kafka import KafkaDoor
from muster.coordinator.server.doors.told import Doors
from muster.coordinator.server.driver.clock import Clock
from muster.coordinator.server.node.ground import Ground

if TYPE_CHECKING:
    from muster.coordinator.server.doors.proxy import ProxyDoor
    from muster.coordinator.server.security.tls.listeners import Certificates


def kafka_door_of(settings: Settings) -> "KafkaDoor | ProxyDoor | None":
    """What serves Kafka's protocol, if anything does."""
    if not settings.kafka_listeners:
        return None
    if not settings.upstream:
        return KafkaDoor(settings)
    from muster.coordinator.server.doors.proxy import ProxyDoor

    return ProxyDoor(settings)


def ground_of(
    settings: Settings, clock: Clock, certificates: "Certificates | None", doors: Callable[[], Doors]
) -> Ground:
    """That of a node with these settings. Raises AddressTaken."""
    if not settings.upstream:
        return Ground(settings, clock, certificates, doors)
    from muster.coordinator.server.engined.ground import KafkaGround

    return KafkaGround(settings, clock, certificates, doors)
