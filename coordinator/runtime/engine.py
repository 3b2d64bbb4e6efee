"""Runs the shards: queues events, takes turns, keeps records, and tells nobody a fact that a crash could undo.

Synchronous and single-threaded; only `FlushJob.run` and `LoadJob.run` may run elsewhere. A driver (the server, the
simulator) does:

    engine.submit(shard, event)        as requests come in
    engine.stood_still(ms, now_ms)     when nobody could be heard for so long; before anything else
    engine.turn(now_ms)                when something is pending or a deadline has come
    job = engine.flush_job()           then job.run() in any thread, then flushed(job) or flush_failed(job, error)
    engine.take_released()             after each of these

With `loads_elsewhere` it also runs `engine.load_job()` in any thread, then `loaded(job)` or `load_failed(job, error)`.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from muster.coordinator.core.model.effects import Reply
from muster.coordinator.core.model.events import (
    Event,
    Forget,
    LoadMeasured,
    Planned,
    RegexResolved,
    Shadowed,
    StoodStill,
    TopicsChanged,
    Unload,
    compare_topics,
)
from muster.coordinator.core.model.records import Record
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.deadlines import deadline_shift_ms
from muster.coordinator.runtime.node_status import Metrics
from muster.coordinator.runtime.ports import GroupLog, LogFailed
from muster.coordinator.runtime.replay import LoadReport, recreated_topics
from muster.coordinator.runtime.shards import (
    GROUPS,
    REPLIES,
    LoadMeasurementWork,
    ReleasedAnswers,
    ShardCore,
    ShardKind,
    ShardSlot,
    ShardStatus,
    ShardWork,
    loading_excuse,
)
from muster.coordinator.runtime.stepper import (
    BugReport,
    FlushJob,
    LoadJob,
    Reports,
    StatusReport,
    Stepper,
)

INBOX_LIMIT = 20_000
"""Events that may wait for a turn: only a driver that is stalled ever has so many."""
MAX_EVENTS_IN_TURN = 250
"""Those of thousands of members that speak at once are for several turns: what else the loop has to do goes between."""

WRITTEN_SLICES = 4
"""Slices of positions whose records one turn makes: four take as long as one that is deleted, decided and written."""

WELL = ("Heartbeat", ErrorCode.NONE)

MakeShard: TypeAlias = Callable[[Limits, int], ShardCore]


def ignore_reports(*_: object) -> None:
    """The default of both reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What an engine is told beside its log, its limits and its core.

    on_bug: gets the event that a core could not take, as text, and what it raised. on_status: gets a shard, its new
    status and why. inbox_limit: events that may wait for a turn. loads_elsewhere: whether the driver runs loads in a
    thread. kind: what the shards are of.
    """

    on_bug: BugReport = ignore_reports
    on_status: StatusReport = ignore_reports
    inbox_limit: int = INBOX_LIMIT
    loads_elsewhere: bool = False
    kind: ShardKind = GROUPS


NO_OPTIONS: Final = EngineOptions()


class Engine:
    """The runtime of one node's shards. Every request submitted is answered exactly once, or forgotten on demand."""

    def __init__(
        self,
        log: GroupLog,
        shards: int,
        limits: Limits,
        make_shard: MakeShard = Shard,
        options: EngineOptions = NO_OPTIONS,
    ) -> None:
        self._log = log
        self._limits = limits
        self._make_shard = make_shard
        self._inbox_limit = options.inbox_limit
        self._loads_elsewhere = options.loads_elsewhere
        self._kind = options.kind
        self._slots = [ShardSlot(index) for index in range(shards)]
        self._inbox: deque[tuple[ShardSlot, int, Event]] = deque()
        self._topics: TopicsChanged | None = None
        self._turned_ms = self._round_ms = 0
        self._ahead = 0
        """How many of those that were queued when a round of turns began are left: timers wait for them."""
        self.metrics = Metrics()
        self._reports = Reports(options.on_bug, options.on_status)
        written_at_once = WRITTEN_SLICES * limits.slice_positions
        self._stepper = self._make_stepper(log, self._slots, self._reports, self.metrics, written_at_once)
        # Each of them is the stepper's as well.
        self._answers = self._stepper.answers
        self._deadlines = self._stepper.deadlines
        self._flushing = self._stepper.flushing
        self._loads = self._stepper.loads
        self._starved = self._stepper.starved

    @property
    def shards(self) -> int:
        return len(self._slots)

    @property
    def waiting(self) -> int:
        """Events that wait for the next turn."""
        return len(self._inbox)

    def next_turn(self) -> tuple[bool, int | None]:
        """Whether a turn has something to do now, whatever the time, and when one has at the latest, if ever.

        No timer is due before that; a turn at it may still find that the timer was pushed back. While a slow flush
        holds answers back none is: a turn has to follow its end.
        """
        stepper, flushing, loads = self._stepper, self._flushing, self._loads
        pending = bool(self._inbox or loads.fallen or stepper.chores or stepper.drafted or stepper.queued)
        silenced = flushing.job is not None and flushing.silences(self._turned_ms)
        timer_ms = None if silenced else self._deadlines.timers.next_ms
        if not loads.pauses and not self._starved.pauses:
            return pending, timer_ms
        times = (timer_ms, loads.pauses.next_ms, self._starved.pauses.next_ms)
        return pending, min((at_ms for at_ms in times if at_ms is not None), default=None)

    @property
    def pending(self) -> bool:
        """Whether a turn has something to do now, whatever the time."""
        return self.next_turn()[0]

    @property
    def next_deadline_ms(self) -> int | None:
        """When a turn has something to do at the latest; None: it is not known that one ever has."""
        return self.next_turn()[1]

    @property
    def starved(self) -> Mapping[int, str]:
        """The shards whose log has no room, and in what words it said so."""
        return {shard: starved.why for shard, starved in self._starved.by_shard.items()}

    def defers(self, shard: int) -> bool:
        """Whether what is submitted now is stepped in a later turn than the next, behind something long."""
        return self._slots[shard].behind is not None

    def status(self, shard: int) -> ShardStatus:
        return self._slots[shard].status

    def settled(self, shard: int) -> bool:
        """Whether the shard is served, or none of this node's: nothing is waited for."""
        return self._slots[shard].status in (ShardStatus.ACTIVE, ShardStatus.UNLOADED)

    def core(self, shard: int) -> ShardCore | None:
        """The shard's core for read-only inspection; None while it has none."""
        return self._slots[shard].core

    def undrafted(self, shard: int) -> Sequence[Record]:
        """What the shard has decided and does not write yet, for read-only inspection: something long is before it."""
        slot = self._slots[shard]
        return [*slot.records, *slot.sliced]

    def report(self, shard: int) -> LoadReport:
        """What the shard's last replay met."""
        return self._slots[shard].report

    def load(self, now_ms: int) -> None:
        """Replay every shard that is not active. Submit the first TopicsChanged before."""
        for slot in self._slots:
            if slot.status is not ShardStatus.ACTIVE:
                self.load_shard(slot.index, now_ms)

    def load_shard(self, shard: int, now_ms: int) -> None:
        """Replay one shard and make it active. If it cannot be read it fails, and is tried again after a pause.

        With `loads_elsewhere` the replay is a job for the driver (see `load_job`); requests hear meanwhile that the
        shard is loading.
        """
        slot = self._slots[shard]
        if slot.status is ShardStatus.ACTIVE:
            raise ValueError(f"shard {shard} is active; unload it before loading it again")
        self._stepper.finish_drafts(slot, now_ms)  # what it has promised is read again
        # From here on it is wanted: one that was unloaded may fall, and be tried again.
        slot.status = ShardStatus.LOADING
        job = self._load_of(shard)
        self._loads.start_job(job)
        if self._loads_elsewhere:
            self._loads.queue(job)
            return
        try:
            job.run()
        except Exception as error:
            self.load_failed(job, error)
        else:
            self.loaded(job, now_ms)

    def _load_of(self, shard: int) -> LoadJob:
        return LoadJob(shard, self.new_core(shard), self._log, self._kind)

    def new_core(self, shard: int) -> ShardCore:
        """One that knows nothing yet."""
        return self._make_shard(self._limits, shard)

    @property
    def loading(self) -> bool:
        """Whether a shard is being replayed or waits for it."""
        return bool(self._loads.jobs)

    def load_job(self) -> LoadJob | None:
        """The next replay to be run in any thread, one after the other; None when there is nothing to load."""
        return self._loads.next_job()

    def loaded(self, job: LoadJob, now_ms: int) -> None:
        """The job's `run` returned: its core takes its place, unless the shard was given up meanwhile."""
        if not self._loads.ended(job):
            return
        slot = self._slots[job.shard]
        slot.report = job.report
        self.metrics.loads += 1
        self._stepper.activate(slot, job.core, self._topics, now_ms)

    def load_failed(self, job: LoadJob, error: Exception) -> None:
        """The job's `run` raised: the shard fails, and is tried again after a pause."""
        if not self._loads.ended(job):
            return
        slot = self._slots[job.shard]
        slot.report = job.report
        if isinstance(error, LogFailed):
            self._stepper.drop(slot, f"its log cannot be read: {error}")
        else:  # a bug in apply must not take the other shards along
            self._reports.bug(f"shard {job.shard} replay", error)
            self._stepper.drop(slot, f"a record of its log cannot be applied: {error!r}")

    def submit(self, shard: int, event: Event) -> bool:
        """Queue an event for the next turn; False when the inbox is full and nothing was queued.

        A request to a shard that cannot take it is answered at once. A Forget is never refused.
        """
        slot = self._slots[shard]
        if type(event) in REPLIES:  # as `is_request` says
            request: Any = event
            if slot.status is not ShardStatus.ACTIVE:
                self._answers.answer(type(event), request.request_id, self._excuse(slot, type(event)))
                return True
            if len(self._inbox) + self._stepper.waiting >= self._inbox_limit:
                self.metrics.refused += 1
                return False
            assert request.request_id not in slot.unanswered, f"request id {request.request_id} is in use"
            slot.unanswered[request.request_id] = request
        elif isinstance(event, Forget):
            slot.unanswered.pop(event.request_id, None)
        self._inbox.append((slot, slot.life, event))
        return True

    def beat(
        self, shard: int, group_id: str, member_id: str, generation: int, now_ms: int, rights: Rights = None
    ) -> bool:
        """Take a heartbeat past the queue, if it can be answered with "all is well" this very moment.

        False: nothing was done; submit it. So it is when something waits that came before it, or when the answer would
        rest on what is not durable yet. A timer that is due makes no difference: who is heard of first, lives.
        """
        slot = self._slots[shard]
        core = slot.core
        if core is None or self._inbox or slot.draft is not None or slot.appended > slot.durable:
            return False
        if slot.behind is not None:
            return False
        if self._starved.by_shard and self._starved.closes(shard, group_id):
            return False
        if not core.beat(group_id, member_id, generation, rights, now_ms):
            return False
        self.metrics.requests[WELL] += 1
        return True

    def answer_work(
        self, work: ShardWork | LoadMeasurementWork, event: Planned | RegexResolved | Shadowed | LoadMeasured
    ) -> None:
        """Queue what came of `work`. A shard that was dropped since has forgotten its question, so it is void then."""
        self._inbox.append((self._slots[work.shard], work.life, event))

    def submit_all(self, event: Event) -> None:
        """Queue an event for every shard. A shard that is not active hears of the topics when it is loaded."""
        if isinstance(event, TopicsChanged):
            anew = () if self._topics is None else recreated_topics(self._topics.ids, event.ids)
            changes = () if self._topics is None else compare_topics(self._topics, event)
            event = replace(event, deleted=(*event.deleted, *anew), changes=changes)
            self._topics = TopicsChanged(event.partitions, ids=event.ids, disowned=event.disowned)
        for slot in self._slots:
            if slot.status is ShardStatus.ACTIVE or not isinstance(event, TopicsChanged):
                self._inbox.append((slot, slot.life, event))

    def stood_still(self, stalled_ms: int, now_ms: int) -> None:
        """For so long, until now, nobody could be heard: all deadlines move by it, and by the time reading takes."""
        self.metrics.stood_still(stalled_ms)
        self._flushing.stood_still(stalled_ms, now_ms)
        self._move(StoodStill(stalled_ms, deadline_shift_ms(stalled_ms)), now_ms)

    def move_deadlines(self, by_ms: int, now_ms: int) -> None:
        """All deadlines come later by that much, though the node did not stand still: it starts, or its disk does."""
        self._move(StoodStill(0, by_ms), now_ms)

    def turn(self, now_ms: int, heard_ms: int | None = None) -> None:
        """Reload what fell, step what is queued, fire due timers, and append once for each shard with records.

        What was queued goes before timers: a member is expired only if nothing it said waits. Of thousands that speak
        at once, some have the next turn. `heard_ms` is until when
        everything that had come to the node has been queued, if that is not now; later deadlines wait. So do those of
        members whose answers are held back for a flush: whoever waits for the node is not silent.
        """
        self._turned_ms = self.metrics.now_ms = now_ms
        if self._loads.fallen or self._loads.pauses or self._starved.pauses:
            self._reload(now_ms)
        if not self._ahead:
            self._ahead, self._round_ms = len(self._inbox), now_ms if heard_ms is None else heard_ms
        events = self._ahead if self._ahead < MAX_EVENTS_IN_TURN else MAX_EVENTS_IN_TURN
        for stepped in range(events):
            slot, life, event = self._inbox.popleft()
            # What was queued for an earlier life is void, but a wish to be rid of the shard is not.
            if life == slot.life or isinstance(event, Unload):
                self._stepper.step(slot, event, now_ms)
                if self._stepper.is_full():
                    events = stepped + 1
                    break
        self._ahead -= events
        self._stepper.rows = 0  # timers have as many of their own: whoever asks for much delays nobody's deadline
        if not self._ahead and self._deadlines.timers.is_due(self._round_ms) and not self._flushing.silences(now_ms):
            events += self._fire_timers(now_ms, self._round_ms)
        if self._stepper.queued:
            events += self._stepper.catch_up(now_ms, MAX_EVENTS_IN_TURN)
        if self._stepper.chores:
            events += self._stepper.do_a_chore(now_ms)
        self._stepper.rows = 0
        if self._stepper.written or self._stepper.drafted:
            self._stepper.append_written(now_ms)
        if events:
            metrics = self.metrics
            metrics.turns += 1
            metrics.events += events
            metrics.largest_turn = max(metrics.largest_turn, events)

    def flush_job(self) -> FlushJob | None:
        """The next group commit, covering every append so far. None while one is running or nothing is to flush."""
        return self._flushing.next_job(self._slots) if self._flushing.dirty else None

    def flushed(self, job: FlushJob, now_ms: int = 0) -> None:
        """The job's `run` returned, `now_ms` if that is known: release what waited for it."""
        self._finished(job, now_ms)
        for shard, position in job.positions.items():
            self._reached(self._slots[shard], position, now_ms)

    def flush_failed(self, job: FlushJob, error: Exception, now_ms: int = 0) -> None:
        """The job's `run` raised: drop the shards that could not be flushed; the others have been."""
        self._flushing.finish(job)
        failed = error.shards if isinstance(error, LogFailed) and error.shards is not None else job.positions
        for shard, position in job.positions.items():
            if shard in failed:
                self._stepper.drop(self._slots[shard], f"its log cannot be flushed: {error}")
            else:
                self._reached(self._slots[shard], position, now_ms)

    def take_released(self) -> ReleasedAnswers:
        return self._answers.take_released()

    def _make_stepper(
        self, log: GroupLog, slots: list[ShardSlot], reports: Reports, metrics: Metrics, written_at_once: int
    ) -> Stepper:
        return Stepper(log, slots, reports, metrics, written_at_once, self._kind)

    def _excuse(self, slot: ShardSlot, kind: type[Event]) -> Reply:
        """The answer of a shard that is not active."""
        return loading_excuse(slot, kind)

    def _finished(self, job: FlushJob, now_ms: int) -> None:
        """A flush has ended well: was it too slow for members who wait?"""
        if (beyond_ms := self._flushing.finish(job, now_ms)) > 0:
            self.metrics.slow_flushes += 1
            self.move_deadlines(beyond_ms, now_ms)
        self.metrics.flushes += 1

    def _move(self, event: StoodStill, now_ms: int) -> None:
        self._deadlines.move(event.moved_ms)
        for slot in self._slots:
            self._stepper.step(slot, event, now_ms)

    def _reload(self, now_ms: int) -> None:
        """Load whose pause is over, and look whether there is room again where there was none."""
        self._loads.plan_fallen(now_ms)
        while (shard := self._loads.pauses.pop_due(now_ms)) is not None:
            self.load_shard(shard, now_ms)
        while (shard := self._starved.pauses.pop_due(now_ms)) is not None:
            self._stepper.probe(self._slots[shard], now_ms)

    def _fire_timers(self, now_ms: int, heard_ms: int) -> int:
        return self._deadlines.fire(heard_ms, now_ms, self._stepper.step, self._stepper.is_full)

    def _reached(self, slot: ShardSlot, position: int, now_ms: int) -> None:
        """The shard's first `position` appends are durable: tell what rests on them, then let patience end."""
        self._answers.reached(slot, position)
        if slot.patient:
            self._deadlines.answered(slot, max(now_ms, self._turned_ms))
