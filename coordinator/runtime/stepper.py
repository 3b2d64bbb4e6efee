"""Steps events through the cores and carries out what comes of it: records appended, timers set, answers told or held.

And what a shard's failure is: it alone is dropped, everyone who waits for it is answered, and its log is replayed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from muster.coordinator.core.model.core_events import (
    Event,
    Loaded,
    StoodStill,
    TimerFired,
    TopicsChanged,
    TurnedAway,
    Unload,
)
from muster.coordinator.core.model.core_records import Record
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.refusals import refusal_reply
from muster.coordinator.runtime.answers import Answers
from muster.coordinator.runtime.codec_init import encode
from muster.coordinator.runtime.deadlines import Deadlines
from muster.coordinator.runtime.drafts import AppendDraft, count_entries
from muster.coordinator.runtime.flushing import FlushQueue
from muster.coordinator.runtime.loads import ShardLoads
from muster.coordinator.runtime.metrics import Metrics
from muster.coordinator.runtime.orphans import describe_dropped_orphans
from muster.coordinator.runtime.ports import Entry, GroupLog, LogFailed
from muster.coordinator.runtime.refusals import is_request
from muster.coordinator.runtime.slot import ShardCore, ShardSlot, ShardStatus, not_served_sentence
from muster.coordinator.runtime.starved import NO_ROOM, OWED_LIMIT, StarvedShard, StarvedShards

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
        self, log: GroupLog, slots: Sequence[ShardSlot], reports: Reports, metrics: Metrics, written_at_once: int
    ) -> None:
        self._log = log
        self._at_once = written_at_once
        self._reports = reports
        self._metrics = metrics
        self.answers = Answers(metrics)
        self.deadlines = Deadlines(slots)
        self.flushing = FlushQueue(log)
        self.loads = ShardLoads()
        self.starved = StarvedShards()
        self.chores: deque[tuple[ShardSlot, int, Event]] = deque()
        """What is left of something long, a slice for a turn."""
        self._written: dict[int, ShardSlot] = {}  # have records of this turn
        self._drafted: dict[int, ShardSlot] = {}  # have a draft, whose turn is next comes first

    def step(self, slot: ShardSlot, event: Event, now_ms: int) -> None:
        if slot.core is None:
            if isinstance(event, Unload):
                self._unload(slot)
            return
        if slot.index in self.starved.by_shard and not self._goes_on(slot, slot.core, event, now_ms):
            return
        try:
            effects = slot.core.step(event, now_ms)
        except Exception as error:  # a bug stops the shard, not the node
            self._reports.bug(script_line(slot.index, event, now_ms), error)
            self.drop(slot, f"a bug broke it: {error!r}")
            return
        self._take(slot, effects)
        if isinstance(event, Unload):
            self._unload(slot)

    @property
    def pending(self) -> bool:
        """Whether something long is to go on in the next turn."""
        return bool(self.chores or self._drafted)

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
            self._take(slot, Effects(records=list(slot.report.moved)))
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
        if self._drafted:
            self._write_on(next(iter(self._drafted.values())), now_ms)
        written, self._written = self._written, {}
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
        if count_entries(records) > self._at_once:
            slot.draft = AppendDraft(records, self._at_once, self._log.draft())
            self._drafted[slot.index] = slot
            return
        try:
            encoded = encode(records)
        except Exception as error:  # a record that has no bytes is a bug of whoever let it in
            self._unwritable(slot, error, now_ms)
        else:
            self._keep(slot, records, encoded.groups, encoded.ledger, now_ms)

    def _write_on(self, slot: ShardSlot, now_ms: int) -> None:
        """A portion of the shard's draft; once there is none left, its append, and what was decided meanwhile."""
        draft = self._no_draft(slot)
        assert draft is not None, f"shard {slot.index} has no draft"
        try:
            more = draft.write_on()
        except Exception as error:
            self._unwritable(slot, error, now_ms)
            return
        if more:
            slot.draft, self._drafted[slot.index] = draft, slot  # behind those of other shards
            return
        self._keep(slot, draft.records, draft.groups, draft.ledger, now_ms)
        self._append(slot, now_ms)

    def _no_draft(self, slot: ShardSlot) -> AppendDraft | None:
        """The shard's draft, which it has no longer."""
        draft, slot.draft = slot.draft, None
        self._drafted.pop(slot.index, None)
        return draft

    def _keep(
        self,
        slot: ShardSlot,
        records: Sequence[Record],
        groups: Sequence[Entry],
        ledger: Sequence[Entry],
        now_ms: int,
    ) -> None:
        """One append."""
        try:
            self._log.append(slot.index, groups, ledger, now_ms)
        except LogFailed as error:
            if error.no_room:
                self.starved.refused(slot.index, str(error), now_ms)
            self.drop(slot, f"its log takes no records: {error}")
        except Exception as error:
            self._unwritable(slot, error, now_ms)
        else:
            self._metrics.appends += 1
            self._metrics.records += len(groups) + len(ledger)
            if ledger:
                self._metrics.decided(records)
            self.flushing.wrote(slot, now_ms)

    def _unwritable(self, slot: ShardSlot, error: Exception, now_ms: int) -> None:
        self._reports.bug(f"shard {slot.index} at {now_ms}ms append", error)
        self.drop(slot, f"its records cannot be encoded: {error!r}")

    def probe(self, slot: ShardSlot, now_ms: int) -> None:
        """See whether the log takes what is owed. If it does, all goes on, and nobody was late meanwhile."""
        starved = self.starved.by_shard[slot.index]
        if slot.core is None:
            return  # it is to be loaded again, and looked at then
        try:
            self._log.append(slot.index, *starved.probe(), now_ms)
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
        self._no_draft(slot)
        self.answers.forget_held(slot)
        self.deadlines.forget(slot)
        slot.why = not_served_sentence(slot.index, why)
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
            self.answers.answer(type(event), event.request_id, refusal_reply(event, NO_ROOM, starved.refusal()))
            self.step(slot, TurnedAway(event), now_ms)
        return False

    def _make_good(self, slot: ShardSlot, starved: StarvedShard, now_ms: int) -> None:
        """The log has taken what was owed: tell what rested on it, and let timers run again."""
        for replies, notices in starved.waiting:
            self.answers.tell(slot, replies, notices)
        self.step(slot, StoodStill(0, now_ms - starved.since_ms), now_ms)
        self.deadlines.look_again(slot, starved.due)
        self._reports.status(slot.index, slot.status, "its log has room again")

    def _take(self, slot: ShardSlot, effects: Effects) -> None:
        if slot.index in self.starved.by_shard:
            starved = self.starved.by_shard[slot.index]
            effects = starved.owe(effects, slot.unanswered)
            if len(starved.owed) > OWED_LIMIT:
                self.drop(slot, f"it owes its log more than {OWED_LIMIT} facts: {starved.why}")
                return
        if effects.records:
            slot.records += effects.records
            self._written[slot.index] = slot
        if effects.timers:
            self.deadlines.update(slot.index, effects.timers)
        for plan in effects.plans:
            self.answers.ask(slot, plan)
        for regex in effects.regexes:
            self.answers.ask(slot, regex)
        for measure in effects.measures:
            self.answers.measure(slot, measure)
        for chore in effects.chores:
            self.chores.append((slot, slot.life, chore))
        if effects.replies or effects.notices:
            self.answers.tell(slot, effects.replies, effects.notices)


def script_line(shard: int, event: Event, now_ms: int) -> str:
    """The event as one line of Python: evaluated, it is the event again (unless it was too long to print whole)."""
    text = repr(event)
    cut = f"... ({len(text) - SCRIPT_LIMIT} more characters)" if len(text) > SCRIPT_LIMIT else ""
    return f"shard {shard} at {now_ms}ms: {text[:SCRIPT_LIMIT]}{cut}"
