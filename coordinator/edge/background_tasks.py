"""The background tasks of a node: each has a name, and none ends without being noticed.

The unexpected end of a `BackgroundTask`, or of one of `SupervisedTasks`, is reported to a callback, which stops the
node or logs what was left undone.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

TaskFailed: TypeAlias = Callable[[BaseException], None]


def create_named_task(work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
    return asyncio.get_running_loop().create_task(work, name=name or getattr(work, "__qualname__", "background task"))


def unexpected_end(task: "asyncio.Task[None]") -> BaseException | None:
    """What a task that is done ended with, with the task's name in its traceback; None when it was cancelled or
    returned."""
    if task.cancelled() or (error := task.exception()) is None:
        return None
    error.add_note(f"It ended the background task {task.get_name()!r}.")
    return error


class SupervisedTasks:
    """They are kept until they end. `failed` is told of an exception that one of them ends with."""

    def __init__(self, failed: TaskFailed, *, on_end: Callable[[], None] = lambda: None) -> None:
        """on_end: called whenever one of them has ended, however it did."""
        self._failed = failed
        self._on_end = on_end
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str = "") -> "asyncio.Task[None]":
        """name: by default that of the work's function."""
        task = create_named_task(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def stop(self) -> None:
        """Cancel all of them."""
        for task in self._tasks:
            task.cancel()

    async def ended(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancel all of them, and return once they have ended."""
        self.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._on_end()
        if (error := unexpected_end(task)) is not None:
            self._failed(error)


class BackgroundTask:
    """One task. `failed` hears what ends it but `stop`: a mistake of the program."""

    def __init__(self, failed: TaskFailed) -> None:
        self._failed = failed
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[Any, Any, None], name: str = "") -> None:
        """name: by default that of the work's function."""
        self._task = create_named_task(work, name)
        self._task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Stop it without waiting for its end."""
        if self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """Return once it has ended. How it did is `failed`'s to hear: this raises nothing."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def stop(self) -> None:
        """Cancel it, and return once it has ended."""
        self.cancel()
        await self.ended()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if (error := unexpected_end(task)) is not None:
            self._failed(error)
