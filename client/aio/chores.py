"""What a client does in the background, and how it hears of a chore that broke."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class BackgroundTasks:
    """Tasks of one owner. A bug must not stop commits or checks in silence: `on_failure` hears of it."""

    def __init__(self, on_failure: Callable[[Exception], None]) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    async def cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
