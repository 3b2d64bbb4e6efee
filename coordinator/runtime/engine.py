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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from muster.coordinator.core.effects import Effects, GroupChanged, Reply, ResolveRegex
from muster.coordinator.core.events import (
    Event,
    Forget,
    Loaded,
    Planned,
    RegexResolved,
    StoodStill,
    TimerFired,
    TopicsChanged,
    Unload,
)
from muster.coordinator.core.plan import PlanRequest
from muster.coordinator.core.refusals import refusal_reply
from muster.coordinator.core.shard import Shard
from muster.coordinator.core.types import Limits, RequestId, TimerKey
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.codec import encode
from muster.coordinator.runtime.codec_own import room_probe
from muster.coordinator.runtime.loader import LoadReport, replay
from muster.coordinator.runtime.metrics import Metrics
from muster.coordinator.runtime.orphans import made_anew, orphans_dropped
from muster.coordinator.runtime.ports import GroupLog, LogFailed
from muster.coordinator.runtime.refusals import is_request, refusal, while_loading
from muster.coordinator.runtime.slot import Core, Held, Notices, Replies, ShardStatus, Slot, not_served
from muster.coordinator.runtime.starved import NO_ROOM, OWED_LIMIT, PROBE_MS, Starved
from muster.coordinator.runtime.timers import Timers

INBOX_LIMIT = 20_000
"""Events that may wait for a turn. A turn empties the inbox, so only a stalled driver ever fills it."""

LONGEST_READING_MS = 5_000
"""After a stall, half of it, or this long, is for reading what came meanwhile: a node that has twice the power its load
takes has read it all by then. As a share of the stall, so that a node that often stands still expires members yet."""

SLOW_FLUSH_MS = 1_000
"""Answers that wait longer for a flush, and for the one before it, are held back so long that members who wait for
theirs fall silent: timers wait for its end, and move by what is beyond this. What is below is what a slow disk takes,
over and over."""

TIMERS_PER_TURN = 10_000
"""Timers that one turn fires; the rest are due in the next. A timer re-armed to the past cannot stop the node."""

SCRIPT_LIMIT = 16_384
"""Characters of a broken event that are reported."""

WELL = ("Heartbeat", ErrorCode.NONE)

MakeShard: TypeAlias = Callable[[Limits, int], Core]
BugReport: TypeAlias = Callable[[str, Exception], None]
"""Gets the event that broke a shard, as one line, and the exception."""
StatusReport: TypeAlias = Callable[[int, ShardStatus, str], None]
"""Gets a shard's new status and why, in one sentence."""


@dataclass(frozen=True, slots=True)
class Work:
    """Something a shard wants computed off the loop; its answer goes back with `Engine.answer_work`."""

    shard: int
    life: int
    request: PlanRequest | ResolveRegex


@dataclass(slots=True)
class Released:
    """What may be told now, in the order it was decided, and what is to be computed meanwhile."""

    replies: list[tuple[RequestId, Reply]] = field(default_factory=list)
    notices: list[GroupChanged] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FlushJob:
    """One group commit. `positions` maps each shard to the append it covers."""

    log: GroupLog
    positions: dict[int, int]

    def run(self) -> None:
        """Flush, in any thread. Raises LogFailed."""
        self.log.flush(list(self.positions))


@dataclass(eq=False, slots=True)
class LoadJob:
    """One shard's replay, into a core that nobody else has yet."""

    shard: int
    core: Core
    log: GroupLog
    report: LoadReport = field(default_factory=LoadReport)
    given_up: bool = False
    """Nobody wants it any more: it ends soon, with LogFailed."""

    def run(self) -> None:
        """Replay, in any thread. Raises LogFailed."""
        replay(self.log, self.shard, self.core, self.report, lambda: self.given_up)


def say_nothing(*_: object) -> None:
    """The default of both reports."""


class Engine:
    """The runtime of one node's shards. Every request submitted is answered exactly once, or forgotten on demand."""

    def __init__(
        self,
        log: GroupLog,
        shards: int,
        limits: Limits,
        make_shard: MakeShard = Shard,
        *,
        on_bug: BugReport = say_nothing,
        on_status: StatusReport = say_nothing,
        inbox_limit: int = INBOX_LIMIT,
        loads_elsewhere: bool = False,
    ) -> None:
        self._log = log
        self._limits = limits
        self._make_shard = make_shard
        self._on_bug = on_bug
        self._on_status = on_status
        self._inbox_limit = inbox_limit
        self._slots = [Slot(index) for index in range(shards)]
        self._inbox: deque[tuple[Slot, int, Event]] = deque()
        self._chores: deque[tuple[Slot, int, Event]] = deque()  # what is left of something long, a slice for a turn
        self._timers: Timers[tuple[int, TimerKey]] = Timers()
        self._reloads: Timers[int] = Timers()
        self._starved: dict[int, Starved] = {}  # by shard: its log has no room
        self._probes: Timers[int] = Timers()
        self._fallen: list[Slot] = []  # dropped since the last turn, reload not yet planned
        self._written: dict[int, Slot] = {}  # have records of this turn
        self._dirty: set[int] = set()  # have appends that no flush job covers yet
        self._dirty_since_ms = 0  # when the first of those was
        self._job: FlushJob | None = None
        self._loads_elsewhere = loads_elsewhere
        self._loading: dict[int, LoadJob] = {}
        self._load_jobs: deque[LoadJob] = deque()
        self._job_since_ms = 0  # when the first append that it covers was, less what deadlines have moved since
        self._turned_ms = 0
        self._unheard_ms = 0  # then answers went out behind which something may have waited that nobody has heard yet
        self._topics: TopicsChanged | None = None
        self._released = Released()
        self.metrics = Metrics()

    @property
    def shards(self) -> int:
        return len(self._slots)

    @property
    def pending(self) -> bool:
        """Whether a turn has something to do now, whatever the time."""
        return bool(self._inbox or self._fallen or self._chores)

    @property
    def next_deadline_ms(self) -> int | None:
        """No timer is due before this time; a turn at it may still find that the timer was pushed back.

        While a slow flush holds answers back none is: a turn has to follow its end.
        """
        timer_ms = None if self._silenced else self._timers.next_ms
        times = (timer_ms, self._reloads.next_ms, self._probes.next_ms)
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    @property
    def starved(self) -> Mapping[int, str]:
        """The shards whose log has no room, and in what words it said so."""
        return {shard: starved.why for shard, starved in self._starved.items()}

    def status(self, shard: int) -> ShardStatus:
        return self._slots[shard].status

    def core(self, shard: int) -> Core | None:
        """The shard's core for read-only inspection; None while it has none."""
        return self._slots[shard].core

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
        self._reloads.cancel(shard)
        # From here on it is wanted: one that was unloaded may fall, and be tried again.
        slot.status = ShardStatus.LOADING
        self._give_up_load(shard)
        job = self._loading[shard] = LoadJob(shard, self._make_shard(self._limits, shard), self._log)
        if self._loads_elsewhere:
            self._load_jobs.append(job)
            return
        try:
            job.run()
        except Exception as error:
            self.load_failed(job, error)
        else:
            self.loaded(job, now_ms)

    @property
    def loading(self) -> bool:
        """Whether a shard is being replayed or waits for it."""
        return bool(self._loading)

    def load_job(self) -> LoadJob | None:
        """The next replay to be run in any thread, one after the other; None when there is nothing to load."""
        while self._load_jobs:
            job = self._load_jobs.popleft()
            if not job.given_up:
                return job
        return None

    def loaded(self, job: LoadJob, now_ms: int) -> None:
        """The job's `run` returned: its core takes its place, unless the shard was given up meanwhile."""
        if self._loading.get(job.shard) is not job:
            return
        del self._loading[job.shard]
        slot = self._slots[job.shard]
        slot.report = job.report
        self.metrics.loads += 1
        self._activate(slot, job.core, now_ms)

    def load_failed(self, job: LoadJob, error: Exception) -> None:
        """The job's `run` raised: the shard fails, and is tried again after a pause."""
        if self._loading.get(job.shard) is not job:
            return
        del self._loading[job.shard]
        slot = self._slots[job.shard]
        slot.report = job.report
        if isinstance(error, LogFailed):
            self._drop(slot, f"its log cannot be read: {error}")
        else:  # a bug in apply must not take the other shards along
            self._on_bug(f"shard {job.shard} replay", error)
            self._drop(slot, f"a record of its log cannot be applied: {error!r}")

    def _give_up_load(self, shard: int) -> None:
        job = self._loading.pop(shard, None)
        if job is not None:
            job.given_up = True

    def submit(self, shard: int, event: Event) -> bool:
        """Queue an event for the next turn; False when the inbox is full and nothing was queued.

        A request to a shard that cannot take it is answered at once. A Forget is never refused.
        """
        slot = self._slots[shard]
        if is_request(event):
            if slot.status is not ShardStatus.ACTIVE:
                self._answer(type(event), event.request_id, excuse(slot, type(event)))
                return True
            if len(self._inbox) >= self._inbox_limit:
                self.metrics.refused += 1
                return False
            assert event.request_id not in slot.unanswered, f"request id {event.request_id} is in use"
            slot.unanswered[event.request_id] = event
        elif isinstance(event, Forget):
            slot.unanswered.pop(event.request_id, None)
        self._inbox.append((slot, slot.life, event))
        return True

    def beat(self, shard: int, group_id: str, member_id: str, generation: int, now_ms: int) -> bool:
        """Take a heartbeat past the queue, if it can be answered with "all is well" this very moment.

        False: nothing was done; submit it. So it is when something waits that came before it, or when the answer would
        rest on what is not durable yet. A timer that is due makes no difference: who is heard of first, lives.
        """
        slot = self._slots[shard]
        core = slot.core
        if core is None or self._inbox or slot.appended > slot.durable:
            return False
        if shard in self._starved and group_id in self._starved[shard].closed:
            return False
        renewal = core.beat(group_id, member_id, generation, now_ms)
        if renewal is None:
            return False
        key, at_ms = renewal
        self._timers.set((shard, key), at_ms)
        self.metrics.requests[WELL] += 1
        return True

    def answer_work(self, work: Work, event: Planned | RegexResolved) -> None:
        """Queue what came of `work`. A shard that was dropped since has forgotten its question, so it is void then."""
        self._inbox.append((self._slots[work.shard], work.life, event))

    def submit_all(self, event: Event) -> None:
        """Queue an event for every shard. A shard that is not active hears of the topics when it is loaded."""
        if isinstance(event, TopicsChanged):
            anew = () if self._topics is None else made_anew(self._topics.ids, event.ids)
            event = TopicsChanged(event.partitions, (*event.deleted, *anew), event.ids)
            self._topics = TopicsChanged(event.partitions, ids=event.ids)
        for slot in self._slots:
            if slot.status is ShardStatus.ACTIVE or not isinstance(event, TopicsChanged):
                self._inbox.append((slot, slot.life, event))

    def stood_still(self, stalled_ms: int, now_ms: int) -> None:
        """For so long, until now, nobody could be heard: all deadlines move by it, and by the time reading takes."""
        self.metrics.stood_still(stalled_ms)
        # A flush that seems to take long because of it does not count twice.
        self._job_since_ms += stalled_ms
        self._dirty_since_ms = min(self._dirty_since_ms + stalled_ms, now_ms)
        self._move(StoodStill(stalled_ms, moved_by(stalled_ms)), now_ms)

    def move_deadlines(self, by_ms: int, now_ms: int) -> None:
        """All deadlines come later by that much, though the node did not stand still: it starts, or its disk does."""
        self._move(StoodStill(0, by_ms), now_ms)

    def turn(self, now_ms: int, heard_ms: int | None = None) -> None:
        """Reload what fell, step all that is queued, fire due timers, and append once for each shard with records.

        What was queued goes before timers: a member is expired only if nothing it said waits. `heard_ms` is until when
        everything that had come to the node has been queued, if that is not now; later deadlines wait. So do those of
        members whose answers are held back for a flush: whoever waits for the node is not silent.
        """
        self._turned_ms = now_ms
        self._reload_fallen(now_ms)
        events = len(self._inbox)
        while self._inbox:
            slot, life, event = self._inbox.popleft()
            # What was queued for an earlier life is void, but a wish to be rid of the shard is not.
            if life == slot.life or isinstance(event, Unload):
                self._step(slot, event, now_ms)
        if not self._silenced:
            events += self._fire_timers(now_ms, now_ms if heard_ms is None else heard_ms)
        events += self._do_a_chore(now_ms)
        self._append_written(now_ms)
        self.metrics.turned(events)

    def flush_job(self) -> FlushJob | None:
        """The next group commit, covering every append so far. None while one is running or nothing is to flush."""
        if self._job is not None or not self._dirty:
            return None
        self._job = FlushJob(self._log, {shard: self._slots[shard].appended for shard in sorted(self._dirty)})
        self._dirty.clear()
        self._job_since_ms = self._dirty_since_ms
        return self._job

    def flushed(self, job: FlushJob, now_ms: int = 0) -> None:
        """The job's `run` returned, `now_ms` if that is known: release what waited for it."""
        self._finish(job)
        if (beyond_ms := now_ms - self._job_since_ms - SLOW_FLUSH_MS) > 0:
            self.metrics.slow_flushes += 1
            self.move_deadlines(beyond_ms, now_ms)
            self._dirty_since_ms = min(self._dirty_since_ms + beyond_ms, now_ms)
        self.metrics.flushes += 1
        for shard, position in job.positions.items():
            self._reached(self._slots[shard], position, now_ms)

    def flush_failed(self, job: FlushJob, error: Exception, now_ms: int = 0) -> None:
        """The job's `run` raised: drop the shards that could not be flushed; the others have been."""
        self._finish(job)
        failed = error.shards if isinstance(error, LogFailed) and error.shards is not None else job.positions
        for shard, position in job.positions.items():
            if shard in failed:
                self._drop(self._slots[shard], f"its log cannot be flushed: {error}")
            else:
                self._reached(self._slots[shard], position, now_ms)

    def take_released(self) -> Released:
        released, self._released = self._released, Released()
        return released

    def _activate(self, slot: Slot, core: Core, now_ms: int) -> None:
        slot.core = core
        slot.status = ShardStatus.ACTIVE
        if slot.report.records:
            # The process may have died between append and flush: what was read is not durable until flushed again.
            self._wrote(slot, now_ms)
        if slot.report.moved:
            self._take(slot, Effects(records=list(slot.report.moved)))
        self._on_status(slot.index, slot.status, summary(slot.report))
        if self._topics is not None:
            self._step(slot, self._topics, now_ms)
        told = len(slot.records)
        self._step(slot, Loaded(), now_ms)
        if dropped := orphans_dropped(slot.records[told:]):
            slot.report.orphans = dropped
            self._on_status(slot.index, slot.status, dropped)
        self._append_written(now_ms)
        if slot.index in self._starved:
            self._probe(slot, now_ms)

    @property
    def _silenced(self) -> bool:
        """Whether, by the last turn, members fall silent because their answers wait for a slow flush."""
        return self._job is not None and self._turned_ms - self._job_since_ms > SLOW_FLUSH_MS

    def _move(self, event: StoodStill, now_ms: int) -> None:
        self._timers.move(event.moved_ms)
        for starved in self._starved.values():
            starved.timers = {key: at_ms + event.moved_ms for key, at_ms in starved.timers.items()}
        for slot in self._slots:
            slot.patient = {key: at_ms + event.moved_ms for key, at_ms in slot.patient.items()}
            self._step(slot, event, now_ms)

    def _reload_fallen(self, now_ms: int) -> None:
        fallen, self._fallen = self._fallen, []
        for slot in fallen:
            if slot.status is not ShardStatus.FAILED:
                continue  # loaded or unloaded by hand meanwhile
            self._reloads.set(slot.index, now_ms + slot.pause_ms(now_ms))
        while due := self._reloads.pop_due(now_ms):
            self.load_shard(due[0], now_ms)
        while due := self._probes.pop_due(now_ms):
            self._probe(self._slots[due[0]], now_ms)

    def _fire_timers(self, now_ms: int, heard_ms: int) -> int:
        if heard_ms < self._unheard_ms:
            return 0
        held_back: dict[int, set[tuple[str, ...]]] = {}
        for fired in range(TIMERS_PER_TURN):
            due = self._timers.pop_due(heard_ms)
            if due is None:
                return fired
            (shard, key), deadline_ms = due
            slot = self._slots[shard]
            if slot.held and shard not in held_back:
                held_back[shard] = slot.held_back()
            if slot.held and key[1:] in held_back[shard]:
                slot.patient[key] = deadline_ms
            else:
                self._step(slot, TimerFired(key, deadline_ms), now_ms)
        return TIMERS_PER_TURN

    def _do_a_chore(self, now_ms: int) -> int:
        """One slice in a turn, of whichever shard: what was queued meanwhile goes before the next."""
        while self._chores:
            slot, life, event = self._chores.popleft()
            if life == slot.life:
                self._step(slot, event, now_ms)
                return 1
        return 0

    def _step(self, slot: Slot, event: Event, now_ms: int) -> None:
        if slot.core is None:
            if isinstance(event, Unload):
                self._unload(slot)
            return
        if slot.index in self._starved and not self._goes_on(slot, slot.core, event):
            return
        try:
            effects = slot.core.step(event, now_ms)
        except Exception as error:  # a bug stops the shard, not the node
            self._on_bug(script_line(slot.index, event, now_ms), error)
            self._drop(slot, f"a bug broke it: {error!r}")
            return
        self._take(slot, effects)
        if isinstance(event, Unload):
            self._unload(slot)

    def _goes_on(self, slot: Slot, core: Core, event: Event) -> bool:
        """Whether an event is stepped though the log has no room; otherwise it has been refused, or waits."""
        starved = self._starved[slot.index]
        if isinstance(event, TimerFired):
            starved.timers[event.key] = event.deadline_ms
            return False
        if not is_request(event) or starved.takes(event, getattr(event, "group_id", ""), core):
            return True
        if slot.unanswered.pop(event.request_id, None) is not None:
            self._answer(type(event), event.request_id, refusal_reply(event, NO_ROOM, starved.refusal()))
        return False

    def _probe(self, slot: Slot, now_ms: int) -> None:
        """See whether the log takes what is owed. If it does, all goes on, and nobody was late meanwhile."""
        starved = self._starved[slot.index]
        if slot.core is None:
            return  # it is to be loaded again, and looked at then
        encoded = encode(starved.owed)
        try:
            self._log.append(slot.index, [*encoded.groups, room_probe()], encoded.ledger, now_ms)
        except LogFailed as error:
            if error.no_room:
                self._probes.set(slot.index, now_ms + PROBE_MS)
            else:
                self._drop(slot, f"its log takes no records: {error}")
            return
        self._wrote(slot, now_ms)
        del self._starved[slot.index]
        for replies, notices in starved.waiting:
            self._tell(slot, replies, notices)
        for key, deadline_ms in starved.timers.items():
            self._timers.set((slot.index, key), deadline_ms)
        waited_ms = now_ms - starved.since_ms
        self._timers.move(waited_ms, lambda key: key[0] == slot.index)
        slot.patient = {key: at_ms + waited_ms for key, at_ms in slot.patient.items()}
        self._step(slot, StoodStill(0, waited_ms), now_ms)
        self._on_status(slot.index, slot.status, "its log has room again")

    def _take(self, slot: Slot, effects: Effects) -> None:
        if slot.index in self._starved:
            starved = self._starved[slot.index]
            effects = starved.owe(effects)
            if len(starved.owed) > OWED_LIMIT:
                self._drop(slot, f"it owes its log more than {OWED_LIMIT} facts: {starved.why}")
                return
        if effects.records:
            slot.records += effects.records
            self._written[slot.index] = slot
        for key, at_ms in effects.timers.items():
            if at_ms is None:
                self._timers.cancel((slot.index, key))
            else:
                self._timers.set((slot.index, key), at_ms)
        for plan in effects.plans:
            self._released.work.append(Work(slot.index, slot.life, plan))
        for regex in effects.regexes:
            self._released.work.append(Work(slot.index, slot.life, regex))
        for chore in effects.chores:
            self._chores.append((slot, slot.life, chore))
        if effects.replies or effects.notices:
            self._tell(slot, effects.replies, effects.notices)

    def _tell(self, slot: Slot, replies: Replies, notices: Notices) -> None:
        """Release at once what rests on durable facts only; hold the rest."""
        position = slot.position
        if position <= slot.durable:
            self._release(slot, replies, notices)
        else:
            slot.held.append(Held(position, replies, notices))
            self.metrics.held += len(replies)

    def _append_written(self, now_ms: int) -> None:
        written, self._written = self._written, {}
        for slot in written.values():
            records, slot.records = slot.records, []
            if not records:
                continue  # the shard was dropped after it had decided something
            try:
                encoded = encode(records)
                self._log.append(slot.index, encoded.groups, encoded.ledger, now_ms)
            except LogFailed as error:
                if error.no_room:
                    self._starved.setdefault(slot.index, Starved(now_ms, str(error)))
                self._drop(slot, f"its log takes no records: {error}")
            except Exception as error:  # a record that has no bytes is a bug of whoever let it in
                self._on_bug(f"shard {slot.index} at {now_ms}ms append", error)
                self._drop(slot, f"its records cannot be encoded: {error!r}")
            else:
                self.metrics.appends += 1
                self.metrics.records += len(encoded.groups) + len(encoded.ledger)
                if encoded.ledger:
                    self.metrics.decided(records)
                self._wrote(slot, now_ms)

    def _wrote(self, slot: Slot, now_ms: int) -> None:
        slot.appended += 1
        if not self._dirty:
            self._dirty_since_ms = now_ms
        self._dirty.add(slot.index)

    def _finish(self, job: FlushJob) -> None:
        if job is not self._job:
            raise ValueError(f"the flush job of shards {sorted(job.positions)} is not the one in flight")
        self._job = None

    def _reached(self, slot: Slot, position: int, now_ms: int) -> None:
        """The shard's first `position` appends are durable: tell what rests on them, then let patience end."""
        slot.durable = max(slot.durable, position)
        while slot.held and slot.held[0].position <= slot.durable:
            held = slot.held.popleft()
            self.metrics.held -= len(held.replies)
            self._release(slot, held.replies, held.notices)
        if slot.patient:
            self._unheard_ms = max(now_ms, self._turned_ms)
            patient, slot.patient = slot.patient, {}
            for key, deadline_ms in patient.items():
                if self._timers.deadline((slot.index, key)) is None:  # otherwise the member was heard meanwhile
                    self._timers.set((slot.index, key), deadline_ms)

    def _release(self, slot: Slot, replies: Replies, notices: Notices) -> None:
        for request_id, reply in replies:
            request = slot.unanswered.pop(request_id, None)
            if request is not None:  # None: its client is gone
                self._answer(type(request), request_id, reply)
        self._released.notices += notices

    def _answer(self, kind: type[Event], request_id: RequestId, reply: Reply) -> None:
        self.metrics.requests[kind.__name__, reply.code] += 1
        self._released.replies.append((request_id, reply))

    def _drop(self, slot: Slot, why: str) -> None:
        """One path for every failure: forget the state, answer everyone, replay the log later."""
        self.metrics.failures += 1
        if starved := self._starved.get(slot.index):
            self._starved[slot.index] = Starved(starved.since_ms, starved.why)
            self._probes.cancel(slot.index)
        self._void(slot)
        slot.why = not_served(slot.index, why)
        self._refuse(slot, list(slot.unanswered), slot.why)
        if slot.status is not ShardStatus.UNLOADED:
            slot.status = ShardStatus.FAILED
            self._fallen.append(slot)
        self._on_status(slot.index, slot.status, why)

    def _void(self, slot: Slot) -> None:
        slot.life += 1
        slot.core = None
        slot.records.clear()
        self.metrics.held -= sum(len(held.replies) for held in slot.held)
        slot.held.clear()
        slot.patient.clear()
        self._timers.cancel_all(lambda key: key[0] == slot.index)

    def _refuse(self, slot: Slot, request_ids: list[RequestId], why: str = "") -> None:
        for request_id in request_ids:
            kind = type(slot.unanswered.pop(request_id))
            self._answer(kind, request_id, refusal(kind, ErrorCode.NOT_COORDINATOR, why))

    def _unload(self, slot: Slot) -> None:
        """Take nothing more. Answers that wait for a flush still come; all other requests are refused."""
        self._reloads.cancel(slot.index)
        self._give_up_load(slot.index)
        slot.life += 1
        slot.core = None
        self._starved.pop(slot.index, None)
        self._probes.cancel(slot.index)
        slot.status = ShardStatus.UNLOADED
        slot.patient.clear()
        self._timers.cancel_all(lambda key: key[0] == slot.index)
        promised = {request_id for held in slot.held for request_id, _ in held.replies}
        self._refuse(slot, [request_id for request_id in slot.unanswered if request_id not in promised])
        self._on_status(slot.index, slot.status, "it was asked to go")


def moved_by(stalled_ms: int) -> int:
    """How much later every deadline comes for a stall.

    >>> moved_by(1_000), moved_by(60_000)
    (1500, 65000)
    """
    return stalled_ms + min(stalled_ms // 2, LONGEST_READING_MS)


def excuse(slot: Slot, kind: type[Event]) -> Reply:
    """The answer of a shard that is not active."""
    if slot.status is ShardStatus.LOADING:
        return while_loading(kind)
    return refusal(kind, ErrorCode.NOT_COORDINATOR, slot.why if slot.status is ShardStatus.FAILED else "")


def script_line(shard: int, event: Event, now_ms: int) -> str:
    """The event as one line of Python: evaluated, it is the event again (unless it was too long to print whole)."""
    text = repr(event)
    cut = f"... ({len(text) - SCRIPT_LIMIT} more characters)" if len(text) > SCRIPT_LIMIT else ""
    return f"shard {shard} at {now_ms}ms: {text[:SCRIPT_LIMIT]}{cut}"


def summary(report: LoadReport) -> str:
    text = f"replayed {report.groups} group records and {report.ledger} ledger records"
    if report.skipped:
        kinds = ", ".join(f"{count} of {kind}" for kind, count in sorted(report.skipped.items()))
        text += f"; skipped {kinds}"
    if report.malformed:
        text += f"; {report.malformed} malformed: " + "; ".join(report.complaints)
    return text
