"""What goes on beside everything else until it is stopped."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class BackgroundTask:
    """One task. on_bug hears what ends it but `stop`: a mistake of the program."""

    def __init__(self, on_bug: Callable[[BaseException], None]) -> None:
        self._on_bug = on_bug
        self._task: asyncio.Task[None] | None = None

    def start(self, run: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.get_running_loop().create_task(run)
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_bug(error)
