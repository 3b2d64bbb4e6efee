"""How a synchronous client is made of its asyncio twin: each method is the twin's, waited for in the caller's thread.

A client says `position = waiting(AsyncConsumer.position)`; name, parameters, types and words are the twin's. Methods
that run callbacks of the application are written out: the callbacks belong to the caller's thread.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from muster.client.loop import BackgroundLoop

P = ParamSpec("P")
R = TypeVar("R")
Twin_co = TypeVar("Twin_co", covariant=True)


class Synchronous(Protocol, Generic[Twin_co]):
    """What a synchronous client keeps: its twin, and the loop that runs it."""

    _loop: BackgroundLoop

    @property
    def _twin(self) -> Twin_co: ...


def waiting(
    method: Callable[Concatenate[Twin_co, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Synchronous[Twin_co], P], R]:
    """The twin's coroutine, run on the clients' loop and waited for."""

    @wraps(method)
    def call(self: Synchronous[Twin_co], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.run(method(self._twin, *args, **kwargs))

    return call


def same(method: Callable[Concatenate[Twin_co, P], R]) -> Callable[Concatenate[Synchronous[Twin_co], P], R]:
    """The twin's method as it is: it waits for nothing."""

    @wraps(method)
    def call(self: Synchronous[Twin_co], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(self._twin, *args, **kwargs)

    return call


def iterating(
    method: Callable[Concatenate[Twin_co, P], AsyncIterator[R]],
) -> Callable[Concatenate[Synchronous[Twin_co], P], Iterator[R]]:
    """The twin's asynchronous iterator as an ordinary one; closing it closes the twin's."""

    @wraps(method)
    def call(self: Synchronous[Twin_co], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        items = method(self._twin, *args, **kwargs)
        try:
            while True:
                try:
                    yield self._loop.run(_next_of(items))
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run(items.aclose())  # type: ignore[attr-defined]

    return call


async def _next_of(items: AsyncIterator[R]) -> R:
    """`anext` as a coroutine, which is what another thread can submit."""
    return await anext(items)
