"""Drives the synchronous engine on an asyncio loop: futures by request id, turns, timers, flushes, work off the loop.

One turn per loop iteration takes everything that waits; one worker thread flushes for all shards (group commit). All
methods of the driver belong to the loop's thread.

No member expires while the node could not hear it. When the loop stood still, all deadlines move by that time before
anything else is done (`LoopMonitor`). When a deadline comes, the sockets are read before the turn that fires it
(`DeadlineAlarm`).

Assignors and topic patterns run off the loop, each with a deadline. Built-in assignors run in a thread. A thread
cannot be stopped: one that overruns goes on by itself, its answer is void, and it keeps its place among the
`MAX_THREADS` until it ends. A plugin runs in a process of its own, which is killed at the deadline, while a thread
that holds one of those places waits for it; with `group.assignor.isolation=thread` it runs like a built-in assignor.

Shadow plans (docs/control.md) give way to every plan that a group waits for: the shadows of one group take one place
at a time, begin when no such plan is being made, and run in processes of their own that yield the processor, whatever
assignor they run.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from queue import SimpleQueue
from threading import Thread
from time import monotonic_ns, perf_counter
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar, assert_never

from muster.assignors.api import Assignment, Assignor, AssignorError, Snapshot
from muster.assignors.plugin_pool import Isolation
from muster.assignors.plugin_process import START_DEADLINE_MS
from muster.assignors.registry import BUILT_IN
from muster.assignors.run import overran, run
from muster.coordinator.core.consumer.target import match_topics
from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import GroupChanged, MeasureLoad, Reply, ResolveRegex
from muster.coordinator.core.model.events import (
    GroupObserved,
    GroupUnseen,
    LagMeasured,
    LoadMeasured,
    Planned,
    RegexResolved,
    Shadowed,
    StreamClosed,
)
from muster.coordinator.core.model.plan import Plan, PlanRequest, compute_plan
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.shadow_scoring import ShadowRequest, all_failed, score_candidates
from muster.coordinator.core.model.types import RequestId, Score
from muster.coordinator.edge.background_tasks import SupervisedTasks
from muster.coordinator.errors import NodeShuttingDown, Overloaded
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.node_status import RefusedCommits
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.shards import NOTHING_RELEASED, LoadMeasurementWork, ReleasedAnswers, ShardWork
from muster.coordinator.runtime.stepper import FlushJob, LoadJob
from muster.coordinator.server.driver.clock import DeadlineAlarm, LoopMonitor, NodeClock, StallReport

if TYPE_CHECKING:
    from muster.coordinator.observability.metrics.instruments import Instruments


# Garbage
# -------

REPLIES_BETWEEN_COLLECTIONS: Final = 250
"""Of garbage, among objects that are not old. By itself the collector counts what was made less what went: where each
message lets go of as much as it makes, as in the rebalance of thousands of members, it comes once for hundreds of
thousands of objects, and holds everything up for a fifth of a second."""

MIDDLE_GENERATION: Final = 1
"""Of the collector, which takes the youngest along."""

# Waiters
# -------


class ReplyWaiter(Protocol):
    """Whoever waits for a reply: a future, or somebody who takes it in the same breath."""

    def done(self) -> bool:
        """Whether it waits no longer."""

    def set_result(self, reply: Reply, /) -> None: ...

    def set_exception(self, why: BaseException, /) -> None: ...


# Measuring a group's load
# ------------------------

MeasureGroupLoad: TypeAlias = Callable[[MeasureLoad], AsyncIterator[LoadMeasured]]
"""Takes a measurement, in pieces."""


def refuse_measurement(asked: MeasureLoad, why: str) -> LoadMeasured:
    return LoadMeasured(asked.group_id, asked.serial, last=True, refused=why)


async def measure_nothing(asked: MeasureLoad) -> AsyncIterator[LoadMeasured]:
    """Of a driver without logs."""
    yield refuse_measurement(asked, "there are no logs here whose ends could be looked at")


# Threads that flush and load
# ---------------------------


class ThreadJob(Protocol):
    def run(self) -> None: ...


AnyJob = TypeVar("AnyJob", bound=ThreadJob)


class JobThread(Generic[AnyJob]):
    """Runs one job after the other. `done` is called on the loop with the job and what it raised, if it did.

    A pool would make two futures and two rounds of the loop of each hand-over, which costs as much as the flush.
    """

    def __init__(
        self, name: str, loop: asyncio.AbstractEventLoop, done: Callable[[AnyJob, BaseException | None], None]
    ) -> None:
        self._loop = loop
        self._done = done
        self._jobs: SimpleQueue[AnyJob | None] = SimpleQueue()
        # A daemon: nobody has been promised what a flush under way at the end of the process makes durable.
        Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, job: AnyJob) -> None:
        self._jobs.put(job)

    def close(self) -> None:
        """Let the thread go once it has done what was submitted."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            error: BaseException | None = None
            try:
                job.run()
            except BaseException as caught:
                error = caught
            try:
                self._loop.call_soon_threadsafe(self._done, job, error)
            except RuntimeError:
                return  # The loop was closed meanwhile: nobody is left to hear of it.


# Assignors off the loop
# ----------------------

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
            return Planned(request.group_id, request.epoch, None, why, request.snapshot, trial=request.trial)
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
                    plan, failed = await self._plan(request)
                trace = failed.trace if failed is not None else ""
                why, trial = str(failed or ""), request.trial
                return Planned(request.group_id, request.epoch, plan, why, request.snapshot, trace=trace, trial=trial)
            case ResolveRegex():
                topics, error = await self._topics(request)
                return RegexResolved(request.group_id, request.regex, topics, request.version, error)
            case ShadowRequest():
                return Shadowed(request.group_id, request.ticket, await self._shadowed(request))
            case _:
                assert_never(request)

    async def _plan(self, request: PlanRequest) -> tuple[Plan | None, AssignorError | None]:
        try:
            if self._isolation.by_process and request.assignor not in BUILT_IN:
                # Whoever waits for a process waits no longer than it, the process and its deadline take.
                return await self._in_thread(lambda: compute_plan(request, self._decide), self._plugin_places), None
            return await self._run(lambda: compute_plan(request)), None
        except AssignorError as error:
            return None, error
        except TimeoutError:
            return None, overran(request.assignor, self._deadline_ms)

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


ReplyType = TypeVar("ReplyType")
LookResult = TypeVar("LookResult")

WORK_DEADLINE_MS = 10_000
"""The default of `group.assignor.deadline.ms`."""

LONG_POLLS = (events.JoinGroup, events.SyncGroup)

UnansweredEvent: TypeAlias = (
    events.StreamLost
    | events.HeldBack
    | events.ConnectionClosed
    | events.FetchedAfterLeaving
    | StreamClosed
    | GroupObserved
    | GroupUnseen
    | events.RecordsWatched
    | events.WatchStood
    | events.GroupSeen
    | events.GroupsVanished
    | LagMeasured
)
"""Events that are no requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverLimits:
    """max_parked: JoinGroup and SyncGroup requests that may wait for their answers. work_deadline_ms: how long one plan
    or pattern may take off the loop."""

    max_parked: int
    work_deadline_ms: int = WORK_DEADLINE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCallbacks:
    """What a driver tells its node, on the loop.

    `on_notice` gets what watchers may hear, `on_plan` each plan that was computed off the loop. `on_fatal` gets an
    exception of the engine itself, after which the driver answers nothing any more and the node has to stop: its log
    holds all that was promised. `on_bug` gets what went wrong while one group's work was prepared or its watchers were
    told: that is this group's trouble alone. `on_stall` hears of the loop's stalls.
    """

    on_notice: Callable[[GroupChanged], None]
    on_fatal: Callable[[BaseException], None]
    on_plan: Callable[[events.Planned], None] = lambda plan: None
    on_bug: Callable[[str, Exception], None] = lambda what, error: None
    on_stall: StallReport = lambda stalled_ms, computing_ms: None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """What only the node knows of groups. `complete` adds it to what a shard wants computed, in the turn that asked, or
    gives a call that does the rest in a thread. `measure` finds a group's load."""

    complete: Callable[[ShardWork], ShardWork | Callable[[], ShardWork]] = lambda work: work
    measure: MeasureGroupLoad = measure_nothing


NO_INPUTS: Final = PlanInputs()


class EngineDriver:
    """The engine's place on the event loop."""

    # Of more than thirty attributes without slots CPython 3.11 finds each by a search, which heartbeats feel.
    __slots__ = ("_alarm", "_all_loaded", "_clock", "_closed", "_complete", "_engine", "_flush_began_s",
                 "_flusher", "_flushing", "_flushing_records", "_has_loaded", "_idle", "_instruments",
                 "_loader", "_loading", "_loop", "_max_parked", "_measure", "_on_bug", "_on_fatal",
                 "_on_notice", "_on_plan", "_on_stall", "_parked", "_pulse", "_turn_due", "_uncollected",
                 "_waiting", "_workers", "_working", "next_id")  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        clock: NodeClock,
        limits: DriverLimits,
        callbacks: DriverCallbacks,
        *,
        inputs: PlanInputs = NO_INPUTS,
        isolation: Isolation | None = None,
        instruments: "Instruments | None" = None,
    ) -> None:
        self._instruments = instruments
        self._flush_began_s, self._flushing_records = 0.0, 0
        self._engine = engine
        self._clock = clock
        self._max_parked = limits.max_parked
        self._on_notice = callbacks.on_notice
        self._on_fatal = callbacks.on_fatal
        self._on_bug = callbacks.on_bug
        self._loop = asyncio.get_running_loop()
        self._flusher = JobThread[FlushJob]("muster-flush", self._loop, self._flushed)
        self._loader = JobThread[LoadJob]("muster-load", self._loop, self._loaded)
        self._workers = AssignorWorkers(limits.work_deadline_ms, isolation=isolation)
        self._complete = inputs.complete
        self._measure = inputs.measure
        self._on_plan = callbacks.on_plan
        self._working = SupervisedTasks(self._stop_for)
        self.next_id: Callable[[], RequestId] = count(1).__next__
        """Gives each request its id."""
        self._waiting: dict[RequestId, ReplyWaiter] = {}
        self._parked: dict[RequestId, type[events.Event]] = {}
        self._turn_due = self._flushing = self._loading = self._has_loaded = False
        self._all_loaded = asyncio.Event()
        self._alarm = DeadlineAlarm(self._loop, clock, self.wake)
        self._on_stall = callbacks.on_stall
        self._pulse = LoopMonitor(clock, self._stood_still)
        self._idle = asyncio.Event()
        self._closed = False
        self._uncollected = 0
        """Replies since the last collection."""
        self.wake()  # what the replay left: timers, and records to be flushed once more

    @property
    def waiting(self) -> int:
        """Requests without an answer, parked ones included."""
        return len(self._waiting)

    @property
    def parked(self) -> int:
        """JoinGroup and SyncGroup requests without an answer: they may stay for a whole rebalance timeout."""
        return len(self._parked)

    def parked_by_kind(self) -> Counter[str]:
        """The same by name of the request."""
        return Counter(kind.__name__ for kind in self._parked.values())

    @property
    def refused_commits(self) -> Mapping[tuple[str, str], RefusedCommits]:
        """(group, member) whose last commit was refused."""
        return self._engine.metrics.refused_commits

    def taken_over(self, group_id: str, instance_id: str) -> int:
        """How often in the last ten minutes another process came under this instance id."""
        return self._engine.metrics.taken_over(group_id, instance_id)

    @property
    def lag_ms(self) -> int:
        """How late the loop was when it was last asked; a few milliseconds on a healthy node."""
        return self._pulse.latest_ms

    def opened(self, since_ms: int) -> None:
        """The node can be heard from now on: sessions of what was loaded since that time begin here."""
        now_ms = self._clock.now_ms()
        self._engine.move_deadlines(now_ms - since_ms, now_ms)
        self._pulse.restart()
        self.wake()

    async def all_loaded(self) -> None:
        """Return once every shard has been replayed, or has failed to be for the first time."""
        await self._all_loaded.wait()

    async def ask_shard(self, shard: int, event: events.Request, wanted: type[ReplyType]) -> ReplyType:
        """Return the reply to one request.

        Raises Overloaded when a limit is reached, NodeShuttingDown once the driver is closed. When the caller is
        cancelled the shard forgets the request.
        """
        return await self._answered(shard, event, wanted, self._submit(shard, event))

    def begin_request(self, shard: int, event: events.Request, waiter: ReplyWaiter) -> None:
        """Ask without waiting: `waiter` gets the reply. Raises Overloaded and NodeShuttingDown, as `ask_shard` does."""
        if self._closed:
            raise NodeShuttingDown
        parks = isinstance(event, LONG_POLLS)
        if parks and len(self._parked) >= self._max_parked:
            raise Overloaded(
                f"{len(self._parked)} JoinGroup and SyncGroup requests wait already, as many as this node keeps; "
                "try again shortly, or raise the node's limit of parked requests"
            )
        if not self._engine.submit(shard, event):
            raise Overloaded("the group's inbox is full; try again shortly")
        self._waiting[event.request_id] = waiter
        if parks:
            self._parked[event.request_id] = type(event)
        if not self._turn_due:
            self.wake()

    def forget(self, shard: int, event: events.Request) -> None:
        """The client is gone: leave no trace of its request."""
        if self._waiting.pop(event.request_id, None) is None:
            return
        self._parked.pop(event.request_id, None)
        if not isinstance(event, events.ListGroups | events.ListSettings):
            self._engine.submit(shard, events.Forget(getattr(event, "group_id", ""), event.request_id))
            self.wake()

    def beat(self, shard: int, group_id: str, member_id: str, generation: int, rights: Rights = None) -> bool:
        """Take a dynamic member's heartbeat without a turn, if all is well; False: nothing was done, `ask_shard`."""
        busy = self._turn_due or self._closed
        return not busy and self._engine.beat(shard, group_id, member_id, generation, self._clock.now_ms(), rights)

    async def ask_and_look(
        self, shard: int, event: events.Request, wanted: type[ReplyType], look: Callable[[], LookResult]
    ) -> tuple[ReplyType, LookResult]:
        """Like `ask_shard`, with what `look` sees at the moment of the decision: nothing happens in between."""
        while self._engine.defers(shard):  # noqa: ASYNC110  # each turn brings its end nearer
            await asyncio.sleep(0)
        future = self._submit(shard, event)
        self._turn()
        try:
            seen = look()
        except Exception:
            self.forget(shard, event)
            raise
        return await self._answered(shard, event, wanted, future), seen

    async def ask_all(
        self, questions: Sequence[tuple[int, events.Request]], wanted: type[ReplyType]
    ) -> list[ReplyType]:
        """Return the replies to several requests, in their order, asked in one turn."""
        asked: list[tuple[int, events.Request]] = []
        try:
            futures = []
            for shard, event in questions:
                futures.append(self._submit(shard, event))
                asked.append((shard, event))
            replies = [await future for future in futures]
        except (asyncio.CancelledError, Overloaded):
            for shard, event in asked:
                self.forget(shard, event)
            raise
        typed: list[ReplyType] = [reply for reply in replies if isinstance(reply, wanted)]
        assert len(typed) == len(replies), f"a reply is no {wanted.__name__}"
        return typed

    def submit_event(self, shard: int, event: UnansweredEvent) -> None:
        """Give one shard an event that has no answer."""
        if not self._closed:
            self._engine.submit(shard, event)
            self.wake()

    def tell_all(self, event: events.Event) -> None:
        """Give every shard an event that has no answer (the topics changed)."""
        self._engine.submit_all(event)
        self.wake()

    def wake(self) -> None:
        """See to it that a turn runs in the next iteration of the loop, after all that is ready now."""
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._turn)

    def advance(self) -> None:
        """The engine has been told something outside of its turns: tell at once what may be told, and what follows."""
        try:
            self._pulse.check()
            self._advance()
        except Exception as bug:
            self._stop_for(bug)

    async def close(self, timeout_s: float) -> None:
        """Answer everyone who is parked NOT_COORDINATOR, make durable what was promised, and take nothing more.

        Raises TimeoutError when a flush does not end in time; unanswered requests then fail as NodeShuttingDown.
        """
        self._closed = True
        self._idle.clear()
        self._engine.submit_all(events.Unload())
        self.wake()
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        finally:
            self._working.stop()
            self._abandon(NodeShuttingDown())
            self._alarm.cancel()
            self._pulse.stop()
            self._flusher.close()
            self._loader.close()

    async def _answered(
        self, shard: int, event: events.Request, wanted: type[ReplyType], future: asyncio.Future[Reply]
    ) -> ReplyType:
        try:
            reply = await future
        except asyncio.CancelledError:
            self.forget(shard, event)
            raise
        assert isinstance(reply, wanted), f"{type(event).__name__} was answered by {type(reply).__name__}"
        return reply

    def _submit(self, shard: int, event: events.Request) -> asyncio.Future[Reply]:
        future: asyncio.Future[Reply] = self._loop.create_future()
        self.begin_request(shard, event, future)
        return future

    def _turn(self) -> None:
        self._turn_due = False
        try:
            now_ms = self._pulse.check()
            if self._instruments is None:
                self._engine.turn(now_ms, self._alarm.heard_ms)
            else:
                began_s = perf_counter()
                self._engine.turn(now_ms, self._alarm.heard_ms)
                self._instruments.turns.took(perf_counter() - began_s)
            self._advance()
        except Exception as bug:
            self._stop_for(bug)

    def _advance(self) -> None:
        """What follows every turn and every flush: the engine is asked once for each of it."""
        engine = self._engine
        released = engine.take_released()
        if released is not NOTHING_RELEASED:
            self._release(released)
        if not self._flushing and (job := engine.flush_job()) is not None:
            self._start_flush(job)
        if engine.loading:
            self._start_load()
        elif not self._has_loaded:
            self._has_loaded = True
            self._all_loaded.set()
        pending, deadline_ms = engine.next_turn()
        self._alarm.arm(deadline_ms)
        if pending:
            self.wake()
        elif self._closed and not self._flushing and not self._loading:
            self._idle.set()

    def _release(self, released: ReleasedAnswers) -> None:
        for request_id, reply in released.replies:
            waiter = self._waiting.pop(request_id, None)
            self._parked.pop(request_id, None)
            if waiter is not None and not waiter.done():
                waiter.set_result(reply)
        self._uncollected += len(released.replies)
        if self._uncollected >= REPLIES_BETWEEN_COLLECTIONS:
            self._uncollected = 0
            gc.collect(MIDDLE_GENERATION)
        for notice in released.notices:
            try:
                self._on_notice(notice)
            except Exception as error:
                group_id = getattr(notice, "group_id", None)  # transactions have notices of their own
                what = "telling what was decided" if group_id is None else f"telling the watchers of group {group_id!r}"
                self._on_bug(what, error)
        for work in released.work:
            self._begin_work(work)
        for load in released.loads:
            self._working.start(self._measured(load), "measuring loads")

    def _begin_work(self, work: ShardWork) -> None:
        try:
            self._working.start(self._work(work, self._complete(work)), "work of groups")
        except Exception as error:
            self._engine.answer_work(work, self._failed(work, error))

    async def _measured(self, work: LoadMeasurementWork) -> None:
        """Tell a shard how much a group has to do, piece by piece."""
        asked = work.request
        try:
            async for piece in self._measure(asked):
                if self._closed:
                    return
                self._engine.answer_work(work, piece)
                self.wake()
        except Exception as error:
            self._on_bug(f"measuring the load of group {asked.group_id!r}", error)
            self._engine.answer_work(work, refuse_measurement(asked, str(error) or repr(error)))
            self.wake()

    def _failed(self, work: ShardWork, error: Exception) -> Answer:
        """What could not be computed is a failure of the group that asked, which may ask again."""
        if not isinstance(error, LogFailed):
            self._on_bug(f"work for group {work.request.group_id!r}", error)
        return answer_failure(work.request, str(error) or repr(error))

    async def _work(self, work: ShardWork, whole: ShardWork | Callable[[], ShardWork]) -> None:
        """Compute what a shard asked for, off the loop, and tell it."""
        try:
            work = whole if isinstance(whole, ShardWork) else await self._loop.run_in_executor(None, whole)
        except Exception as error:
            self._engine.answer_work(work, self._failed(work, error))
            self.wake()
            return
        try:
            answer = await self._workers.answer(work.request)
        except Exception as error:
            answer = self._failed(work, error)
        if isinstance(answer, events.Planned):
            self._on_plan(answer)
            if answer.error and self._instruments is not None and isinstance(work.request, PlanRequest):
                self._instruments.assignor_errors[work.request.assignor] += 1
        if not self._closed:
            self._engine.answer_work(work, answer)
            self.wake()

    def _start_flush(self, job: FlushJob) -> None:
        self._flushing = True
        if self._instruments is not None:
            self._flush_began_s, self._flushing_records = perf_counter(), self._engine.metrics.records
        self._flusher.submit(job)

    def _start_load(self) -> None:
        """One shard after the other, off the loop: the others are served meanwhile."""
        if self._loading:
            return
        job = self._engine.load_job()
        if job is not None:
            self._loading = True
            self._loader.submit(job)

    def _loaded(self, job: LoadJob, error: BaseException | None) -> None:
        self._loading = False
        try:
            now_ms = self._pulse.check()
            if error is None:
                self._engine.loaded(job, now_ms)
            elif isinstance(error, Exception):
                self._engine.load_failed(job, error)
            else:
                raise error
            self._advance()
        except Exception as bug:
            self._stop_for(bug)

    def _flushed(self, job: FlushJob, error: BaseException | None) -> None:
        self._flushing = False
        try:
            now_ms = self._pulse.check()  # a stall while it flushed is no slow flush
            if error is None:
                if self._instruments is not None:
                    self._instruments.flushes.took(perf_counter() - self._flush_began_s)
                    self._instruments.flushed_records = self._flushing_records
                self._engine.flushed(job, now_ms)
            elif isinstance(error, Exception):
                self._engine.flush_failed(job, error, now_ms)
            else:
                raise error
            self._advance()
        except Exception as bug:
            self._stop_for(bug)

    def _stood_still(self, stalled_ms: int, computing_ms: int) -> None:
        self._engine.stood_still(stalled_ms, self._clock.now_ms())
        self._on_stall(stalled_ms, computing_ms)
        self.wake()

    def _stop_for(self, bug: BaseException) -> None:
        self._closed = True
        self._abandon(bug)
        self._idle.set()
        self._all_loaded.set()
        self._on_fatal(bug)

    def _abandon(self, why: BaseException) -> None:
        for waiter in tuple(self._waiting.values()):
            if not waiter.done():
                waiter.set_exception(why)
        self._waiting.clear()
        self._parked.clear()
