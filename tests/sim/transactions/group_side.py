"""The groups' side of the simulated node: the real engine, codec and core over the real log, on files in memory.

One shard. Turns, flushes and deadlines are driven by the world's clock, as a driver does it. What the process or the
machine loses at a crash is the files' to say.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from muster.coordinator.core.model.events import Forget, JoinGroup, TopicsChanged
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.engine import Engine, EngineOptions
from muster.coordinator.runtime.group_log import BrokerGroupLog
from muster.coordinator.runtime.ports import LogFailed, TxnProducer
from muster.coordinator.runtime.replay import GROUPS_TOPIC
from muster.coordinator.runtime.shards import ShardCore, ShardStatus
from muster.coordinator.runtime.stepper import FlushJob
from muster.storage.broker.broker import Broker
from muster.storage.logs.log import Log
from muster.storage.records.batch import read_batches
from muster.storage.records.markers import read_marker
from tests.fakes.memory_files import MemoryFiles
from tests.sim.transactions.logs import MarkerBatch
from tests.support.stories.consumer_stage import topic_id

SEGMENT_BYTES = 1 << 20
READ_BYTES = 1 << 20

MakeGroupShard = Callable[[Limits, int], Shard]


class SometimesFullLog(BrokerGroupLog):
    """Refuses a write now and then: for want of room, or for good."""

    is_full: Callable[[], bool] = staticmethod(lambda: False)
    has_room_later: Callable[[], bool] = staticmethod(lambda: True)

    def append(self, shard: int, groups: Any, ledger: Any, now_ms: int) -> None:
        self._refuse()
        super().append(shard, groups, ledger, now_ms)

    def append_in_transaction(
        self, shard: int, producer: TxnProducer, groups: Any, guard: object | None, now_ms: int
    ) -> None:
        self._refuse()
        super().append_in_transaction(shard, producer, groups, guard, now_ms)

    def append_marker(self, shard: int, marker: Any, now_ms: int) -> None:
        self._refuse()
        super().append_marker(shard, marker, now_ms)

    def _refuse(self) -> None:
        if self.is_full():
            raise LogFailed("the simulated disk is full", no_room=self.has_room_later())


class JudgedShard:
    """A shard of groups whose every step is shown to the judge."""

    def __init__(self, shard: Shard, side: "GroupsSide") -> None:
        self.shard, self.side = shard, side
        self.live = False

    @property
    def deadlines(self) -> Mapping[Any, int]:
        return self.shard.deadlines

    def step(self, event: Any, now_ms: int) -> Any:
        judge = self.side.node.world.judge
        if not self.live:
            self.live = True
            judge.groups_loaded(self.side, self.shard)
        effects = self.shard.step(event, now_ms)
        judge.groups_stepped(self.side, self.shard, event, effects)
        return effects

    def beat(self, *what: Any) -> bool:
        return self.shard.beat(*what)

    def writes_nothing(self, event: Any) -> bool:
        return self.shard.writes_nothing(event)

    def knows(self, group_id: str, member_id: str | None) -> bool:
        return self.shard.knows(group_id, member_id)

    def committed_to(self) -> Any:
        return self.shard.committed_to()

    def apply(self, record: Any) -> None:
        self.shard.apply(record)


class GroupsSide:
    """One process after another over one disk."""

    def __init__(self, node: Any, limits: Limits, topics: Mapping[str, int], make_shard: MakeGroupShard) -> None:
        self.node, self.world = node, node.world
        self.limits, self.topics, self.make_shard = limits, topics, make_shard
        self.files = MemoryFiles()
        self.drawn = 0
        self.fresh = 0
        self.seen: list[tuple[int, MarkerBatch | tuple[int, int]]] = []
        """Of transactions, what is durable: offset and marker, or offset and (producer id, epoch)."""
        self.seen_to = 0
        self.die()

    # -- lives ----------------------------------------------------------------------------------------------

    def die(self) -> None:
        self.up, self.flushing = False, False
        self.calls: dict[int, Callable[[Any], None]] = {}
        self.request = 0
        self.turn_at_ms: int | None = None

    def crash(self, *, power: bool) -> None:
        self.die()
        if power:
            self.files.crash(self.world.rng.choice)
        else:
            self.files.kill()

    def start(self) -> None:
        """The log is opened and replayed before anybody asks."""
        self.up = True
        self.broker = Broker(
            "/data", files=self.files, clock_ms=lambda: self.node.now_ms, random_bytes=self._draw_bytes
        )
        self.log = SometimesFullLog(self.broker, 1, SEGMENT_BYTES)
        options = EngineOptions(on_bug=self._bug, on_status=self._status)
        self.engine = Engine(self.log, 1, self.limits, self._core, options)
        ids = {topic: topic_id(topic) for topic in self.topics}
        self.engine.submit_all(TopicsChanged(dict(self.topics), ids=ids))
        self.engine.load(self.node.now_ms)
        self.log.is_full = self.world.is_full
        self.log.has_room_later = lambda: bool(self.world.rng.random() < 0.5)
        self._after_engine()

    def _draw_bytes(self, count: int) -> bytes:
        self.drawn += 1
        return self.drawn.to_bytes(count, "big")

    def _core(self, limits: Limits, index: int) -> ShardCore:
        return JudgedShard(self.make_shard(limits, index), self)

    def _bug(self, line: str, error: Exception) -> None:
        self.world.judge.found(f"a bug stopped the groups' shard: {error!r} at {line}")

    def _status(self, shard: int, status: ShardStatus, why: str) -> None:
        self.world.trace("groups", status.value, why)
        self.world.met[f"groups' shard {status.value}"] += 1

    # -- requests -------------------------------------------------------------------------------------------

    def ask(self, request: Any, answered: Callable[[Any], None]) -> int:
        """Returns the request's number. It is answered in a later turn, if at all."""
        self.request += 1
        request = replace(request, request_id=self.request)
        if isinstance(request, JoinGroup):
            self.fresh += 1
            request = replace(request, fresh_id=str(self.fresh))
        self.calls[self.request] = answered
        self.world.trace("groups in", self.request, type(request).__name__)
        self.engine.submit(0, request)
        self._release()
        self.wake()
        return self.request

    def forget(self, number: int, group_id: str) -> None:
        if self.calls.pop(number, None) is not None:
            self.engine.submit(0, Forget(group_id, number))
            self.wake()

    # -- turns and flushes ----------------------------------------------------------------------------------

    def wake(self) -> None:
        self._turn_by(self.world.now_ms + self.world.rng.randint(0, 3))

    def _turn_by(self, at_ms: int) -> None:
        if self.turn_at_ms is None or at_ms < self.turn_at_ms:
            self.turn_at_ms = at_ms
            self.world.at(at_ms, self._turn, at_ms, self.node.boot)

    def _turn(self, at_ms: int, boot: int) -> None:
        if self.up and boot == self.node.boot and at_ms == self.turn_at_ms:
            self.turn_now()

    def turn_now(self) -> None:
        self.turn_at_ms = None
        self.engine.turn(self.node.now_ms)
        self._after_engine()

    def _after_engine(self) -> None:
        self.world.judge.raise_found()
        self._begin_flush()
        self._release()
        if self.engine.pending:
            self.wake()
        if (deadline_ms := self.engine.next_deadline_ms) is not None:
            self._turn_by(max(deadline_ms - self.node.skew_ms, self.world.now_ms + 1))

    def _begin_flush(self) -> None:
        job = None if self.flushing else self.engine.flush_job()
        if job is not None:
            self.flushing = True
            early = self.world.rng.random() < 0.5
            if early:
                job.run()  # What comes meanwhile is not in it.
            self.world.after(self.world.rng.randint(1, 20), self._end_flush, job, self.node.boot, early)

    def _end_flush(self, job: FlushJob, boot: int, early: bool) -> None:
        if not self.up or boot != self.node.boot:
            return
        self.flushing = False
        if not early:
            job.run()
        self.engine.flushed(job, self.node.now_ms)
        self._after_engine()

    def _release(self) -> None:
        released = self.engine.take_released()
        assert not released.work, "what members ask for is planned at once"
        for number, reply in released.replies:
            answered = self.calls.pop(number, None)
            self.world.trace("groups out", number, type(reply).__name__, reply.code.name)
            if answered is not None:
                answered(reply)

    # -- the log --------------------------------------------------------------------------------------------

    @property
    def group_log(self) -> Log:
        return self.broker.log(GROUPS_TOPIC, 0)

    @property
    def shard(self) -> Shard | None:
        """The live one."""
        core = self.engine.core(0) if self.up else None
        return core.shard if isinstance(core, JudgedShard) and core.live else None

    def durable(self) -> list[tuple[int, MarkerBatch | tuple[int, int]]]:
        """See `seen`."""
        log = self.group_log
        while self.seen_to < log.high_watermark:
            for batch in read_batches(log.fetch(self.seen_to, READ_BYTES).records):
                self.seen_to = batch.next_offset
                if batch.control:
                    found = read_marker(batch)
                    assert found is not None, "a control batch of transactions is a marker"
                    who = batch.producer_id, batch.producer_epoch
                    self.seen.append(
                        (batch.last_offset, MarkerBatch(*who, not found.aborted, found.coordinator_epoch, 0))
                    )
                elif batch.transactional:
                    self.seen.append((batch.last_offset, (batch.producer_id, batch.producer_epoch)))
        return self.seen

    def quiet(self) -> bool:
        return self.up and self.shard is not None and not self.flushing and not self.group_log.open_transactions()
