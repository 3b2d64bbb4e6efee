"""What a simulated node has for groups: the real engine, and the real `ShardCoordination` with callbacks for its
tasks.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from muster.coordinator.core.model.effects import Effects, Reply
from muster.coordinator.core.model.events import (
    ConsumerHeartbeat,
    Event,
    Heartbeat,
    Planned,
    Request,
    TimerFired,
    TopicsChanged,
    TxnEnded,
)
from muster.coordinator.core.model.plan import PlanRequest, compute_plan
from muster.coordinator.core.model.types import Limits
from muster.coordinator.core.shard import Shard
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.shards.lease_release import released_units
from muster.coordinator.replication.io.shards.replicated_shards import WarmShards
from muster.coordinator.replication.io.shards.shard_coordination import ShardCoordination
from muster.coordinator.replication.io.wire.node_api import EpochEnd, EpochQuery
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    OFFSETS,
    ImageChanges,
    TopicPartition,
    unit_of,
)
from muster.coordinator.runtime.engine import EngineOptions
from muster.coordinator.runtime.leased import LeasedEngine, WarmJob
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.replay import replay_shard
from muster.coordinator.runtime.shards import ReleasedAnswers, partition_for
from muster.coordinator.runtime.stepper import FlushJob, LoadJob
from tests.sim.checkers.replay import hard_shard
from tests.sim.replication.groups.log import SimGroupLog
from tests.sim.replication.network import Refused
from tests.sim.replication.transactions.messages import MarkerAsk
from tests.sim.transactions.group_node import INPUT
from tests.sim.transactions.positions import PositionsModel

if TYPE_CHECKING:
    from tests.sim.replication.node import SimNode

SHARDS = 2
LOOK_MS = 100
PAUSE_MS = 100
PATIENCE_MS = 1_000
NOT_HERE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Answers to a marker that a coordinator of transactions is told of as NOT_LEADER_OR_FOLLOWER."""
LONG_MS = 240_000
"""A member's session, longer than a run: a member that expires then was let go by mistake."""
INPUTS = 3
"""Partitions of the topic that workers read."""
TOPICS = TopicsChanged({"work": 6, INPUT: INPUTS}, ids={"work": b"w" * 16, INPUT: b"i" * 16})


def answer_plans(engine: LeasedEngine, released: ReleasedAnswers) -> None:
    """Each plan that was asked for is made at once."""
    for work in released.work:
        assert isinstance(work.request, PlanRequest)
        request = work.request
        answer = Planned(request.group_id, request.epoch, compute_plan(request), "", request.snapshot)
        engine.answer_work(work, answer)


def limits_of(session_ms: int) -> Limits:
    return Limits(
        initial_rebalance_delay_ms=500,
        min_session_timeout_ms=100,
        consumer_session_timeout_ms=session_ms,
        consumer_min_session_timeout_ms=100,
        consumer_max_session_timeout_ms=LONG_MS,
        consumer_heartbeat_interval_ms=500,
        consumer_min_heartbeat_interval_ms=100,
        consumer_assignment_interval_ms=0,
    )


class GroupAsk(NamedTuple):
    """A member's request, its id left out (0)."""

    request: Any


class EpochsAsked(NamedTuple):
    """CL-G5a: whether the asked node has let go of these units."""

    asked: tuple[EpochQuery, ...]


class Watching:
    """Hears of the shards of groups of all nodes: those that were loaded, before anything else is done with them, and
    each step."""

    def loaded(self, node: "SimNode", core: "WatchedShard") -> None:
        pass

    def stepped(self, node: "SimNode", core: "WatchedShard", event: Any, effects: Effects) -> None:
        pass


class Answered(NamedTuple):
    """A request was answered by a node: what the checkers hear."""

    node: "SimNode"
    shard: int
    epoch: int
    request: Any
    reply: Any


class SimSide:
    """Of `ClusterSide`, what groups need of it."""

    calling: Any = None

    def __init__(self, node: "SimNode") -> None:
        self._node = node
        self.learners: list[Callable[[ImageChanges], None]] = []
        self.movers: list[Callable[[TopicPartition], None]] = []
        self.settlers: list[Callable[[], None]] = []

    @property
    def replicas(self) -> Any:
        return self._node.replicas

    @property
    def image(self) -> Any:
        return self._node.image

    def on_learned(self, listener: Callable[[ImageChanges], None]) -> None:
        self.learners.append(listener)

    def on_moved(self, listener: Callable[[TopicPartition], None]) -> None:
        self.movers.append(listener)

    def on_settled(self, listener: Callable[[], None]) -> None:
        self.settlers.append(listener)

    def written(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            if place in self.replicas.led:
                self.replicas.appended(place)
        self._node.later(0, self._node.settle)

    def kept(self, places: Iterable[TopicPartition]) -> None:
        self.replicas.flushed(places, self._node.now())
        self._node.settle()

    def broken(self, place: TopicPartition, why: str) -> None:
        self.replicas.broke(place, why)
        self._node.later(0, self._node.settle)


class NoTasks:
    """Callbacks of the simulated node are there instead."""

    def start(self, work: Any) -> None:
        work.close()


class SimAsking:
    """As `Asking`."""

    def __init__(self, node: "SimNode", coordinating: "SimCoordinating") -> None:
        self._node = node
        self._coordinating = coordinating
        self._asked: set[int] = set()

    def soon(self) -> None:
        for node in sorted(self._coordinating.waited_for().keys() - self._asked):
            self._asked.add(node)
            self._ask(node)

    def _ask(self, node: int, refused: int = 0) -> None:
        units = self._coordinating.waited_for().get(node)
        if not units:
            self._asked.discard(node)
            return
        asked = EpochsAsked(tuple(EpochQuery(*place, epoch, epoch) for place, epoch in units))

        def told(outcome: Any) -> None:
            times = 0
            if isinstance(outcome, Refused):
                times = refused + 1
                if times == 3 and self._node.settings.eviction:
                    self._coordinating.let_go(node, [place for place, _ in units])
            elif not isinstance(outcome, Exception):
                self._coordinating.let_go(node, released_units(units, outcome))
            self._node.later(PAUSE_MS, lambda: self._ask(node, times))

        self._node.ask(f"n{node}", asked, told, by="let go", patience_ms=PATIENCE_MS)


class SimCoordinating(ShardCoordination):
    """The real one; what it does in tasks of a loop is done by the node's clock."""

    def __init__(self, node: "SimNode", side: SimSide, topic: str = OFFSETS) -> None:
        super().__init__(
            side,  # type: ignore[arg-type]
            session_ms=node.ensemble.timeout_ms,
            on_refusal=node.settings.eviction,
            failed=node.failed,
            now_ms=node.now,
            topic=topic,
        )
        self._node = node
        self._tasks = NoTasks()  # type: ignore[assignment]
        self._asking = SimAsking(node, self)  # type: ignore[assignment]

    def waited_for(self) -> dict[int, list[tuple[TopicPartition, int]]]:
        return self._waited_for()

    def let_go(self, node: int, units: Sequence[TopicPartition]) -> None:
        self._let_go(node, units)

    def look_on(self) -> None:
        self._dry.update(self._terms)
        self._check_shards()
        if self._engine.late(self._clock_ms()):
            self._driver.wake()
        self._node.later(LOOK_MS, self.look_on)

    def epoch_of(self, shard: int) -> int:
        term = self._terms.get(shard)
        return NO_EPOCH if term is None else term.epoch

    def _soon(self) -> None:
        if self._pass is None:
            self._pass = object()  # type: ignore[assignment]
            self._node.later(0, self._see)


class ComparingEngine(LeasedEngine):
    """CL-G8: what was kept ready is what a load would have given."""

    node: "SimNode"

    def loaded(self, job: LoadJob, now_ms: int) -> None:
        if isinstance(job, WarmJob):
            warm = job.warm is not None and job.core is job.warm.core
            self.node.world.census["shards kept ready" if warm else "shards not ready after all"] += 1
            cold = Shard(self._limits, job.shard)
            replay_shard(self._log, job.shard, cold)
            assert isinstance(job.core, Shard)
            if hard_shard(job.core) != hard_shard(cold):
                self.node.world.violated(
                    "WarmEqualsCold", f"{self.node.name} kept shard {job.shard} ready, but not as its log has it"
                )
        if isinstance(job.core, WatchedShard):
            self.node.watching.loaded(self.node, job.core)
        super().loaded(job, now_ms)


class WatchedShard(Shard):
    """Reports each timer that fires, and each step. positions: what its log says of them, by a model."""

    fired: Callable[[int, TimerFired], None]
    stepped: Callable[["WatchedShard", Event, Effects], None]

    def __init__(self, limits: Limits, index: int) -> None:
        super().__init__(limits, index)
        self.positions = PositionsModel()

    def step(self, event: Event, now_ms: int) -> Effects:
        if isinstance(event, TimerFired):
            self.fired(self.index, event)
        effects = super().step(event, now_ms)
        self.stepped(self, event, effects)
        return effects


class DrivenEngine(ABC):
    """An engine of one life of a node, and what drives it: its turns, its flushes, and what it hears of the node."""

    engine: LeasedEngine
    log: SimGroupLog

    def __init__(self, node: "SimNode") -> None:
        self._node = node
        self.side = SimSide(node)
        self._turn_ms: int | None = None
        self._flushing = False

    # What the node tells.

    def moved(self, place: TopicPartition) -> None:
        for listener in self.side.movers:
            listener(place)

    def settled(self) -> None:
        for listener in self.side.settlers:
            listener()

    def learned(self, changes: ImageChanges) -> None:
        for listener in self.side.learners:
            listener(changes)

    def stood_still(self, for_ms: int) -> None:
        self.engine.stood_still(for_ms, self._node.now())

    # Turns and flushes.

    def wake(self) -> None:
        """What may be told is told before anything else can happen."""
        self._release()
        self._turn_by(self._node.now() + self._node.world.between(0, 3))

    def _turn_by(self, at_ms: int) -> None:
        if self._turn_ms is None or at_ms < self._turn_ms:
            self._turn_ms = at_ms
            self._node.later(max(0, at_ms - self._node.now()), lambda: self._turn(at_ms))

    def _turn(self, at_ms: int) -> None:
        if at_ms == self._turn_ms:
            self._turn_ms = None
            self.engine.turn(self._node.now())
            self._after_engine()

    def _after_engine(self) -> None:
        job = None if self._flushing else self.engine.flush_job()
        if job is not None:
            self._flushing = True
            self.log.mark(list(job.positions))
            self._node.later(self._node.world.between(1, 15), lambda: self._end_flush(job))
        self._release()
        if self.engine.pending:
            self.wake()
        due_ms = self.engine.next_deadline_ms
        if due_ms is not None:
            self._turn_by(max(due_ms, self._node.now() + 1))

    def _end_flush(self, job: FlushJob) -> None:
        self._flushing = False
        try:
            job.run()
        except LogFailed as error:
            self.engine.flush_failed(job, error, self._node.now())
        else:
            self.engine.flushed(job, self._node.now())
        self._after_engine()

    @abstractmethod
    def _release(self) -> None:
        """Tell what may be told."""


def epochs_let_go(node: "SimNode", asked: EpochsAsked) -> list[EpochEnd]:
    """As `FetchDesk` answers."""
    ends = []
    for each in asked.asked:
        place = TopicPartition(each.topic, each.partition)
        node.replicas.shown(place, each.leader_epoch)
        let_go = unit_of(place) not in node.replicas.leaders
        epoch = each.leader_epoch if let_go else NO_EPOCH
        ends.append(EpochEnd(*place, ErrorCode.NOT_LEADER_OR_FOLLOWER if let_go else ErrorCode.NONE, epoch))
    node.settle()
    return ends


class SimGroups(DrivenEngine):
    """That of groups."""

    engine: ComparingEngine

    def __init__(self, node: "SimNode", answered: Callable[[Answered], None], session_ms: int) -> None:
        super().__init__(node)
        self._answered = answered
        self.coordinating = SimCoordinating(node, self.side)
        self.log = SimGroupLog(lambda: node.disk, lambda: node.replicas, self.side.written, self.side.broken)
        self.engine = ComparingEngine(
            self.log,
            SHARDS,
            limits_of(session_ms),
            self._new_shard,
            authority=self.coordinating,
            options=EngineOptions(on_bug=lambda line, error: node.failed(AssertionError(f"{error!r} at {line}"))),
        )
        self.engine.node = node
        self.engine.submit_all(TOPICS)
        self._asked: dict[int, tuple[int, Any, Callable[[Any], None], int]] = {}
        self._requests = 0
        self._beaten_ms: dict[tuple[str, str], int] = {}
        self._session_ms = session_ms
        self.warming = WarmShards(self.log, SHARDS, self.engine.new_core, lambda: node.replicas.copies)
        self.coordinating.start(self.engine, self, node.now, self.warming)
        self.coordinating.look_on()
        self._keep_ready()

    # What checkers see.

    def _new_shard(self, limits: Limits, index: int) -> WatchedShard:
        shard = WatchedShard(limits, index)
        shard.fired = self._timer_fired
        shard.stepped = self._stepped
        return shard

    def _timer_fired(self, shard: int, timer: TimerFired) -> None:
        """CL-G6: a timer fires only while the node holds the shard's lease, and no member expires within
        its session after a heartbeat that was answered well here."""
        node, kind = self._node, timer.key[0]
        node.world.census[f"timers fired: {kind}"] += 1
        if not node.lease_is_proved(TopicPartition(OFFSETS, shard)):
            node.world.violated("TimersUnderLease", f"{node.name} without the lease of shard {shard} fires {timer.key}")
        if kind == "session":
            silent_ms = node.now() - self._beaten_ms.get(timer.key[1:], 0)
            if silent_ms < self._session_ms:
                node.world.violated("Unheard", f"{node.name} expires {timer.key}, heard {silent_ms} ms ago")

    def _stepped(self, shard: WatchedShard, event: Event, effects: Effects) -> None:
        self._node.watching.stepped(self._node, shard, event, effects)

    def _keep_ready(self) -> None:
        more = self.warming.take_some()
        self._node.later(PAUSE_MS // 10 if more else LOOK_MS, self._keep_ready)

    # What is asked.

    def receive(self, request: Request, reply: Callable[[Any], None]) -> None:
        asked: Any = request
        self.receive_at(partition_for(asked.group_id, SHARDS), asked, reply)

    def receive_at(self, shard: int, request: Any, reply: Callable[[Any], None]) -> None:
        self._requests += 1
        asked = replace(request, request_id=self._requests)
        self._asked[self._requests] = shard, asked, reply, self._node.now()
        assert self.engine.submit(shard, asked)
        self._release()
        self.wake()

    def end_positions(self, asked: MarkerAsk, told: Callable[[int], None]) -> None:
        """The marker of a transaction that has positions in a shard (TX-G4)."""
        marker = asked.marker
        ended = TxnEnded(0, marker.producer_id, marker.epoch, marker.commit, marker.coordinator_epoch, marker.level)

        def written(reply: Reply) -> None:
            self._node.trace(f"{self._node.name} marker {asked.place} {marker} {reply.code.name}")
            told(int(ErrorCode.NOT_LEADER_OR_FOLLOWER if reply.code in NOT_HERE else reply.code))

        self.receive_at(asked.place.partition, ended, written)

    # What is answered.

    def _release(self) -> None:
        released = self.engine.take_released()
        for request_id, reply in released.replies:
            self._answer(request_id, reply)
        answer_plans(self.engine, released)

    def _answer(self, request_id: int, reply: Reply) -> None:
        found = self._asked.pop(request_id, None)
        if found is None:
            self._node.world.violated("AnswersOnce", f"{self._node.name} answers request {request_id} a second time")
            return
        shard, request, back, heard_ms = found
        if isinstance(request, Heartbeat | ConsumerHeartbeat) and reply.code is ErrorCode.NONE:
            self._beaten_ms[request.group_id, request.member_id] = heard_ms
        self._answered(Answered(self._node, shard, self.coordinating.epoch_of(shard), request, reply))
        back(reply)
