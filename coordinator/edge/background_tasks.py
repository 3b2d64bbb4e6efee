"""The background tasks of a node: each has a name, and none ends without being noticed.

There are two kinds. `RestartedTask` is a loop that the node needs for as long as it runs, or work that it needs done:
after an unexpected end it is begun again, after a pause that doubles. `SupervisedTasks` and `BackgroundTask` run work
whose unexpected end is reported to a callback, which stops the node, or tells whoever waits; without one it is logged
what was left undone. Each end is counted and reported to the node's health by the `TaskFailures` of the node that began
the task. Work that a request waits for is none of these: who waits hears how it ended.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Final, TypeAlias, TypeVar

import structlog

log = structlog.get_logger("muster.node")

Result = TypeVar("Result")
TaskFailed: TypeAlias = Callable[[BaseException], None]

FIRST_PAUSE_S: Final = 0.5
"""Before a loop that ended is begun again for the first time; each time after that it doubles."""

LONGEST_PAUSE_S: Final = 30.0
"""A loop that ran for longer than this begins again with the first pause."""


class TaskFailures:
    """The tasks of one node that ended unexpectedly. `counts`: how often, by name."""

    def __init__(
        self, on_failure: Callable[[str, BaseException, bool], None] = lambda name, error, again: None
    ) -> None:
        """on_failure: hears the name of a task, what it ended with, and whether it is begun again."""
        self.counts: Counter[str] = Counter()
        self._on_failure = on_failure

    def record(self, name: str, error: BaseException, *, again: bool) -> None:
        self.counts[name] += 1
        self._on_failure(name, error, again)


TASK_FAILURES: ContextVar[TaskFailures] = ContextVar("TASK_FAILURES")
"""Those of the node that the running code belongs to: a node sets its own before it begins any task, and tasks pass it
on to those that they begin. Without a node nobody counts."""


def current_failures() -> TaskFailures:
    return TASK_FAILURES.get(None) or TaskFailures()


def create_named_task(work: Coroutine[Any, Any, Result], name: str) -> "asyncio.Task[Result]":
    """name: by default that of the work's function, as `ReplicaManager._look`."""
    own_name = getattr(work, "__qualname__", "background task").replace(".<locals>", "")
    return asyncio.get_running_loop().create_task(work, name=name or own_name)


def unexpected_end(task: "asyncio.Task[Any]", failures: TaskFailures) -> BaseException | None:
    """What a task that is done ended with, recorded, with the task's name in its traceback; None when it was cancelled
    or returned."""
    if task.cancelled() or (error := task.exception()) is None:
        return None
    error.add_note(f"It ended the background task {task.get_name()!r}.")
    failures.record(task.get_name(), error, again=False)
    return error


def log_undone(error: BaseException) -> None:
    """For work that the node can do without: what it was to do is left undone, and the log says so."""
    log.error("a background task ended, and its work is not done", exc_info=error)


class SupervisedTasks:
    """They are kept until they end. `failed` is told of an exception that one of them ends with."""

    def __init__(self, failed: TaskFailed = log_undone, *, on_end: Callable[[], None] = lambda: None) -> None:
        """on_end: called whenever one of them has ended, however it did."""
        self._failed = failed
        self._on_end = on_end
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Result], name: str = "") -> "asyncio.Task[Result]":
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

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        self._on_end()
        if (error := unexpected_end(task, current_failures())) is not None:
            self._failed(error)


class BackgroundTask:
    """One task. `failed` hears what ends it but `stop`: a mistake of the program."""

    def __init__(self, failed: TaskFailed = log_undone) -> None:
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

    @property
    def busy(self) -> bool:
        return self._task is not None and not self._task.done()

    async def ended(self) -> None:
        """Return once it has ended. How it did is `failed`'s to hear: this raises nothing. It goes on where whoever
        waits is cancelled."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def stop(self) -> None:
        """Cancel it, and return once it has ended."""
        self.cancel()
        await self.ended()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if (error := unexpected_end(task, current_failures())) is not None:
            self._failed(error)


class RestartedTask:
    """What the node needs for as long as it runs. `work` is called to begin it, and again after each end: it must then
    look anew at all that it looks after."""

    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, None]], *, returns: bool = False) -> None:
        """returns: work that returns has done what it was to do. Otherwise it is a loop, and to return is a mistake."""
        self._name = name
        self._work = work
        self._returns = returns
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether it was begun, and neither stopped nor done."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        self._task = create_named_task(self._run(), self._name)

    def cancel(self) -> None:
        """Stop it without waiting for its end."""
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """Cancel it, and return once it has ended."""
        self.cancel()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        now_s, pause_s = asyncio.get_running_loop().time, FIRST_PAUSE_S
        while True:
            begun_s = now_s()
            try:
                await self._work()
                if self._returns:
                    return
                raise RuntimeError("it returned")
            except Exception as error:
                if now_s() - begun_s > LONGEST_PAUSE_S:
                    pause_s = FIRST_PAUSE_S
                self._ended(error, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _ended(self, error: Exception, pause_s: float) -> None:
        log.error("a background task ended and is restarted", task=self._name, retry_s=pause_s, exc_info=error)
        current_failures().record(self._name, error, again=True)
