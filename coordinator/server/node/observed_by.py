"""Who looks at a node: made, and imported, only where a setting asks for it."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.server.driver.clock import NodeClock

if TYPE_CHECKING:
    from muster.coordinator.server.listeners.http_listener import NodeHttpListener
    from muster.coordinator.server.monitoring.metrics_scrape import NodeMetrics
    from muster.coordinator.server.monitoring.observing import GroupObservation
    from muster.coordinator.server.monitoring.rebalance_tracing import RebalanceTracing

observation_log = structlog.get_logger("muster.http")


def make_http_listener(settings: Settings) -> "NodeHttpListener | None":
    if settings.http_address is None:
        if settings.http_listeners:
            observation_log.info("no HTTP listener", why="it needs the extra web: pip install 'muster-groups[web]'")
        return None
    from muster.coordinator.server.listeners.http_listener import NodeHttpListener

    return NodeHttpListener(settings)


def make_metrics(settings: Settings, clock: NodeClock) -> "NodeMetrics | None":
    if settings.http_address is None:
        return None
    from muster.coordinator.server.monitoring.metrics_scrape import NodeMetrics

    return NodeMetrics(settings, clock)


def make_observation(
    settings: Settings, now_ms: Callable[[], int], on_look: Callable[[str], None]
) -> "GroupObservation | None":
    if not settings.observes:
        return None
    from muster.coordinator.server.monitoring.observing import GroupObservation

    return GroupObservation(settings, now_ms, on_look)


def make_tracing(settings: Settings) -> "RebalanceTracing | None":
    if settings.otel_exporter != "otlp":
        return None
    from muster.coordinator.server.monitoring.rebalance_tracing import RebalanceTracing

    return RebalanceTracing(settings)


async def close_observers(observing: "GroupObservation | None", tracing: "RebalanceTracing | None") -> None:
    """Sample no more, and hand over the traces that are left."""
    if observing is not None:
        observing.stop()
    if tracing is not None:
        await tracing.close()


def active_cores(engine: Engine) -> Iterator[Shard]:
    """The shards that are there, to be looked at."""
    for shard in range(engine.shards):
        core = engine.core(shard)
        if isinstance(core, Shard):
            yield core
