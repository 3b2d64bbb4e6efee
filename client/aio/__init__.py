"""The asyncio twins: the same names, methods that are awaited, callbacks that may be coroutines.

Everything of one client belongs to the loop it is first used on; use one loop per process.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.client.aio.admin import AsyncAdmin
    from muster.client.aio.consumer import AsyncConsumer
    from muster.client.aio.producer import AsyncProducer
    from muster.client.aio.worker import AsyncWorker

__all__ = ["AsyncAdmin", "AsyncConsumer", "AsyncProducer", "AsyncWorker"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{name.removeprefix('Async').lower()}"), name)
