"""The event loop of one simulated process: its time is the process's, what is due the world decides."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.kafka_backend.whole import WholeNode


class NodeLoop(asyncio.AbstractEventLoop):
    """As much of a loop as tasks, futures and timeouts take. Nothing of it runs while its process is frozen or dead."""

    def __init__(self, node: "WholeNode") -> None:
        self._node = node
        self._ready: deque[asyncio.Handle] = deque()
        self._pass = False

    def time(self) -> float:
        return self._node.now_ms / 1000

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._soon(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self._node.later(max(delay, 0) * 1000, lambda: self._soon(handle))
        return handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **given: Any) -> "asyncio.Task[Any]":  # type: ignore[override]
        return asyncio.Task(coro, loop=self, **given)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Looked at when it is due."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What a dead process had begun is never ended, and nobody misses it."""
        error = context.get("exception")
        if error is not None and self._node.alive:
            self._node.bug(error)

    def _soon(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        self._ready.append(handle)
        if not self._pass:
            self._pass = True
            self._node.later(0, self._turn)

    def _turn(self) -> None:
        """One round: what is added meanwhile has its turn in the next."""
        self._pass = False
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()
        if self._ready and not self._pass:
            self._pass = True
            self._node.later(0, self._turn)
