"""The GroupCoordinator service without a node around it."""

from typing import Any, cast

from muster.coordinator.server.services.group_coordinator import GroupServiceContext, SimulationRules


def group_service_context(**given: Any) -> GroupServiceContext:
    """One with what is given; whoever asks for more finds None."""
    nothing = cast(Any, None)
    context: dict[str, Any] = {
        "driver": nothing,
        "watchers": nothing,
        "sessions": nothing,
        "shards": 1,
        "endpoint": nothing,
        "partitions": dict,
        "log_span": lambda *_: (0, 0),
        "simulations": SimulationRules(isolation=nothing, deadline_ms=0, plugins={}),
        "snapshot_bytes": 0,
        "conditions": nothing,
        "resources": nothing,
    }
    return GroupServiceContext(**(context | given))
