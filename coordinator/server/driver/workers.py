"""Assignors and topic patterns run off the loop, each with a deadline.

What is ours runs in a thread. A thread cannot be stopped: one that overruns goes on by itself, its answer is void, and
it keeps its place among the `MAX_THREADS` until it ends. A plugin runs in a process of its own, which is killed at the
deadline; a thread with a place among others waits for it. With `group.assignor.isolation=thread` it is as ours.

Shadows (docs/control.md) give way to every plan that somebody waits for: one group's have a place at a time, they begin
when no such plan is being made, and they run in processes of their own that yield the processor, whoever wrote them.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Thread
from time import monotonic_ns
from typing import TypeAlias, TypeVar, assert_never

from muster.assignors.api import Assignment, Assignor, AssignorError, Snapshot
from muster.assignors.plugin_pool import Isolation
from muster.assignors.process import START_DEADLINE_MS
from muster.assignors.registry import BUILT_IN
from muster.assignors.run import overran, run
from muster.coordinator.core.consumer.regex import match_topics
from muster.coordinator.core.model.core_events import Planned, RegexResolved
from muster.coordinator.core.model.effects import ResolveRegex
from muster.coordinator.core.model.plan import Plan, PlanRequest, compute_plan
from muster.coordinator.core.model.scoring import ShadowRequest, all_failed, score_candidates
from muster.coordinator.core.model.trial_events import Shadowed
from muster.coordinator.core.model.types import Score

MAX_THREADS = 16

YIELDING = 10
"""How much nicer than the node the processes of shadows are."""

Question: TypeAlias = PlanRequest | ResolveRegex | ShadowRequest
Answer: TypeAlias = Planned | RegexResolved | Shadowed

Result = TypeVar("Result")


def answer_failure(request: Question, why: str) -> Answer:
    """The answer to what could not be computed."""
    match request:
        case PlanRequest():
            return Planned(request.group_id, request.epoch, None, why, request.snapshot)
        case ResolveRegex():
            return RegexResolved(request.group_id, request.regex, (), request.version, why)
        case ShadowRequest():
            return Shadowed(request.group_id, request.ticket, all_failed(request, why))
        case _:
            assert_never(request)


class AssignorWorkers:
    """Belongs to the event loop that makes it.

    `deadline_ms` counts from the moment a computation is asked for; for a plugin, from when its process begins with it.
    """

    def __init__(self, deadline_ms: int, max_threads: int = MAX_THREADS, isolation: Isolation | None = None) -> None:
        self._deadline_ms = deadline_ms
        self._isolation = isolation or Isolation()
        self._shadows = self._isolation.apart(nice=YIELDING)
        self._shadow_place = asyncio.Semaphore(1)
        self._wanted = 0
        """Plans that groups wait for."""
        self._none_wanted = asyncio.Event()
        self._none_wanted.set()
        self._places = asyncio.Semaphore(max_threads)
        self._plugin_places = asyncio.Semaphore(max_threads)
        self._loop = asyncio.get_running_loop()

    async def answer(self, request: Question) -> Answer:
        """What came of it; a failure or an overrun is an answer, too."""
        match request:
            case PlanRequest():
                with self._urgent():
                    plan, error = await self._plan(request)
                return Planned(request.group_id, request.epoch, plan, error, request.snapshot)
            case ResolveRegex():
                topics, error = await self._topics(request)
                return RegexResolved(request.group_id, request.regex, topics, request.version, error)
            case ShadowRequest():
                return Shadowed(request.group_id, request.ticket, await self._shadowed(request))
            case _:
                assert_never(request)

    async def _plan(self, request: PlanRequest) -> tuple[Plan | None, str]:
        try:
            if self._isolation.by_process and request.assignor not in BUILT_IN:
                # Whoever waits for a process waits no longer than it, the process and its deadline take.
                return await self._in_thread(lambda: compute_plan(request, self._decide), self._plugin_places), ""
            return await self._run(lambda: compute_plan(request)), ""
        except AssignorError as error:
            return None, str(error)
        except TimeoutError:
            return None, str(overran(request.assignor, self._deadline_ms))

    @contextmanager
    def _urgent(self) -> Iterator[None]:
        """Somebody waits for this: no shadow begins meanwhile."""
        self._wanted += 1
        self._none_wanted.clear()
        try:
            yield
        finally:
            self._wanted -= 1
            if not self._wanted:
                self._none_wanted.set()

    async def _shadowed(self, request: ShadowRequest) -> tuple[Score, ...]:
        """Each candidate has the deadline, from when its process is there; all have as long to find a place."""
        patience_ms = (len(request.candidates) + 1) * (self._deadline_ms + START_DEADLINE_MS)
        try:
            async with asyncio.timeout(patience_ms / 1000):
                await self._none_wanted.wait()
                job = partial(score_candidates, request, monotonic_ms, self._beside)
                return await self._in_thread(job, self._shadow_place)
        except TimeoutError:
            return all_failed(request, f"was not done after {patience_ms} ms, with the wait for a place")

    def _beside(self, assignor: Assignor, snapshot: Snapshot) -> Assignment:
        """Where plugins run in this process, a shadow that overruns keeps its thread, and the place, until it ends."""
        if not self._shadows.by_process:
            return run(assignor, snapshot, withhold=False)
        late = "was not done after {deadline_ms} ms"
        return self._shadows.run_apart(assignor, snapshot, self._deadline_ms, False, late)

    async def _topics(self, request: ResolveRegex) -> tuple[tuple[str, ...], str]:
        try:
            return await self._run(lambda: match_topics(request)), ""
        except ValueError as error:
            return (), str(error)
        except TimeoutError:
            return (), f"{request.regex!r} was not evaluated within {self._deadline_ms} ms"

    async def _run(self, job: Callable[[], Result]) -> Result:
        """Raises TimeoutError at the deadline, and whatever the job raises."""
        async with asyncio.timeout(self._deadline_ms / 1000):
            return await self._in_thread(job, self._places)

    def _decide(self, assignor: Assignor, snapshot: Snapshot) -> Assignment:
        return self._isolation.run(assignor, snapshot, self._deadline_ms, withhold=False)

    async def _in_thread(self, job: Callable[[], Result], places: asyncio.Semaphore) -> Result:
        await places.acquire()
        future: asyncio.Future[Result] = self._loop.create_future()
        try:
            Thread(target=self._work, args=(job, future, places), name="muster-worker", daemon=True).start()
        except RuntimeError:  # the system is out of threads for the moment
            places.release()
            raise
        return await future

    def _work(self, job: Callable[[], Result], future: asyncio.Future[Result], places: asyncio.Semaphore) -> None:
        try:
            result = job()
        except Exception as error:  # it is told to whoever waits
            self._report(partial(set_future_exception, future, error), places)
        else:
            self._report(partial(set_future_result, future, result), places)

    def _report(self, tell: Callable[[], None], places: asyncio.Semaphore) -> None:
        """Give the place back and the answer in, on the loop; a loop that has ended needs neither."""
        try:
            self._loop.call_soon_threadsafe(places.release)
            self._loop.call_soon_threadsafe(tell)
        except RuntimeError:
            return


def monotonic_ms() -> int:
    return monotonic_ns() // 1_000_000


def set_future_result(future: asyncio.Future[Result], result: Result) -> None:
    """An answer that comes after the deadline finds nobody."""
    if not future.done():
        future.set_result(result)


def set_future_exception(future: asyncio.Future[Result], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
