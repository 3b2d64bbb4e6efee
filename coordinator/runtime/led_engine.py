"""An engine that shares its shards with those of other nodes: it serves the ones it was given, as long as it may.

A shard is UNLOADED until `load_shard`, and again after `leave`. A driver does with it what it does with any; whoever is
its `LeaseAuthority` also calls

    engine.committed(shard, position, now_ms)    the shard's first `position` appends count from now on
    engine.opened(shard, now_ms)                 its answers may leave, and its timers fire, after they might not
    engine.moved(shard, by_ms, now_ms)           before that, by how much its deadlines come later
    engine.starve(shard, why, now_ms)            nothing can be written for now; `feed` once it can
    engine.late(now_ms)                          every now and then: who has waited too long is answered
    engine.take_over(shard, warm, now_ms)    as load_shard, from what was kept ready of it (CL-G8)
    engine.load_shard(shard, now_ms), leave(shard, why, now_ms)

in the driver's thread, and sees to it that the driver looks for what may be told then.
"""

from collections.abc import Mapping
from typing import Any

from muster.coordinator.core.model.core_events import Event
from muster.coordinator.core.model.effects import Reply
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import Limits
from muster.coordinator.runtime.authority import LeaseAuthority
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.flushing import FlushJob
from muster.coordinator.runtime.led_stepper import CatalogBeyondOrphans, LeasedStepper
from muster.coordinator.runtime.loads import LoadJob
from muster.coordinator.runtime.metrics import Metrics
from muster.coordinator.runtime.ports import GroupLog, LogFailed
from muster.coordinator.runtime.slot import ShardSlot, ShardStatus
from muster.coordinator.runtime.stepper import Reports
from muster.coordinator.runtime.warm import WarmJob, WarmShard

COMMIT_TIMEOUT_MS = 5_000
"""The default of `offsets.commit.timeout.ms`."""


class LeasedEngine(Engine):
    """See `Engine`; what it takes beside is named there."""

    _stepper: LeasedStepper
    steps: type[LeasedStepper] = LeasedStepper
    """What makes its stepper."""

    def __init__(
        self,
        log: GroupLog,
        shards: int,
        limits: Limits,
        *args: Any,
        authority: LeaseAuthority,
        commit_timeout_ms: int = COMMIT_TIMEOUT_MS,
        on_orphans: CatalogBeyondOrphans | None = None,
        **kwargs: Any,
    ) -> None:
        """on_orphans: where a topic that is not in the catalog may be there nevertheless: asked for the catalog to go
        by when a shard is loaded that has positions in such topics. None: those positions are dropped."""
        self._authority = authority
        self._commit_timeout_ms = commit_timeout_ms
        self._on_orphans = on_orphans
        self._now_ms = 0
        self._thin: set[int] = set()
        self._warm: dict[int, WarmShard] = {}
        super().__init__(log, shards, limits, *args, **kwargs)
        for slot in self._slots:
            slot.status = ShardStatus.UNLOADED

    def _make_stepper(
        self, log: GroupLog, slots: list[ShardSlot], reports: Reports, metrics: Metrics, written_at_once: int
    ) -> LeasedStepper:
        return self.steps(
            log,
            slots,
            reports,
            metrics,
            written_at_once,
            self._authority,
            lambda: max(self._now_ms, self._turned_ms),
            self._on_orphans,
        )

    @property
    def starved(self) -> Mapping[int, str]:
        """Of want of room. Who is in sync is told elsewhere."""
        return {shard: why for shard, why in super().starved.items() if shard not in self._thin}

    # -- what a driver calls ------------------------------------------------------------------------------

    def loaded(self, job: LoadJob, now_ms: int) -> None:
        self._now_ms = now_ms
        super().loaded(job, now_ms)

    def beat(
        self, shard: int, group_id: str, member_id: str, generation: int, now_ms: int, rights: Rights = None
    ) -> bool:
        """Without leave it takes its place behind what is held."""
        slot = self._slots[shard]
        if slot.held or not self._authority.may_answer(shard):
            return False
        return super().beat(shard, group_id, member_id, generation, now_ms, rights)

    def flushed(self, job: FlushJob, now_ms: int = 0) -> None:
        """The job's `run` returned. What waits for it waits for other nodes, too."""
        self._now_ms = max(self._now_ms, now_ms)
        self._finished(job, now_ms)
        self._authority.flushed(job.positions)

    def flush_failed(self, job: FlushJob, error: Exception, now_ms: int = 0) -> None:
        self._now_ms = max(self._now_ms, now_ms)
        self._flushing.finish(job)
        failed = set(error.shards if isinstance(error, LogFailed) and error.shards is not None else job.positions)
        for shard in failed & job.positions.keys():
            if self._slots[shard].status is not ShardStatus.UNLOADED:
                self._stepper.drop(self._slots[shard], f"its log cannot be flushed: {error}")
                self._authority.broke(shard, str(error))
        self._authority.flushed(job.positions.keys() - failed)

    # -- what the authority calls -------------------------------------------------------------------------

    def committed(self, shard: int, position: int, now_ms: int) -> None:
        """The shard's first `position` appends are committed: tell what rests on them (CL-G3)."""
        self._now_ms = now_ms
        self._reached(self._slots[shard], position, now_ms)

    def opened(self, shard: int, now_ms: int) -> bool:
        """Answers of the shard may leave, and its timers fire (CL-G4, CL-G6). Whether anything waited for it."""
        self._now_ms = now_ms
        slot = self._slots[shard]
        if not slot.held and not slot.patient:
            return False
        self._reached(slot, 0, now_ms)
        return True

    def moved(self, shard: int, by_ms: int, now_ms: int) -> None:
        """Nobody could be heard for so long: the shard's deadlines move by it (CL-G6)."""
        self._now_ms = now_ms
        self._stepper.move(self._slots[shard], by_ms, now_ms)

    def starve(self, shard: int, why: str, now_ms: int) -> None:
        """The shard's log takes no records for now (CL-G3): who would write is refused, timers stand still."""
        self._thin.add(shard)
        self._stepper.starve(self._slots[shard], why, now_ms)

    def feed(self, shard: int, now_ms: int) -> None:
        """The shard's log takes records again."""
        self._now_ms = now_ms
        self._thin.discard(shard)
        self._stepper.feed(self._slots[shard], now_ms)

    def late(self, now_ms: int) -> bool:
        """Answer who waits for longer than `offsets.commit.timeout.ms` (CL-G3). Whether there was anybody."""
        self._now_ms = now_ms
        late = False
        for slot in self._slots:
            if slot.held and self._stepper.answers.give_up(slot, now_ms - self._commit_timeout_ms):
                late = True
                self._deadlines.answered(slot, now_ms)
        return late

    def take_over(self, shard: int, warm: WarmShard, now_ms: int) -> None:
        """As `load_shard`, and nobody else may use `warm` from here on. A shard that falls is loaded from its log."""
        self._warm[shard] = warm
        try:
            self.load_shard(shard, now_ms)
        finally:
            self._warm.pop(shard, None)

    def leave(self, shard: int, why: str, now_ms: int) -> None:
        """The shard is another's, or may be: nothing more is said of it (CL-G1)."""
        slot = self._slots[shard]
        self._thin.discard(shard)
        if slot.status is not ShardStatus.UNLOADED or slot.unanswered or slot.held or slot.draft is not None:
            self._now_ms = now_ms
            self._stepper.leave(slot, why, now_ms)

    def _load_of(self, shard: int) -> LoadJob:
        warm = self._warm.pop(shard, None)
        return super()._load_of(shard) if warm is None else WarmJob(shard, self.new_core(shard), self._log, warm=warm)

    def _excuse(self, slot: ShardSlot, kind: type[Event]) -> Reply:
        return self._stepper.answers.excuse(slot, kind)
