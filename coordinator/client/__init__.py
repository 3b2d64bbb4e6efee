"""The gRPC client: `Consumer`, `Producer`, `Admin` and `Worker`; their asyncio twins are in `muster.aio`.

>>> from muster.coordinator.client import Producer
>>> Producer.__name__
'Producer'

Names load on first use, so that importing this package costs nothing. gRPC does not survive a fork: create clients
after `os.fork`, or start processes by spawn; a client used in another process than its own says so.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.coordinator.client.admin import Admin
    from muster.coordinator.client.consumer import Consumer
    from muster.coordinator.client.producer import Producer
    from muster.coordinator.client.types import (
        FencingToken,
        Message,
        OffsetAndMetadata,
        RebalanceEvent,
        RecordMetadata,
        TopicPartition,
    )
    from muster.coordinator.client.worker import Worker

HOMES = {
    "Admin": "muster.coordinator.client.admin",
    "Consumer": "muster.coordinator.client.consumer",
    "FencingToken": "muster.coordinator.client.types",
    "Message": "muster.coordinator.client.types",
    "OffsetAndMetadata": "muster.coordinator.client.types",
    "Producer": "muster.coordinator.client.producer",
    "RebalanceEvent": "muster.coordinator.client.types",
    "RecordMetadata": "muster.coordinator.client.types",
    "TopicPartition": "muster.coordinator.client.types",
    "Worker": "muster.coordinator.client.worker",
}

__all__ = [
    "Admin",
    "Consumer",
    "FencingToken",
    "Message",
    "OffsetAndMetadata",
    "Producer",
    "RebalanceEvent",
    "RecordMetadata",
    "TopicPartition",
    "Worker",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(HOMES[name]), name)
