"""The asyncio twins of the clients: the same names, methods that are awaited, callbacks that may be coroutines.

>>> from muster.aio import Consumer
>>> Consumer.__module__
'muster.client.aio.consumer'
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.client.aio import AsyncAdmin as Admin
    from muster.client.aio import AsyncConsumer as Consumer
    from muster.client.aio import AsyncProducer as Producer
    from muster.client.aio import AsyncWorker as Worker

__all__ = ["Admin", "Consumer", "Producer", "Worker"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from muster.client import aio

    return getattr(aio, f"Async{name}")
