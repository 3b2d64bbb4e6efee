"""Performs `shard_ownership/`: sends its requests to the upstream, and loads and unloads shards in the engine.

Everything runs in the thread of the loop. The engine calls `ShardOwner` (as its `Authority`) in the middle of its
turns; whatever calls the engine back waits until no turn is running: for the loop's next round, or for the end of
`heard`. A take-over becomes a ledger record, as in a cluster (KB-F9, CL-G9): the turn stands where the leader epoch
stands there.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from muster.coordinator.core.model.events import Event, TookOver, Unload
from muster.coordinator.edge.background_tasks import SupervisedTasks
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ef
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership.events_and_effects import AcquisitionReport, TakeoverCause
from muster.coordinator.kafka_backend.shard_ownership.lease import OwnershipSettings
from muster.coordinator.kafka_backend.shard_ownership.node_shards import NodeShards
from muster.coordinator.kafka_backend.shard_ownership.shard_log import NEVER, ProducerEpoch
from muster.coordinator.kafka_backend.state_log import StateLog
from muster.coordinator.kafka_backend.state_log_io import StateLogReader, StateLogWriter
from muster.coordinator.kafka_backend.transaction_log import ClientTransactions
from muster.coordinator.kafka_backend.upstream import record_requests
from muster.coordinator.kafka_backend.upstream.protocol import Unreached, UpstreamError
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.runtime.leased import LeasedEngine
from muster.coordinator.runtime.shards import ShardStatus
from muster.storage.errors import StorageError

# What the ledger records of a take-over (KB-F9, CL-G9)
# -----------------------------------------------------

NOT_KNOWN: Final = 0
"""A moment."""


def takeover_event(report: AcquisitionReport, shard: int, ahead_ms: int = 0) -> TookOver | None:
    """What to note now that it is served; nothing where nobody had it before. Its turn stands where a leader epoch does
    in a cluster. ahead_ms: of the clock by which leases count, the engine's."""
    before = report.before
    if before is None:
        return None
    assigned_ms = report.assigned_ms + ahead_ms
    return TookOver(
        shard,
        report.owner.turn,
        before.node,
        report.owner.node,
        takeover_cause(report),
        NOT_KNOWN,
        assigned_ms,
        lost=report.cause is TakeoverCause.NODE_LOST,
    )


def takeover_cause(report: AcquisitionReport) -> str:
    """Where this very process had it before: why it gave it up."""
    return report.gave_up if report.cause is TakeoverCause.FENCED and report.gave_up else report.cause.value


LATE_S: Final = 0.1
"""How often it is looked who has waited too long for an answer (KB-A3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerClocks:
    """now_ms: leases count by it; it never goes back, and goes on while the machine sleeps. wall_ms: what records are
    stamped with. engine_ms: the engine's own; None: the same as now_ms."""

    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    engine_ms: Callable[[], int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerCallbacks:
    """What an owner of shards tells its node: on_served of each shard that is served and how it was taken, on_fenced of
    one that somebody else writes, on_lost of one that is served no more, on_acked after how many seconds a request to
    write was answered, on_stop why the process must end, on_bug of a mistake of the program."""

    on_served: Callable[[ef.AcquisitionReport, int], None] = lambda report, shard: None
    on_fenced: Callable[[int], None] = lambda shard: None
    on_lost: Callable[[int, str], None] = lambda shard, why: None
    on_acked: Callable[[float], None] = lambda seconds: None
    on_stop: Callable[[str], None] = lambda sentence: None
    on_bug: Callable[[BaseException], None] = lambda error: None


NOBODY_HEARS: Final = OwnerCallbacks()


class ShardOwner:
    """`start` once the engine is there; `on_status` is the engine's `on_status`."""

    def __init__(
        self,
        upstream: Upstream,
        log: StateLog,
        topic: str,
        cluster: str,
        settings: OwnershipSettings,
        clocks: OwnerClocks,
        callbacks: OwnerCallbacks = NOBODY_HEARS,
    ) -> None:
        self._upstream = upstream
        self._log = log
        self._topic = topic
        self._cluster = cluster
        self._shards = NodeShards(settings)
        self.now_ms = clocks.now_ms
        self._clock_ms = clocks.engine_ms or clocks.now_ms
        self._wall_ms = clocks.wall_ms
        self._on_served = callbacks.on_served
        self._on_lost = callbacks.on_lost
        self._on_stop = callbacks.on_stop
        self.on_let_go: Callable[[int], None] = lambda token: None
        """Hears of each `Revoke` that is done with (KB-F8)."""
        self._refusing: set[int] = set()
        """Let go of: what they wrote is waited for, and its answers leave."""
        self._tasks = SupervisedTasks(callbacks.on_bug)
        self._later: deque[Callable[[], None]] = deque()
        self._pass: asyncio.Handle | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._finishing: dict[int, int] = {}
        self._sent: dict[int, int] = {}
        self._acked: dict[int, int] = {}
        self._behind: dict[int, int] = {}
        self._reads = StateLogReader(self, upstream, log, topic)
        self.producing = StateLogWriter(
            self,
            upstream,
            topic,
            clocks.wall_ms,
            on_acked=callbacks.on_acked,
            on_fenced=callbacks.on_fenced,
            on_bug=callbacks.on_bug,
        )
        self.transactions = ClientTransactions(self, upstream, log, topic, clocks.wall_ms)
        """Of clients, with positions in these shards."""
        self._decided: list[ev.ShardAppend] = []
        """By the engine's turn, which is not over."""
        self._engine: LeasedEngine
        self._wake: Callable[[], None]
        self._tell: Callable[[], None]

    def start(self, engine: LeasedEngine, wake: Callable[[], None], tell: Callable[[], None]) -> None:
        """wake: has the engine's driver take a turn in the loop's next round; tell: has it tell at once what may be
        told, load, and wake where a turn is wanted."""
        self._engine, self._wake, self._tell = engine, wake, tell
        self.start_task(self._look_on())

    async def stop(self) -> None:
        """Nothing more is asked or told. What is under way may come to be."""
        self.producing.stop()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._pass is not None:
            self._pass.cancel()
        await self._tasks.close()

    # -- what the engine asks: see `Authority` --------------------------------------------------------------------

    def may_answer(self, shard: int) -> bool:
        return self._shards.may_answer(shard, self.now_ms())

    may_fire = may_answer

    def wrote(self, shard: int, position: int) -> None:
        """The engine's append has this number; what it numbers without one (a replay) rests on those before."""
        turn = self._log.turn(shard)
        if turn:
            self._sent[shard] = position
            self._decided.append(ev.ShardAppend(shard, turn, turn.size, position))
        elif self._acked.get(shard, 0) < self._sent.get(shard, 0):
            self._behind[shard] = position
        else:
            self._soon(lambda: self._committed(shard, position))

    def flushed(self, shards: Collection[int]) -> None:
        """The turn is over: what it wrote may leave. That it counts Kafka says (KB-A5)."""
        self._leave()

    def broke(self, shard: int, why: str) -> None:
        """No flush breaks."""

    def leads(self, shard: int) -> bool:
        return shard in self._shards.stages() and shard not in self._refusing

    def takes(self, shard: int) -> bool:
        return self._shards.takes(shard)

    def has_room(self, shard: int) -> bool:
        return self._shards.has_room(shard)

    def on_status(self, shard: int, status: ShardStatus, why: str) -> None:
        """The engine tells of a shard, in the middle of something. Once it is loaded, what it writes is taken."""
        request = self._finishing.pop(shard, None) if status in (ShardStatus.ACTIVE, ShardStatus.FAILED) else None
        if status is ShardStatus.ACTIVE and request is not None:
            self._log.let_go(shard)
            self.step(ev.LoadFinished(shard, request))
        elif status is ShardStatus.FAILED:
            self._soon(lambda: self._fell(shard, request, why))

    # -- what others ask --------------------------------------------------------------------------------------------

    @property
    def shards(self) -> NodeShards:
        """For questions only."""
        return self._shards

    def step(self, event: ev.ShardEvent) -> None:
        """Something has happened: see `ownership.events`. What the engine wrote before that comes before it."""
        self._leave()
        self._step(event)

    def heard(self, event: ev.ShardEvent) -> None:
        """The same in a call of the loop's own: what comes of it waits for no other round."""
        self.step(event)
        if self._pass is not None:
            self._pass.cancel()
            self._do_later()

    def _leave(self) -> None:
        if self._decided:
            decided, self._decided = self._decided, []
            self._step(ev.TurnDecided(decided))

    def _step(self, event: ev.ShardEvent) -> None:
        now_ms, ended_ms = self.now_ms(), self._shards.lease_ends_ms
        for effect in self._shards.step(event, now_ms):
            PERFORMED[type(effect)](self, effect)
        if NEVER < ended_ms <= now_ms < self._shards.lease_ends_ms:
            for shard in self._shards.served():
                self._opened(shard, now_ms - ended_ms)

    def _opened(self, shard: int, gap_ms: int) -> None:
        """The lease is back after a short gap: nobody was heard in it, so deadlines come later by as much (CL-G6)."""

        def opened() -> None:
            if self._engine.status(shard) is ShardStatus.ACTIVE:
                self._engine.moved(shard, gap_ms, self._clock_ms())
            self._engine.opened(shard, self._clock_ms())

        self._soon(opened)

    # -- what is to be done: asking the upstream ----------------------------------------------------------------------

    def _init(self, effect: ef.InitProducer) -> None:
        async def ask() -> None:
            given = await record_requests.init_producer(self._upstream, f"{self._cluster}.shard-{effect.shard}")
            producer = ProducerEpoch(given.producer_id, given.epoch)
            self.step(ev.ProducerInitialized(effect.shard, effect.request, given.code, producer))

        self.start_request(effect.shard, effect.request, ask())

    def _ask_leaders(self, effect: ef.FindLeaders) -> None:
        async def ask() -> None:
            try:
                view = await self._upstream.refresh([self._topic])
            except UpstreamError:
                self.step(ev.LeadersFound(effect.request, {}))
                return
            topic = view.topics.get(self._topic)
            parts = () if topic is None else topic.parts
            self.step(ev.LeadersFound(effect.request, {shard: view.leader(self._topic, shard) for shard in parts}))

        self.start_task(ask())

    async def leader(self, shard: int) -> int:
        """Whoever leads the shard's partition, asked for if nobody is known to. Raises UpstreamError."""
        try:
            return self._upstream.leader(self._topic, shard)
        except UpstreamError:
            await self._upstream.refresh([self._topic])
            return self._upstream.leader(self._topic, shard)

    async def count_answer(self, api: str, code: int) -> None:
        """A leader that says no may not lead any more: who does is learned before it is asked again."""
        self._upstream.count(api, code)
        if code:
            await self._upstream.refresh([self._topic])

    def start_request(self, shard: int, request: int, asking: Coroutine[Any, Any, None]) -> None:
        async def asked() -> None:
            try:
                await asking
            except (UpstreamError, StorageError) as error:
                if isinstance(error, Unreached):
                    await self.refresh_leaders()
                self.step(ev.RequestWithoutAnswer(shard, request, str(error)))

        self.start_task(asked())

    async def refresh_leaders(self) -> None:
        """Whoever was asked is gone, or silent: another may lead by now."""
        with suppress(UpstreamError):
            await self._upstream.refresh([self._topic])

    def submit(self, shard: int, event: Event) -> None:
        """To the engine, at once: its turn comes in the loop's next round."""
        self._engine.submit(shard, event)
        self._wake()

    # -- what is to be done: in the engine ----------------------------------------------------------------------------

    def _apply(self, effect: ef.ApplyRecords) -> None:
        if effect.first:
            self._log.begin_shard(effect.shard)
        self._log.hold(effect.shard, effect.records)

    def _finish(self, effect: ef.FinishLoad) -> None:
        shard = effect.shard
        self._finishing[shard] = effect.request
        self._sent.pop(shard, None)
        self._acked.pop(shard, None)
        self._reads.gone(shard)
        self._log.ready(shard)

        def load() -> None:
            if self._finishing.get(shard) == effect.request:
                self._engine.load_shard(shard, self._clock_ms())

        self._soon(load)

    def _serve(self, effect: ef.ServeShard) -> None:
        def serve() -> None:
            self._engine.opened(effect.shard, self._clock_ms())
            took = takeover_event(effect.report, effect.shard, self._clock_ms() - self.now_ms())
            if took is not None:
                self._engine.submit(effect.shard, took)
            self._on_served(effect.report, effect.shard)

        self._soon(serve)

    def _refuse(self, effect: ef.RefuseRequests) -> None:
        """KB-F8: who waits for others hears that the coordinator moves; who waits for Kafka waits on."""
        self._refusing.add(effect.shard)

        def refuse() -> None:
            if effect.shard in self._refusing:
                self._engine.submit(effect.shard, Unload())

        self._soon(refuse)

    def _let_go(self, effect: ef.ShardsLetGo) -> None:
        self._soon(lambda: self.on_let_go(effect.token))

    def _unload(self, effect: ef.UnloadShard) -> None:
        self._refusing.discard(effect.shard)
        self._finishing.pop(effect.shard, None)
        self._reads.gone(effect.shard)
        self._log.let_go(effect.shard)
        self.transactions.gone(effect.shard)

        def unload() -> None:
            self._engine.leave(effect.shard, effect.why, self._clock_ms())
            self._on_lost(effect.shard, effect.why)

        self._soon(unload)

    def _released(self, effect: ef.ReleaseAnswers) -> None:
        shard = effect.shard
        self._acked[shard] = position = effect.position
        if position >= self._sent.get(shard, 0):
            position = max(position, self._behind.pop(shard, 0))
        self._soon(lambda: self._committed(shard, position))

    def _committed(self, shard: int, position: int) -> None:
        if self._engine.status(shard) is not ShardStatus.UNLOADED or shard in self._refusing:
            self._engine.committed(shard, position, self._clock_ms())

    def _fell(self, shard: int, request: int | None, why: str) -> None:
        """The engine dropped it: it is taken anew, from its first step on. What it had appended may be in the log."""
        if self._engine.status(shard) is not ShardStatus.FAILED:
            return
        self._engine.leave(shard, why, self._clock_ms())
        if request is not None:
            self.step(ev.RequestWithoutAnswer(shard, request, why))
            return
        assignment = self._shards.assignment
        mine = frozenset(self._shards.stages())
        self.step(ev.ShardsAssigned(mine - {shard}, assignment))
        self.step(ev.ShardsAssigned(mine, assignment))

    # -- time -------------------------------------------------------------------------------------------------------

    def _wake_at(self, effect: ef.WakeShardsAt) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        in_s = max(effect.at_ms - self.now_ms(), 0) / 1000
        self._alarm = asyncio.get_running_loop().call_later(in_s, self.step, ev.ShardsTick())

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LATE_S)
            if self._engine.late(self._clock_ms()):
                self._wake()

    def _soon(self, work: Callable[[], None]) -> None:
        self._later.append(work)
        if self._pass is None:
            self._pass = asyncio.get_running_loop().call_soon(self._do_later)

    def _do_later(self) -> None:
        self._pass = None
        work, self._later = self._later, deque()
        for each in work:
            each()
        self._tell()

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.start(work)


PERFORMED: dict[type, Callable[[ShardOwner, Any], None]] = {
    ef.InitProducer: ShardOwner._init,
    ef.FindLogEnd: lambda owning, effect: owning._reads.ask_end(effect),
    ef.FetchLog: lambda owning, effect: owning._reads.fetch(effect),
    ef.ApplyRecords: ShardOwner._apply,
    ef.FinishLoad: ShardOwner._finish,
    ef.ServeShard: ShardOwner._serve,
    ef.RefuseRequests: ShardOwner._refuse,
    ef.UnloadShard: ShardOwner._unload,
    ef.ReleaseAnswers: ShardOwner._released,
    ef.ShardsLetGo: ShardOwner._let_go,
    ef.Produce: lambda owning, effect: owning.producing.write(effect),
    ef.FindLeaders: ShardOwner._ask_leaders,
    ef.WriteClientBatch: lambda owning, effect: owning.transactions.write(effect),
    ef.DescribeProducer: lambda owning, effect: owning.transactions.ask_producer(effect),
    ef.ClientWriteOutcome: lambda owning, effect: owning.transactions.outcome(effect),
    ef.FollowLog: lambda owning, effect: owning.transactions.following.follow(effect),
    ef.TransactionPending: lambda owning, effect: owning.transactions.waits(effect),
    ef.TransactionEnded: lambda owning, effect: owning.transactions.ended(effect),
    ef.StopProcess: lambda owning, effect: owning._on_stop(effect.sentence),
    ef.WakeShardsAt: ShardOwner._wake_at,
}
