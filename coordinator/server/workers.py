"""Assignors and topic patterns run off the loop, each in a thread of its own and with a deadline.

A thread cannot be stopped: one that overruns goes on by itself, its answer is void, and it keeps its place among the
`MAX_THREADS` until it ends. The threads are daemons, so that a hanging plugin cannot keep the process alive.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import TypeVar, assert_never

from assignors.api import AssignorError
from assignors.run import overran
from coordinator.core.consumer.regex import matching
from coordinator.core.effects import ResolveRegex
from coordinator.core.events import Planned, RegexResolved
from coordinator.core.plan import Plan, PlanRequest, planned

MAX_THREADS = 16

Result = TypeVar("Result")


def failure(request: PlanRequest | ResolveRegex, why: str) -> Planned | RegexResolved:
    """The answer to what could not be computed."""
    match request:
        case PlanRequest():
            return Planned(request.group_id, request.epoch, None, why, request.snapshot)
        case ResolveRegex():
            return RegexResolved(request.group_id, request.regex, (), request.version, why)
        case _:
            assert_never(request)


class Workers:
    """Belongs to the event loop that makes it. `deadline_ms` counts from the moment a computation is asked for."""

    def __init__(self, deadline_ms: int, max_threads: int = MAX_THREADS) -> None:
        self._deadline_ms = deadline_ms
        self._places = asyncio.Semaphore(max_threads)
        self._loop = asyncio.get_running_loop()

    async def answer(self, request: PlanRequest | ResolveRegex) -> Planned | RegexResolved:
        """What came of it; a failure or an overrun is an answer, too."""
        match request:
            case PlanRequest():
                plan, error = await self._plan(request)
                return Planned(request.group_id, request.epoch, plan, error, request.snapshot)
            case ResolveRegex():
                topics, error = await self._topics(request)
                return RegexResolved(request.group_id, request.regex, topics, request.version, error)
            case _:
                assert_never(request)

    async def _plan(self, request: PlanRequest) -> tuple[Plan | None, str]:
        try:
            return await self._run(lambda: planned(request)), ""
        except AssignorError as error:
            return None, str(error)
        except TimeoutError:
            return None, str(overran(request.assignor, self._deadline_ms))

    async def _topics(self, request: ResolveRegex) -> tuple[tuple[str, ...], str]:
        try:
            return await self._run(lambda: matching(request)), ""
        except ValueError as error:
            return (), str(error)
        except TimeoutError:
            return (), f"{request.regex!r} was not evaluated within {self._deadline_ms} ms"

    async def _run(self, job: Callable[[], Result]) -> Result:
        """Raises TimeoutError at the deadline, and whatever the job raises."""
        async with asyncio.timeout(self._deadline_ms / 1000):
            await self._places.acquire()
            future: asyncio.Future[Result] = self._loop.create_future()
            try:
                Thread(target=self._work, args=(job, future), name="muster-worker", daemon=True).start()
            except RuntimeError:  # the system is out of threads for the moment
                self._places.release()
                raise
            return await future

    def _work(self, job: Callable[[], Result], future: asyncio.Future[Result]) -> None:
        try:
            result = job()
        except Exception as error:  # it is told to whoever waits
            self._report(partial(set_exception, future, error))
        else:
            self._report(partial(set_result, future, result))

    def _report(self, tell: Callable[[], None]) -> None:
        """Give the place back and the answer in, on the loop; a loop that has ended needs neither."""
        try:
            self._loop.call_soon_threadsafe(self._places.release)
            self._loop.call_soon_threadsafe(tell)
        except RuntimeError:
            return


def set_result(future: asyncio.Future[Result], result: Result) -> None:
    """An answer that comes after the deadline finds nobody."""
    if not future.done():
        future.set_result(result)


def set_exception(future: asyncio.Future[Result], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
