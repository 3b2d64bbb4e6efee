"""The asyncio twins of the clients: the same names, methods that are awaited, callbacks that may be coroutines.

>>> from muster.aio import Consumer
>>> Consumer.__module__
'muster.coordinator.client.aio.consumer'
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.coordinator.client.aio import AsyncAdmin as Admin
    from muster.coordinator.client.aio import AsyncConsumer as Consumer
    from muster.coordinator.client.aio import AsyncProducer as Producer
    from muster.coordinator.client.aio import AsyncWorker as Worker

__all__ = ["Admin", "Consumer", "Producer", "Worker"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from muster.coordinator.client import aio

    return getattr(aio, f"Async{name}")
