"""The gRPC client: `Consumer`, `Producer`, `Admin` and `Worker`; their asyncio twins are in `coordinator.client.aio`.

>>> from coordinator.client import Producer
>>> Producer.__name__
'Producer'

Names load on first use, so that importing this package costs nothing. gRPC does not survive a fork: create clients
after `os.fork`, or start processes by spawn; a client used in another process than its own says so.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coordinator.client.admin import Admin
    from coordinator.client.consumer import Consumer
    from coordinator.client.producer import Producer
    from coordinator.client.types import (
        FencingToken,
        Message,
        OffsetAndMetadata,
        RebalanceEvent,
        RecordMetadata,
        TopicPartition,
    )
    from coordinator.client.worker import Worker

HOMES = {
    "Admin": "coordinator.client.admin",
    "Consumer": "coordinator.client.consumer",
    "FencingToken": "coordinator.client.types",
    "Message": "coordinator.client.types",
    "OffsetAndMetadata": "coordinator.client.types",
    "Producer": "coordinator.client.producer",
    "RebalanceEvent": "coordinator.client.types",
    "RecordMetadata": "coordinator.client.types",
    "TopicPartition": "coordinator.client.types",
    "Worker": "coordinator.client.worker",
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
