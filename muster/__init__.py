"""Muster: consumer groups, the assignors that divide their work, and the log below them.

>>> from muster import Consumer
>>> Consumer.__module__
'muster.client.sync.consumer'

The clients are `Consumer`, `Producer`, `Admin` and `Worker`; `muster.aio` holds their asyncio twins, `muster.errors`
what they raise. `muster.assignors` is for who writes an assignor, `muster.storage` for who reads a log,
`muster.coordinator` for who runs a node from a program. Everything loads on first use: the import costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

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
    "aio",
    "assignors",
    "coordinator",
    "errors",
    "storage",
]

_MODULES = ("aio", "assignors", "coordinator", "errors", "storage")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("muster.client"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
