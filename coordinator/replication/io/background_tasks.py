"""Tasks that no caller awaits: an error in one is a programming mistake, and is reported."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

TaskFailed: TypeAlias = Callable[[BaseException], None]


class SupervisedTasks:
    """They are kept until they end. `failed` is told of an exception that one of them ends with."""

    def __init__(self, failed: TaskFailed) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
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

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (why := task.exception()) is not None:
            self._failed(why)
