"""Ends a node's background tasks by mistakes, one at a time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from muster.coordinator.edge import background_tasks
from muster.coordinator.edge.background_tasks import BackgroundTask, RestartedTask, SupervisedTasks


class TaskKiller:
    """Knows which tasks run: `restarted` are begun again after any end, `others` are not. Names, each once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: Counter[str] = Counter()
        self.restarted: set[str] = set()
        self.others: set[str] = set()
        self._dooms: dict[str, asyncio.Event] = {}
        self._changed = asyncio.Event()
        monkeypatch.setattr(background_tasks, "FIRST_PAUSE_S", 0.001)
        self._watch_restarted(monkeypatch)
        for toolbox in (SupervisedTasks, BackgroundTask):
            self._watch_others(monkeypatch, toolbox)

    def _watch_restarted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        init = RestartedTask.__init__

        def watched(
            task: RestartedTask, name: str, work: Callable[[], Coroutine[Any, Any, None]], *, returns: bool = False
        ) -> None:
            init(task, name, lambda: self._killable(name, work(), self.restarted), returns=returns)

        monkeypatch.setattr(RestartedTask, "__init__", watched)

    def _watch_others(self, monkeypatch: pytest.MonkeyPatch, toolbox: type) -> None:
        start = toolbox.start  # type: ignore[attr-defined]

        def watched(tasks: Any, work: Coroutine[Any, Any, Any], name: str = "") -> Any:
            own = name or work.__qualname__.replace(".<locals>", "")
            return start(tasks, self._killable(own, work, self.others), own)

        monkeypatch.setattr(toolbox, "start", watched)

    async def _killable(self, name: str, work: Coroutine[Any, Any, Any], alive: set[str]) -> Any:
        doom = self._dooms[name] = asyncio.Event()
        self.begun[name] += 1
        alive.add(name)
        self._changed.set()
        working, doomed = asyncio.ensure_future(work), asyncio.ensure_future(doom.wait())
        try:
            await asyncio.wait((working, doomed), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise ZeroDivisionError
        finally:
            working.cancel()
            doomed.cancel()
            await asyncio.gather(working, doomed, return_exceptions=True)
            if self._dooms.get(name) is doom:
                alive.discard(name)

    def kill(self, name: str) -> None:
        self._dooms[name].set()

    async def begun_again(self, name: str, before: int) -> None:
        """Return once more than `before` of them have been begun."""
        while self.begun[name] <= before:
            await self.next_change()

    async def next_change(self) -> None:
        """Return once another task was begun."""
        self._changed.clear()
        await self._changed.wait()
