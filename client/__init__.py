"""The gRPC client: `Consumer`, `Producer`, `Admin` and `Worker`; their asyncio twins are in `muster.aio`.

>>> from muster.client import Producer
>>> Producer.__name__
'Producer'

Names load on first use, so that importing this package costs nothing. gRPC does not survive a fork: create clients
after `os.fork`, close them before it, or start processes by spawn; otherwise a client in the child says so.
"""

import os
from typing import TYPE_CHECKING, Any

# Beside an open channel of asyncio, gRPC's own handlers of forks end one child in three. Read when grpc is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if TYPE_CHECKING:
    from muster.client.errors import OutcomeUnknown, ProducerFenced, TransactionAborted
    from muster.client.sync.admin import Admin
    from muster.client.sync.consumer import Consumer
    from muster.client.sync.producer import Producer
    from muster.client.sync.worker import Worker
    from muster.client.types import (
        FencingToken,
        Message,
        OffsetAndMetadata,
        RebalanceEvent,
        RecordMetadata,
        TopicPartition,
    )

HOMES = {
    "Admin": "muster.client.sync.admin",
    "Consumer": "muster.client.sync.consumer",
    "FencingToken": "muster.client.types",
    "Message": "muster.client.types",
    "OffsetAndMetadata": "muster.client.types",
    "OutcomeUnknown": "muster.client.errors",
    "Producer": "muster.client.sync.producer",
    "ProducerFenced": "muster.client.errors",
    "RebalanceEvent": "muster.client.types",
    "RecordMetadata": "muster.client.types",
    "TopicPartition": "muster.client.types",
    "TransactionAborted": "muster.client.errors",
    "Worker": "muster.client.sync.worker",
}

__all__ = [
    "Admin",
    "Consumer",
    "FencingToken",
    "Message",
    "OffsetAndMetadata",
    "OutcomeUnknown",
    "Producer",
    "ProducerFenced",
    "RebalanceEvent",
    "RecordMetadata",
    "TopicPartition",
    "TransactionAborted",
    "Worker",
]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(HOMES[name]), name)


if __name__ == "client":  # A checkout's folder, imported by its own name.
    from muster.checkout import stand_in

    stand_in(__name__)
