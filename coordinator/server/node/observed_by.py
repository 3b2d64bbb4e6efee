"""Who looks at a node: made, and imported, only where a setting asks for it."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.server.driver.clock import Clock

if TYPE_CHECKING:
    from muster.coordinator.server.doors.http import HttpDoor
    from muster.coordinator.server.sight.measuring import Measuring
    from muster.coordinator.server.sight.observing import Observing
    from muster.coordinator.server.sight.tracing import Tracing

log = structlog.get_logger("muster.http")


def http_of(settings: Settings) -> "HttpDoor | None":
    if settings.http_address is None:
        if settings.http_listeners:
            log.info("no HTTP listener", why="it needs the extra web: pip install 'muster-groups[web]'")
        return None
    from muster.coordinator.server.doors.http import HttpDoor

    return HttpDoor(settings)


def measuring_of(settings: Settings, clock: Clock) -> "Measuring | None":
    if settings.http_address is None:
        return None
    from muster.coordinator.server.sight.measuring import Measuring

    return Measuring(settings, clock)


def observing_of(settings: Settings, now_ms: Callable[[], int], on_look: Callable[[str], None]) -> "Observing | None":
    if not settings.observes:
        return None
    from muster.coordinator.server.sight.observing import Observing

    return Observing(settings, now_ms, on_look)


def tracing_of(settings: Settings) -> "Tracing | None":
    if settings.otel_exporter != "otlp":
        return None
    from muster.coordinator.server.sight.tracing import Tracing

    return Tracing(settings)


async def close(observing: "Observing | None", tracing: "Tracing | None") -> None:
    """Sample no more, and hand over the traces that are left."""
    if observing is not None:
        observing.stop()
    if tracing is not None:
        await tracing.close()


def cores(engine: Engine) -> Iterator[Shard]:
    """The shards that are there, to be looked at."""
    for shard in range(engine.shards):
        core = engine.core(shard)
        if isinstance(core, Shard):
            yield core
