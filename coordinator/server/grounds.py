"""What nodes can stand on: a data directory, or somebody's Kafka."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from muster.coordinator.config import Settings
from muster.coordinator.server.doors.told import Doors
from muster.coordinator.server.driver.clock import Clock
from muster.coordinator.server.node.ground import Ground

if TYPE_CHECKING:
    from muster.coordinator.server.security.tls.listeners import Certificates


def ground_of(
    settings: Settings, clock: Clock, certificates: "Certificates | None", doors: Callable[[], Doors]
) -> Ground:
    """That of a node with these settings. Raises AddressTaken."""
    if not settings.upstream:
        return Ground(settings, clock, certificates, doors)
    from muster.coordinator.server.engined.ground import KafkaGround

    return KafkaGround(settings, clock, certificates, doors)
