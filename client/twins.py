"""Synchronous clients from their asyncio twins, and the background event loop that runs them.

A client says `position = waiting(AsyncConsumer.position)`; name, parameters, types and docstring are the twin's.
Methods that run the application's callbacks are written out, because callbacks belong to the caller's thread.

All synchronous clients of a process share one loop: gRPC's asyncio layer misbehaves with several in one process. The
loop's thread is a daemon. Closed clients leave nothing on it. What clients run there beside the application's calls
are `BackgroundTasks`.

gRPC does not survive a fork while a channel is open: in the child a client that was open, and every new one, is
refused at once, where gRPC would hang or end the process.
"""

import asyncio
import atexit
import concurrent.futures
import logging
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from muster.client.errors import IllegalState, WrongProcess

# Forks
# -----

AFTER_FORK = (
    "gRPC does not survive a fork: open clients after it (with gunicorn not by --preload, with Celery in "
    "worker_process_init), close them before it, or start processes by 'spawn' or 'forkserver'"
)

GRPC_ENDS_S = 0.5
"""A fork so soon after the last client was closed waits for the rest of it."""

_open: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""What has channels in this process."""
_closed_s: float | None = None
"""When the last channel was closed, by the steady clock."""
_forked_from: int | None = None
"""The process that had channels when it, or a child of its, forked this one."""


def note_channels(owner: object) -> None:
    """It has channels from now on, until `forget_channels`."""
    _open.add(owner)


def forget_channels(owner: object) -> None:
    global _closed_s
    if owner in _open:
        _open.discard(owner)
        _closed_s = time.monotonic()


def refuse_after_fork() -> None:
    """Raise WrongProcess where gRPC would hang: in the child of a process that had clients open when it forked."""
    if _forked_from is not None:
        raise WrongProcess(f"process {_forked_from} had clients open when this one was forked from it; {AFTER_FORK}")


def _let_grpc_end() -> None:
    """gRPC's threads outlive its last channel for a moment, and a child that is forked in it hangs."""
    if _closed_s is not None and not len(_open):
        time.sleep(max(0.0, _closed_s + GRPC_ENDS_S - time.monotonic()))


def _note_fork() -> None:
    global _forked_from
    if len(_open):
        _forked_from = os.getppid()
        _open.clear()


os.register_at_fork(before=_let_grpc_end, after_in_child=_note_fork)


# The background loop
# -------------------

T = TypeVar("T")
END_PATIENCE_S = 1.0


class BackgroundLoop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="muster-client", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def _end(self) -> None:
        """At the end of the process: what clients left running because nobody closed them ends without noise."""
        if os.getpid() != self.pid or not self._thread.is_alive():
            return

        async def end() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.loop.stop()

        asyncio.run_coroutine_threadsafe(end(), self.loop)
        self._thread.join(END_PATIENCE_S)

    def check_process(self) -> None:
        """Raise WrongProcess in any process but the client's own."""
        if os.getpid() != self.pid:
            raise WrongProcess(
                f"this client was created in process {self.pid} and is used in {os.getpid()}; {AFTER_FORK}"
            )

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        try:
            self.check_process()
        except WrongProcess:
            work.close()
            raise
        if threading.current_thread() is self._thread:
            work.close()
            raise IllegalState("a synchronous client was called on the client's own loop; use muster.aio")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for `work`. Interrupted by Ctrl-C, it is cancelled."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


_shared: BackgroundLoop | None = None
_lock = threading.Lock()


def shared_loop() -> BackgroundLoop:
    """The loop of this process; a forked child gets one of its own, unless clients were open at the fork."""
    global _shared
    refuse_after_fork()
    with _lock:
        if _shared is None or _shared.pid != os.getpid():
            _shared = BackgroundLoop()
        return _shared


# Background tasks
# ----------------

log = logging.getLogger("muster.client")


def log_failure(error: Exception) -> None:
    log.error("a background task of a client ended by a mistake of the program", exc_info=error)


class BackgroundTasks:
    """Tasks of one owner that nobody waits for. None ends by a mistake in silence: `on_failure` hears of it, so that
    the owner's next call raises it; where nothing that the application waits for depends on it, it is logged."""

    def __init__(self, on_failure: Callable[[Exception], None] = log_failure) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[Any]] = set()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def __iter__(self) -> Iterator["asyncio.Task[Any]"]:
        return iter(tuple(self._tasks))

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    async def cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# Synchronous methods from asynchronous ones
# ------------------------------------------

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
