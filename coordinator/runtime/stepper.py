"""Steps events through the cores and carries out the effects: appends records, sets timers, releases or holds answers.

A shard that fails is dropped alone: every waiting request is answered, and its log is replayed. `ShardLoads` says
which shards are being replayed, wait for it, or are tried again after a pause.

Group commit: one flush at a time covers all appends so far; `FlushQueue` notices a flush so slow that members fall
silent.

A shard whose log has no room goes on with what needs no write. Requests that would write are refused as
COORDINATOR_NOT_AVAILABLE (clients try again) without being read, except that their senders count as alive, and timers
wait: no member expires for requests that were not taken. Facts that arise nevertheless, from a plan or a changed
topic, are owed: their groups are closed until the log has taken them, so no client receives them before.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.events import (
    Event,
    Loaded,
    StoodStill,
    TimerFired,
    TopicsChanged,
    TurnedAway,
    TxnOffsetCommit,
    Unload,
)
from muster.coordinator.core.model.records import Record
from muster.coordinator.core.model.types import RequestId, TimerKey
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.deadlines import Deadlines, RetryPauses
from muster.coordinator.runtime.node_status import Metrics
from muster.coordinator.runtime.ports import Entry, GroupLog, LogFailed, TxnProducer
from muster.coordinator.runtime.replay import LoadReport, describe_dropped_orphans
from muster.coordinator.runtime.shards import (
    GROUPS,
    Answers,
    AppendDraft,
    Notices,
    Replies,
    ShardCore,
    ShardKind,
    ShardSlot,
    ShardStatus,
    Writer,
    is_request,
    not_served_sentence,
    refuse_request,
    take_several_turns,
    writer_asked_for,
    writer_of,
)

# Group commit
# ------------

SLOW_FLUSH_MS = 1_000
"""Answers that wait longer for a flush, and for the one before it, are held back so long that members who wait for
theirs fall silent: timers wait for its end, and move by what is beyond this. What is below is what a slow disk takes,
over and over."""


@dataclass(frozen=True, slots=True)
class FlushJob:
    """One group commit. `positions` maps each shard to the append it covers."""

    log: GroupLog
    positions: dict[int, int]

    def run(self) -> None:
        """Flush, in any thread. Raises LogFailed."""
        self.log.flush(list(self.positions))


class FlushQueue:
    """The job in flight, and the appends that the next one covers, each with the time of the first append."""

    def __init__(self, log: GroupLog) -> None:
        self._log = log
        self.dirty: set[int] = set()
        """Shards with appends that no flush job covers yet."""
        self._dirty_since_ms = 0  # when the first of those was
        self.job: FlushJob | None = None
        """In flight."""
        self._job_since_ms = 0  # when the first append that it covers was, less what deadlines have moved since

    def wrote(self, slot: ShardSlot, now_ms: int) -> None:
        """The shard has one append more, or was replayed."""
        slot.appended += 1
        if not self.dirty:
            self._dirty_since_ms = now_ms
        self.dirty.add(slot.index)

    def next_job(self, slots: Sequence[ShardSlot]) -> FlushJob | None:
        """A job for every append so far. None while one is running or nothing is to flush."""
        if self.job is not None or not self.dirty:
            return None
        positions: dict[int, int] = {}
        for shard in sorted(self.dirty):
            positions[shard] = slots[shard].appended
        self.job = FlushJob(self._log, positions)
        self.dirty.clear()
        self._job_since_ms = self._dirty_since_ms
        return self.job

    def finish(self, job: FlushJob, now_ms: int | None = None) -> int:
        """The job has ended: well, at `now_ms`, or not. Raises ValueError for one that is not in flight.

        Returns how much longer it took than members can wait, if it ended well; at most 0 when it was in time.
        Deadlines move by that, so what waits for the next job has not waited as long either.
        """
        if job is not self.job:
            raise ValueError(f"the flush job of shards {sorted(job.positions)} is not the one in flight")
        self.job = None
        if now_ms is None:
            return 0
        beyond_ms = now_ms - self._job_since_ms - SLOW_FLUSH_MS
        if beyond_ms > 0:
            self._dirty_since_ms = min(self._dirty_since_ms + beyond_ms, now_ms)
        return beyond_ms

    def silences(self, now_ms: int) -> bool:
        """Whether members fall silent because their answers wait for a slow flush."""
        return self.job is not None and now_ms - self._job_since_ms > SLOW_FLUSH_MS

    def stood_still(self, stalled_ms: int, now_ms: int) -> None:
        """A flush that seems to take long because the node stood still does not count twice."""
        self._job_since_ms += stalled_ms
        self._dirty_since_ms = min(self._dirty_since_ms + stalled_ms, now_ms)


# Shards whose log has no room
# ----------------------------

PROBE_MS = 1_000
"""How long between two looks whether there is room again."""

OWED_LIMIT = 20_000
"""Facts that are owed at most; a shard that owes more is dropped, and loaded again after a pause."""

NO_ROOM = ErrorCode.COORDINATOR_NOT_AVAILABLE


@dataclass(slots=True)
class StarvedShard:
    """What a shard keeps while its log takes nothing."""

    since_ms: int
    why: str
    owed: list[Record] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)
    """Groups that owe facts."""
    due: set[TimerKey] = field(default_factory=set)
    """Timers that came due meanwhile, and were not fired."""
    waiting: list[tuple[Replies, Notices]] = field(default_factory=list)
    """What may be told once the facts that are owed are durable."""

    def takes(self, event: Event, group_id: str, core: ShardCore) -> bool:
        """Whether a request can be answered without a write, and without telling what is owed."""
        return group_id not in self.closed and core.writes_nothing(event)

    def owe(self, effects: Effects, unanswered: Mapping[RequestId, Event]) -> Effects:
        """Keep back the facts of a step and what rests on them; what is left may go its way.

        A step that leaves no fact may tell of a group that owes some: rights have changed, and it calls a member back.
        """
        if not effects.records:
            return self._told_of_others(effects, unanswered) if effects.replies or effects.notices else effects
        self.owed += effects.records
        self.closed.update(group_concerned(record) for record in effects.records)
        self.waiting.append((effects.replies, effects.notices))
        return Effects(
            timers=effects.timers,
            plans=effects.plans,
            regexes=effects.regexes,
            measures=effects.measures,
            chores=effects.chores,
        )

    def _told_of_others(self, effects: Effects, unanswered: Mapping[RequestId, Event]) -> Effects:
        """Keep back what tells of groups that owe facts."""
        about = {
            request_id: group_concerned(unanswered[request_id])
            for request_id, _ in effects.replies
            if request_id in unanswered
        }
        replies = [each for each in effects.replies if about.get(each[0]) in self.closed]
        notices = [each for each in effects.notices if group_concerned(each) in self.closed]
        if not replies and not notices:
            return effects
        self.waiting.append((replies, notices))
        return Effects(
            replies=[each for each in effects.replies if each not in replies],
            timers=effects.timers,
            notices=[each for each in effects.notices if each not in notices],
            plans=effects.plans,
            regexes=effects.regexes,
            measures=effects.measures,
            chores=effects.chores,
        )

    def refusal(self) -> str:
        return f"the coordinator can write nothing down at the moment, try again later: {self.why}"

    def probe(self, kind: ShardKind) -> tuple[Sequence[Entry], Sequence[Entry]]:
        """What is owed, for both topics, and a record that asks for room even if nothing is."""
        encoded = kind.encode(self.owed)
        return [*encoded.groups, kind.room_probe()], encoded.ledger


class StarvedShards:
    """The shards whose log has no room, and when to look again."""

    def __init__(self) -> None:
        self.by_shard: dict[int, StarvedShard] = {}
        self.pauses = RetryPauses()
        """Until the next look."""

    def closes(self, shard: int, group_id: str) -> bool:
        """Whether nothing may be told of a group, for it owes facts."""
        return shard in self.by_shard and group_id in self.by_shard[shard].closed

    def refused(self, shard: int, why: str, now_ms: int) -> None:
        """The shard's log has refused records for want of room."""
        self.by_shard.setdefault(shard, StarvedShard(now_ms, why))

    def dropped(self, shard: int) -> None:
        """What it owes was never told, and is forgotten with its core; the log is as full. See `probe` once loaded."""
        if starved := self.by_shard.get(shard):
            self.by_shard[shard] = StarvedShard(starved.since_ms, starved.why)
            self.pauses.cancel(shard)

    def forget(self, shard: int) -> None:
        self.by_shard.pop(shard, None)
        self.pauses.cancel(shard)

    def look_again(self, shard: int, now_ms: int) -> None:
        """There is still no room."""
        self.pauses.set(shard, now_ms + PROBE_MS)

    def looked_at(self, shard: int) -> None:
        """It is being looked at now."""
        self.pauses.cancel(shard)


def group_concerned(said: object) -> str:
    """Whose fact it is, or what a request is about; the node's own belong to nobody."""
    return str(getattr(said, "group_id", ""))


# Shards to be replayed
# ---------------------


@dataclass(eq=False, slots=True)
class LoadJob:
    """One shard's replay, into a core that nobody else has yet."""

    shard: int
    core: ShardCore
    log: GroupLog
    kind: ShardKind = GROUPS
    report: LoadReport = field(default_factory=LoadReport)
    given_up: bool = False
    """Nobody wants it any more: it ends soon, with LogFailed."""

    def run(self) -> None:
        """Replay, in any thread. Raises LogFailed."""
        self.kind.replay(self.log, self.shard, self.core, self.report, lambda: self.given_up)
        self.report.committed_to = self.core.committed_to()


class ShardLoads:
    """At most one job a shard is wanted. A shard that fell is planned by the next turn, which knows the time."""

    def __init__(self) -> None:
        self.jobs: dict[int, LoadJob] = {}
        """Shards that are being replayed or wait for it."""
        self._queue: deque[LoadJob] = deque()  # those that the driver has not taken yet
        self.pauses = RetryPauses()
        """Until those that failed are tried again."""
        self.fallen: list[ShardSlot] = []
        """Dropped since the last turn, reload not yet planned."""

    def start_job(self, job: LoadJob) -> None:
        """It takes the place of the shard's job before it, and ends a pause."""
        self.forget(job.shard)
        self.jobs[job.shard] = job

    def forget(self, shard: int) -> None:
        """Nobody wants the shard loaded any more, now or after a pause."""
        self.pauses.cancel(shard)
        job = self.jobs.pop(shard, None)
        if job is not None:
            job.given_up = True

    def queue(self, job: LoadJob) -> None:
        """The driver shall run it."""
        self._queue.append(job)

    def next_job(self) -> LoadJob | None:
        """The first in the queue that is still wanted; None when there is nothing to load."""
        while self._queue:
            job = self._queue.popleft()
            if not job.given_up:
                return job
        return None

    def ended(self, job: LoadJob) -> bool:
        """The job's `run` came to an end: whether anybody still wants what came of it."""
        if self.jobs.get(job.shard) is not job:
            return False
        del self.jobs[job.shard]
        return True

    def plan_fallen(self, now_ms: int) -> None:
        """Each shard that fell is tried again after its pause, unless it was loaded or unloaded by hand meanwhile."""
        fallen, self.fallen = self.fallen, []
        for slot in fallen:
            if slot.status is ShardStatus.FAILED:
                self.pauses.set(slot.index, now_ms + slot.pause_ms(now_ms))


MAX_ROWS_IN_TURN: Final = 500
"""So many rows of long replies, in some two milliseconds, end a turn: fifty who ask for thousands have fifty turns."""

PASSING = (StoodStill, Unload)
"""Events that wait for nothing: deadlines move by the first at once, and after the second nothing is stepped."""

SCRIPT_LIMIT = 16_384
"""Characters of a broken event that are reported."""

BugReport: TypeAlias = Callable[[str, Exception], None]
"""Gets the event that broke a shard, as one line, and the exception."""
StatusReport: TypeAlias = Callable[[int, ShardStatus, str], None]
"""Gets a shard's new status and why, in one sentence."""


@dataclass(frozen=True, slots=True)
class Reports:
    """Who hears of bugs and of shards that come and go."""

    bug: BugReport
    status: StatusReport


class Stepper:
    """Keeps records until they are appended, and slices of chores; for all else that waits there is a class each.

    More than `written_at_once` entries of the log are not made in one turn.
    """

    def __init__(
        self,
        log: GroupLog,
        slots: Sequence[ShardSlot],
        reports: Reports,
        metrics: Metrics,
        written_at_once: int,
        kind: ShardKind = GROUPS,
    ) -> None:
        self._log = log
        self._at_once = written_at_once
        self._kind = kind
        self._reports = reports
        self._metrics = metrics
        self.answers = Answers(metrics)
        self.deadlines = Deadlines(slots)
        self.flushing = FlushQueue(log)
        self.loads = ShardLoads()
        self.starved = StarvedShards()
        self.chores: deque[tuple[ShardSlot, int, Event]] = deque()
        """What is left of something long, a slice for a turn."""
        self.written: dict[int, ShardSlot] = {}
        """Those that have records of this turn."""
        self.drafted: dict[int, ShardSlot] = {}
        """Those that have a draft; whose turn is next comes first."""
        self.queued: dict[int, ShardSlot] = {}
        """Those of which events wait behind something long."""
        self.waiting = 0
        """How many events that are."""
        self.rows = 0
        """Of long replies, given in this turn."""

    def is_full(self) -> bool:
        """Whether this turn has had its rows."""
        return self.rows >= MAX_ROWS_IN_TURN

    def step(self, slot: ShardSlot, event: Event, now_ms: int, *, waited: bool = False) -> None:
        """waited: it has, behind something long, and its turn has come."""
        if slot.behind is not None and not waited and event is not slot.rest and not isinstance(event, PASSING):
            self._wait(slot, event)
            return
        if slot.core is None:
            if isinstance(event, Unload):
                self._unload(slot)
            return
        if slot.index in self.starved.by_shard and not self._goes_on(slot, slot.core, event, now_ms):
            return
        if type(event) in self._kind.of_transactions and not self._admitted(slot, event, now_ms):
            return
        try:
            effects = slot.core.step(event, now_ms)
        except Exception as error:  # a bug stops the shard, not the node
            self._reports.bug(script_line(slot.index, event, now_ms), error)
            self.drop(slot, f"a bug broke it: {error!r}")
            return
        if effects.rows:
            self.rows += effects.rows
        if effects.rest is not None or (slot.rest is not None and event is slot.rest):
            self._take_slice(slot, effects)
        else:
            self._apply_effects(slot, effects)
        if isinstance(event, Unload):
            self._unload(slot)

    def _wait(self, slot: ShardSlot, event: Event) -> None:
        """Take its place behind something long. A timer is looked at again when that is over: it may have moved."""
        assert slot.behind is not None, f"nothing has to wait in shard {slot.index}"
        if isinstance(event, TimerFired):
            slot.overdue.add(event.key)
        else:
            slot.behind.append(event)
            self.waiting += 1

    def _close_queue(self, slot: ShardSlot) -> None:
        """Nothing has to wait in the shard any longer, or nothing counts that does."""
        if slot.behind is not None:
            self.waiting -= len(slot.behind)
            slot.behind = slot.rest = None
            slot.sliced.clear()
            slot.overdue.clear()
            del self.queued[slot.index]

    def _open_queue(self, slot: ShardSlot) -> None:
        """From here on all that comes for the shard waits."""
        if slot.behind is None:
            slot.behind = deque()
            self.queued[slot.index] = slot

    def catch_up(self, now_ms: int, most: int) -> int:
        """Step so many at most of those that have waited, and have to no longer; how many it were."""
        stepped = 0
        for slot in list(self.queued.values()):
            while slot.behind and slot.rest is None and stepped < most and self.rows < MAX_ROWS_IN_TURN:
                event = slot.behind[0]
                if slot.draft is not None and self._asks_the_log(event):
                    break
                slot.behind.popleft()
                self.waiting -= 1
                stepped += 1
                self.step(slot, event, now_ms, waited=True)
            if slot.behind is not None and not slot.behind and slot.rest is None:
                overdue = tuple(slot.overdue)
                self._close_queue(slot)
                self.deadlines.look_again(slot, overdue)
        return stepped

    def _take_slice(self, slot: ShardSlot, effects: Effects) -> None:
        """A step has left a rest of its event, or none of one that it was the rest of."""
        slot.sliced += effects.records
        effects.records = []
        slot.rest = effects.rest
        if slot.rest is not None:
            self._open_queue(slot)
            effects.chores.append(slot.rest)
        else:
            effects.records, slot.sliced = slot.sliced, []
            slot.in_transactions |= any(writer_of(record) is not None for record in effects.records)
        self._apply_effects(slot, effects, sliced=True)

    def do_a_chore(self, now_ms: int) -> int:
        """One slice in a turn, of whichever shard: what was queued meanwhile goes before the next."""
        while self.chores:
            slot, life, event = self.chores.popleft()
            if life == slot.life:
                self.step(slot, event, now_ms)
                return 1
        return 0

    def activate(self, slot: ShardSlot, core: ShardCore, topics: TopicsChanged | None, now_ms: int) -> None:
        """The core was replayed: it takes its place, hears of the topics, and goes on."""
        slot.core = core
        slot.status = ShardStatus.ACTIVE
        if slot.report.records:
            # The process may have died between append and flush: what was read is not durable until flushed again.
            self.flushing.wrote(slot, now_ms)
        if slot.report.moved:
            self._apply_effects(slot, Effects(records=list(slot.report.moved)))
        self._reports.status(slot.index, slot.status, slot.report.summary())
        if topics is not None:
            self.step(slot, topics, now_ms)
        loaded = Loaded(tuple(slot.report.damaged), slot.report.lost_until, frozenset(slot.report.committed_to))
        self.step(slot, loaded, now_ms)
        if dropped := describe_dropped_orphans(slot.report.committed_to, topics):
            slot.report.orphans = dropped
            self._reports.status(slot.index, slot.status, dropped)
        self.append_written(now_ms)
        if slot.index in self.starved.by_shard:
            self.probe(slot, now_ms)

    def append_written(self, now_ms: int) -> None:
        """One append for each shard that has decided something; of those that are long, a portion of one in a turn."""
        if self.drafted:
            self._write_on(next(iter(self.drafted.values())), now_ms)
        written, self.written = self.written, {}
        for slot in written.values():
            if slot.draft is None:
                self._append(slot, now_ms)

    def finish_drafts(self, slot: ShardSlot, now_ms: int) -> None:
        """All that a shard has decided goes into its log now, however long it is."""
        while slot.draft is not None:
            self._write_on(slot, now_ms)

    def _append(self, slot: ShardSlot, now_ms: int) -> None:
        """What the shard has decided so far, if it is not long. What is decided later waits for the end of a draft."""
        records, slot.records = slot.records, []
        if not records:
            return  # the shard was dropped after it had decided something
        long = take_several_turns(records, self._at_once)
        if long or slot.in_transactions:
            slot.in_transactions = False
            slot.draft = AppendDraft(records, self._at_once, self._log.draft, self._kind)
            self.drafted[slot.index] = slot
            if not long:
                self.finish_drafts(slot, now_ms)
            return
        try:
            encoded = self._kind.encode(records)
        except Exception as error:  # a record that has no bytes is a bug of whoever let it in
            self._unwritable(slot, error, now_ms)
        else:
            self._keep(slot, records, ((None, encoded.groups),), encoded.ledger, now_ms)

    def _write_on(self, slot: ShardSlot, now_ms: int) -> None:
        """A portion of the shard's draft; once there is none left, its append, and what was decided meanwhile."""
        draft = self._no_draft(slot)
        assert draft is not None, f"shard {slot.index} has no draft"
        full = draft.take_full()
        try:
            more = full is not None or draft.write_on()
        except Exception as error:
            self._unwritable(slot, error, now_ms)
            return
        if full is not None:
            self._keep(slot, (), [full], (), now_ms, whole=False)
            if slot.core is None:
                return  # it was dropped
        if more:
            slot.draft, self.drafted[slot.index] = draft, slot  # behind those of other shards
            return
        self._keep(slot, draft.records, draft.parts, draft.ledger, now_ms)
        self._append(slot, now_ms)

    def _no_draft(self, slot: ShardSlot) -> AppendDraft | None:
        """The shard's draft, which it has no longer."""
        draft, slot.draft = slot.draft, None
        self.drafted.pop(slot.index, None)
        return draft

    def _keep(
        self,
        slot: ShardSlot,
        records: Sequence[Record],
        parts: Sequence[tuple[Writer, Sequence[Entry]]],
        ledger: Sequence[Entry],
        now_ms: int,
        *,
        whole: bool = True,
    ) -> None:
        """One append, of one batch or of several in order; or, unless it is `whole` then, the first batches of one. If
        a later one fails, the replay finds the earlier ones."""
        explained, entries = bool(ledger), len(ledger)
        try:
            for writer, groups in parts:
                entries += len(groups)
                if writer is None:
                    self._log.append(slot.index, groups, ledger, now_ms)
                    ledger = ()
                elif isinstance(writer, TxnProducer):
                    self._log.append_in_transaction(slot.index, writer, groups, slot.guard, now_ms)
                else:
                    self._log.append_marker(slot.index, writer, now_ms)
        except LogFailed as error:
            if error.no_room:
                self.starved.refused(slot.index, str(error), now_ms)
            self.drop(slot, f"its log takes no records: {error}")
        except Exception as error:
            self._unwritable(slot, error, now_ms)
        else:
            self._metrics.records += entries
            if not whole:
                return
            self._metrics.appends += 1
            if explained:
                self._metrics.decided(records)
            self.flushing.wrote(slot, now_ms)

    def _unwritable(self, slot: ShardSlot, error: Exception, now_ms: int) -> None:
        self._reports.bug(f"shard {slot.index} at {now_ms}ms append", error)
        self.drop(slot, f"its records cannot be encoded: {error!r}")

    def _admitted(self, slot: ShardSlot, request: Any, now_ms: int) -> bool:
        """Whether the log takes what the request is to write. If not, it was answered, or waits for a later turn.

        The log is asked when all that was decided before is in it: what a core has decided is never refused (TX-G2).
        """
        writer = writer_asked_for(request)
        if writer is None:
            return True
        if slot.draft is None:
            self._append(slot, now_ms)
        if slot.draft is not None:
            self._wait_first(slot, request)
            return False
        if slot.core is None:
            return False  # dropped: whoever waited was answered
        guard = request.guard if isinstance(request, TxnOffsetCommit) else None
        try:
            if isinstance(writer, TxnProducer):
                code = self._log.transaction_refusal(slot.index, writer, guard)
            else:
                code = self._log.marker_refusal(slot.index, writer)
        except LogFailed as error:
            self.drop(slot, f"its log cannot be asked: {error}")
            return False
        if code is not ErrorCode.NONE:
            refusal = refuse_request(request, code, code.meaning)
            self._apply_effects(slot, Effects(replies=[(request.request_id, refusal)]))
            return False
        slot.guard = guard
        slot.in_transactions = True
        return True

    def _asks_the_log(self, event: Any) -> bool:
        """Whether an event cannot be stepped before all is in the log that was decided."""
        return type(event) in self._kind.of_transactions and writer_asked_for(event) is not None

    def _wait_first(self, slot: ShardSlot, event: Event) -> None:
        """An event whose turn it is has to wait: nothing that comes behind it may overtake it."""
        self._open_queue(slot)
        assert slot.behind is not None
        slot.behind.appendleft(event)
        self.waiting += 1

    def probe(self, slot: ShardSlot, now_ms: int) -> None:
        """See whether the log takes what is owed. If it does, all goes on, and nobody was late meanwhile."""
        starved = self.starved.by_shard[slot.index]
        if slot.core is None:
            return  # it is to be loaded again, and looked at then
        try:
            self._log.append(slot.index, *starved.probe(self._kind), now_ms)
        except LogFailed as error:
            if error.no_room:
                self.starved.look_again(slot.index, now_ms)
            else:
                self.drop(slot, f"its log takes no records: {error}")
            return
        self.flushing.wrote(slot, now_ms)
        del self.starved.by_shard[slot.index]
        self._make_good(slot, starved, now_ms)

    def drop(self, slot: ShardSlot, why: str) -> None:
        """One path for every failure: forget the state, answer everyone, replay the log later."""
        self._metrics.failures += 1
        self.starved.dropped(slot.index)
        slot.life += 1
        slot.core = None
        slot.records.clear()
        slot.guard = None
        slot.in_transactions = False
        self._no_draft(slot)
        self._close_queue(slot)
        self.answers.forget_held(slot)
        self.deadlines.forget(slot)
        slot.why = not_served_sentence(slot.index, why, self._kind.contents)
        self.answers.refuse(slot, list(slot.unanswered), slot.why)
        if slot.status is not ShardStatus.UNLOADED:
            slot.status = ShardStatus.FAILED
            self.loads.fallen.append(slot)
        self._reports.status(slot.index, slot.status, why)

    def _unload(self, slot: ShardSlot) -> None:
        """Take nothing more. Answers that wait for a flush still come; all other requests are refused."""
        self.loads.forget(slot.index)
        slot.life += 1
        slot.core = None
        self._close_queue(slot)
        self.starved.forget(slot.index)
        slot.status = ShardStatus.UNLOADED
        self.deadlines.forget(slot)
        promised = {request_id for held in slot.held for request_id, _ in held.replies}
        self.answers.refuse(slot, [request_id for request_id in slot.unanswered if request_id not in promised])
        self._reports.status(slot.index, slot.status, "it was asked to go")

    def _goes_on(self, slot: ShardSlot, core: ShardCore, event: Event, now_ms: int) -> bool:
        """Whether an event is stepped though the log has no room; otherwise it has been refused, or waits."""
        starved = self.starved.by_shard[slot.index]
        if isinstance(event, TimerFired):
            starved.due.add(event.key)
            return False
        if not is_request(event) or starved.takes(event, getattr(event, "group_id", ""), core):
            return True
        if slot.unanswered.pop(event.request_id, None) is not None:
            self.answers.answer(type(event), event.request_id, refuse_request(event, NO_ROOM, starved.refusal()))
            self.step(slot, TurnedAway(event), now_ms)
        return False

    def _make_good(self, slot: ShardSlot, starved: StarvedShard, now_ms: int) -> None:
        """The log has taken what was owed: tell what rested on it, and let timers run again."""
        for replies, notices in starved.waiting:
            self.answers.deliver_answers(slot, replies, notices, wrote=True)
        self.step(slot, StoodStill(0, now_ms - starved.since_ms), now_ms)
        self.deadlines.look_again(slot, starved.due)
        self._reports.status(slot.index, slot.status, "its log has room again")

    def _apply_effects(self, slot: ShardSlot, effects: Effects, *, sliced: bool = False) -> None:
        """sliced: of something long, let in when there was room: its log has to take it, or the shard falls."""
        if slot.index in self.starved.by_shard and not sliced:
            starved = self.starved.by_shard[slot.index]
            effects = starved.owe(effects, slot.unanswered)
            if len(starved.owed) > OWED_LIMIT:
                self.drop(slot, f"it owes its log more than {OWED_LIMIT} facts: {starved.why}")
                return
        if effects.records:
            slot.records += effects.records
            self.written[slot.index] = slot
        if effects.timers:
            self.deadlines.update(slot.index, effects.timers)
        for plan in effects.plans:
            self.answers.request_work(slot, plan)
        for regex in effects.regexes:
            self.answers.request_work(slot, regex)
        for measure in effects.measures:
            self.answers.measure(slot, measure)
        for chore in effects.chores:
            self.chores.append((slot, slot.life, chore))
        if effects.replies or effects.notices:
            self.answers.deliver_answers(slot, effects.replies, effects.notices, wrote=bool(effects.records))


def script_line(shard: int, event: Event, now_ms: int) -> str:
    """The event as one line of Python: evaluated, it is the event again (unless it was too long to print whole)."""
    text = repr(event)
    cut = f"... ({len(text) - SCRIPT_LIMIT} more characters)" if len(text) > SCRIPT_LIMIT else ""
    return f"shard {shard} at {now_ms}ms: {text[:SCRIPT_LIMIT]}{cut}"
