"""Steps shards that other nodes could lead: they are lost and gained, and their timers wait for leave."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from muster.coordinator.core.model.core_events import Event, StoodStill, TimerFired, TopicsChanged, Unload
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.runtime.authority import LeaseAuthority
from muster.coordinator.runtime.deadlines import Deadlines
from muster.coordinator.runtime.flushing import FlushQueue
from muster.coordinator.runtime.led_answers import LeasedAnswers
from muster.coordinator.runtime.metrics import Metrics
from muster.coordinator.runtime.ports import GroupLog
from muster.coordinator.runtime.slot import ShardCore, ShardSlot, ShardStatus
from muster.coordinator.runtime.stepper import Reports, Stepper, script_line

CatalogBeyondOrphans: TypeAlias = Callable[[ShardCore, Collection[tuple[str, bytes]]], TopicsChanged]
"""Gets a shard that was read, and topics with their ids in which it has positions and which are not in the catalog."""


class LeasedDeadlines(Deadlines):
    """A shard's timers fire by the authority's leave. Those that have none yet are kept by their slot (`patient`)."""

    def __init__(self, slots: Sequence[ShardSlot], authority: LeaseAuthority) -> None:
        super().__init__(slots)
        self._authority = authority

    def may_fire(self, slot: ShardSlot) -> bool:
        return self._authority.may_fire(slot.index)

    def fire(self, heard_ms: int, now_ms: int, step: Callable[[ShardSlot, Event, int], None]) -> int:
        def by_leave(slot: ShardSlot, event: Event, now_ms: int) -> None:
            if self.may_fire(slot):
                step(slot, event, now_ms)
            else:
                assert isinstance(event, TimerFired), "nothing else comes due"
                slot.patient.add(event.key)

        return super().fire(heard_ms, now_ms, by_leave)


class LeasedFlushQueue(FlushQueue):
    """The authority hears of each append: it knows where the log ends then."""

    def __init__(self, log: GroupLog, authority: LeaseAuthority) -> None:
        super().__init__(log)
        self._authority = authority

    def wrote(self, slot: ShardSlot, now_ms: int) -> None:
        super().wrote(slot, now_ms)
        self._authority.wrote(slot.index, slot.appended)


class LeasedStepper(Stepper):
    answers: LeasedAnswers
    tells = LeasedAnswers
    """What kind of them."""
    waits = LeasedDeadlines
    """The same."""

    def __init__(
        self,
        log: GroupLog,
        slots: Sequence[ShardSlot],
        reports: Reports,
        metrics: Metrics,
        written_at_once: int,
        authority: LeaseAuthority,
        clock_ms: Callable[[], int],
        on_orphans: CatalogBeyondOrphans | None = None,
    ) -> None:
        super().__init__(log, slots, reports, metrics, written_at_once)
        self._on_orphans = on_orphans
        self.answers = self.tells(metrics, authority, clock_ms)
        self.deadlines = self.waits(slots, authority)
        self.flushing = LeasedFlushQueue(log, authority)

    def activate(self, slot: ShardSlot, core: ShardCore, topics: TopicsChanged | None, now_ms: int) -> None:
        slot.durable = slot.appended  # what former lives appended has been read, or is gone
        if topics is not None and self._on_orphans is not None:
            orphans = [each for each in slot.report.committed_to if each[0] not in topics.partitions]
            topics = self._on_orphans(core, orphans) if orphans else topics
        super().activate(slot, core, topics, now_ms)

    def leave(self, slot: ShardSlot, why: str, now_ms: int) -> None:
        """Give the shard up at once: whoever waits hears NOT_COORDINATOR, and so does who was promised an answer that
        rests on what is not committed. It may be cut away by whoever leads next, and is never told as done (CL-G1)."""
        self.loads.forget(slot.index)
        self.answers.forget_held(slot)
        farewell = self._farewell(slot, now_ms)
        slot.life += 1
        slot.records.clear()
        self._no_draft(slot)
        self.starved.forget(slot.index)
        slot.status = ShardStatus.UNLOADED
        slot.why = ""
        self.deadlines.forget(slot)
        self.answers.release(slot, farewell.replies, farewell.notices)
        slot.core = None
        self.answers.refuse(slot, list(slot.unanswered))
        self._reports.status(slot.index, slot.status, why)

    def _farewell(self, slot: ShardSlot, now_ms: int) -> Effects:
        """What the core answers those who are parked."""
        if slot.core is None:
            return Effects()
        event = Unload()
        try:
            return slot.core.step(event, now_ms)
        except Exception as error:  # a bug stops nobody from leaving
            self._reports.bug(script_line(slot.index, event, now_ms), error)
            return Effects()

    def starve(self, slot: ShardSlot, why: str, now_ms: int) -> None:
        """Its log takes nothing for now, as if it had no room; no step has to be undone for it."""
        self.starved.refused(slot.index, why, now_ms)

    def feed(self, slot: ShardSlot, now_ms: int) -> None:
        """It takes records again."""
        if slot.index in self.starved.by_shard:
            self.starved.looked_at(slot.index)
            self.probe(slot, now_ms)

    def move(self, slot: ShardSlot, by_ms: int, now_ms: int) -> None:
        """Its deadlines come later by that much."""
        self.step(slot, StoodStill(0, by_ms), now_ms)
