"""A node's shards in a cluster: gained, served while the lease holds, and lost (CL-G1 to CL-G9).

The rules are `CoordinatorTerm`'s and the engine's (`runtime.leased`); `ShardCoordination` connects them.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from muster.coordinator.config import Address
from muster.coordinator.core.model.events import CutFound
from muster.coordinator.edge.background_tasks import SupervisedTasks, TaskFailed
from muster.coordinator.edge.cluster_view import monotonic_ms
from muster.coordinator.replication.io.replica_manager import ReplicaManager
from muster.coordinator.replication.io.shards.lease_release import LeaseQuestions, LedUnits
from muster.coordinator.replication.io.shards.replicated_shards import WarmShards
from muster.coordinator.replication.io.shards.takeover_records import ShardLosses, ShardTakeovers
from muster.coordinator.replication.io.wire.node_links import address_in
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    OFFSETS,
    ImageChanges,
    TopicPartition,
    halves_of,
)
from muster.coordinator.replication.protocol.coordinator_term import CoordinatorTerm
from muster.coordinator.replication.protocol.lease import HOLD, RUN, LeaseGap, TimerVerdict
from muster.coordinator.runtime.leased import LeasedEngine
from muster.coordinator.runtime.shards import ShardStatus

LOOK_S: Final = 0.1

ELSEWHERE = "another node leads it, or nobody does"
NO_LEASE = "its leader has not heard of its followers for too long; it is loaded again once it does"


class DriverWakeup(Protocol):
    """Of the engine's driver: `wake` has it take a turn, and tell what may be told, in the loop's next round."""

    def wake(self) -> None: ...


class ShardCoordination:
    """The engine's `Authority`. Made before the engine; `start` once both are there.

    topic: whose partitions are the engine's shards. Groups have a diary, in which takeovers and what they cost are
    noted (CL-G9); transactional ids have none. All in the thread of the loop.
    """

    def __init__(
        self,
        side: ReplicaManager,
        *,
        session_ms: int,
        on_refusal: bool,
        failed: TaskFailed,
        now_ms: Callable[[], int] = monotonic_ms,
        wait_ms: int | None = None,
        topic: str = OFFSETS,
    ) -> None:
        """session_ms: `zookeeper.session.timeout.ms`, as negotiated. wait_ms: the longest of any node's. on_refusal:
        `broker.eviction.on.refusal`. failed: hears of a mistake of the program. now_ms: the side's clock."""
        self._side = side
        self._topic = topic
        self._halves = frozenset(half.topic for half in halves_of(TopicPartition(topic, 0)))
        self._session_ms, self._wait_ms = session_ms, wait_ms
        self._now_ms = now_ms
        self._terms: dict[int, CoordinatorTerm] = {}
        self._thin: set[int] = set()  # too few in sync
        self._dry: set[int] = set()  # to be looked at whether they may answer again
        self._due: dict[int, TimerVerdict] = {}  # what has come of looks that asked for more than a word
        self._whole: set[int] = set()  # have written what counts already
        self._pass: asyncio.Handle | None = None
        self._addresses: dict[int, Address] = {}
        self._takeovers = self._cuts = None
        if topic == OFFSETS:
            self._takeovers = ShardTakeovers(side.replicas.me, side.image, now_ms)
            self._cuts = ShardLosses(side.image, lambda place, epoch: side.elections.cost(place, epoch), self._cut)
        self._lost: list[Callable[[int], None]] = []
        self._tasks = SupervisedTasks(failed)
        self._asking = LeaseQuestions(
            side.calling,
            self._addresses.get,
            wanted=self._waited_for,
            let_go=self._let_go,
            on_refusal=on_refusal,
            now_ms=now_ms,
            failed=failed,
        )
        self._warming: WarmShards | None = None
        self._engine: LeasedEngine
        self._driver: DriverWakeup
        self._clock_ms: Callable[[], int]

    def start(
        self, engine: LeasedEngine, driver: DriverWakeup, clock_ms: Callable[[], int], warming: WarmShards | None = None
    ) -> None:
        """Serve what this node leads from now on. clock_ms: the driver's time. warming: keeps ready what it may lead
        later (`offsets.warm.replicas`)."""
        self._engine, self._driver, self._clock_ms, self._warming = engine, driver, clock_ms, warming
        self._learned()
        self._side.on_learned(self._learned)
        self._side.on_moved(self._moved)
        self._side.on_settled(self._settled)
        for place in list(self._side.replicas.leaders):
            self._gain(place)
        self._tasks.start(self._look_on())
        if self._takeovers is not None and self._cuts is not None:
            self._takeovers.read_leaders()
            self._tasks.start(self._cuts.run())
        if warming is not None:
            self._tasks.start(warming.run())

    def on_lost(self, listener: Callable[[int], None]) -> None:
        """Call it with each shard that this node serves no more: whoever is connected for its groups is to go."""
        self._lost.append(listener)

    @property
    def units(self) -> list[TopicPartition]:
        """The shards that this node leads."""
        return [self._unit(shard) for shard in self._terms]

    def epoch(self, shard: int) -> int:
        """The leader epoch by which this node leads the shard; -1 where it does not."""
        term = self._terms.get(shard)
        return NO_EPOCH if term is None else term.epoch

    def _unit(self, shard: int) -> TopicPartition:
        return TopicPartition(self._topic, shard)

    async def stop(self) -> None:
        """Gain nothing more, and ask nobody."""
        self._tasks.stop()
        await self._tasks.ended()
        await self._asking.stop()
        if self._pass is not None:
            self._pass.cancel()

    # -- what the engine asks: see `Authority` --------------------------------------------------------------

    def may_answer(self, shard: int) -> bool:
        term = self._terms.get(shard)
        if term is not None and term.may_answer(self._now_ms()):
            return True
        self._dry.add(shard)
        return False

    def may_fire(self, shard: int) -> bool:
        term = self._terms.get(shard)
        if term is None:
            return False
        if shard not in self._due:
            look = term.judge_timers(self._now_ms())
            if look is RUN:
                return True
            if look is not HOLD:
                self._due[shard] = look
                self._soon()
        self._dry.add(shard)
        return False

    def wrote(self, shard: int, position: int) -> None:
        term = self._terms.get(shard)
        if term is not None and term.wrote(position):
            self._whole.add(shard)
            self._soon()

    def flushed(self, shards: Collection[int]) -> None:
        self._side.kept([half for shard in shards for half in halves_of(self._unit(shard))])

    def broke(self, shard: int, why: str) -> None:
        self._side.broken(self._unit(shard), why)

    def leads(self, shard: int) -> bool:
        return shard in self._terms

    # -- what the side tells ----------------------------------------------------------------------------------

    def _learned(self, changes: ImageChanges | None = None) -> None:
        """Remember where nodes were: one that is gone is asked there whether it is (CL-G5b)."""
        image = self._side.image
        for node in image.nodes if changes is None else changes.nodes:
            address = address_in(image, node)
            if address is not None:
                self._addresses[node] = address
        if changes is not None and self._takeovers is not None:
            self._takeovers.learned(changes.partitions)

    def _moved(self, place: TopicPartition) -> None:
        if place.topic in self._halves:
            self._commit(place.partition)

    def _settled(self) -> None:
        replicas = self._side.replicas
        for place in list(replicas.lost):
            self._lose(place)
        for place in list(replicas.gained):
            self._gain(place)
        for place in list(replicas.resized):
            if place.topic == self._topic:
                self._weigh(place.partition)
        if self._dry:
            self._check_shards()

    # -- shards that come and go --------------------------------------------------------------------------------

    def _gain(self, place: TopicPartition) -> None:
        leader = self._side.replicas.leaders.get(place)
        if place.topic != self._topic or leader is None:
            return
        shard, term = place.partition, self._terms.get(place.partition)
        if term is not None and (term.leader is leader or term.goes_on(leader)):
            self._weigh(shard)
            self._dry.add(shard)
            return
        if term is not None:
            self._leave(shard, ELSEWHERE)
        now_ms = self._clock_ms()
        promise = self._side.replicas.promise(place)
        self._terms[shard] = CoordinatorTerm(leader, promise, self._session_ms, self._now_ms(), self._wait_ms)
        if self._takeovers is not None:
            self._takeovers.gained(shard, self._terms[shard], now_ms)
        self._thin.discard(shard)
        self._weigh(shard)
        warm = None if self._warming is None else self._warming.take_warm_shard(shard)
        if warm is None:
            self._engine.load_shard(shard, now_ms)
        else:
            self._engine.take_over(shard, warm, now_ms)
        self._dry.add(shard)
        self._driver.wake()
        self._asking.soon()

    def _lose(self, place: TopicPartition) -> None:
        if place.topic != self._topic or self._terms.pop(place.partition, None) is None:
            return
        shard = place.partition
        for kept in (self._thin, self._dry, self._whole):
            kept.discard(shard)
        self._due.pop(shard, None)
        if self._takeovers is not None and self._cuts is not None:
            self._takeovers.lost(shard)
            self._cuts.lost(shard)
        self._leave(shard, ELSEWHERE)

    def _leave(self, shard: int, why: str) -> None:
        self._engine.leave(shard, why, self._clock_ms())
        for listener in self._lost:
            listener(shard)
        self._driver.wake()

    def _weigh(self, shard: int) -> None:
        """CL-G3: with fewer in sync than the least nothing is written."""
        term = self._terms.get(shard)
        if term is None or term.enough == (shard not in self._thin):
            return
        if term.enough:
            self._thin.discard(shard)
            self._engine.feed(shard, self._clock_ms())
        else:
            self._thin.add(shard)
            in_sync = term.leader.in_sync
            why = f"{len(in_sync.committed)} in sync, fewer than min.insync.replicas ({in_sync.min_size})"
            self._engine.starve(shard, f"{self._unit(shard)}: {why}", self._clock_ms())
        self._driver.wake()

    def _commit(self, shard: int) -> None:
        term = self._terms.get(shard)
        position = None if term is None else term.committed()
        if position is not None:
            self._engine.committed(shard, position, self._clock_ms())
            self._driver.wake()

    # -- the lease, and time ------------------------------------------------------------------------------------

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._dry.update(self._terms)
            self._check_shards()
            if self._engine.late(self._clock_ms()):
                self._driver.wake()

    def _check_shards(self) -> None:
        """At all shards that may have had no lease."""
        for shard in list(self._dry):
            self._look_at(shard)

    def _look_at(self, shard: int) -> None:
        term = self._terms.get(shard)
        if term is None:
            self._dry.discard(shard)
            return
        look, now_ms = self._due.pop(shard, None) or term.judge_timers(self._now_ms()), self._clock_ms()
        match look.gap:
            case LeaseGap.HOLD:
                return
            case LeaseGap.UNLOAD:
                self._leave(shard, NO_LEASE)
                return
            case LeaseGap.LOAD:
                self._thin.discard(shard)
                self._weigh(shard)
                self._engine.load_shard(shard, now_ms)
            case LeaseGap.MOVE:
                self._engine.moved(shard, look.gap_ms, now_ms)
        self._dry.discard(shard)
        if self._engine.opened(shard, now_ms):
            self._driver.wake()
        if self._engine.status(shard) is ShardStatus.ACTIVE:
            self._note_takeover(shard)

    def _note_takeover(self, shard: int) -> None:
        if self._takeovers is None or self._cuts is None or (takeover := self._takeovers.served(shard)) is None:
            return
        self._engine.submit(shard, takeover)
        self._driver.wake()
        self._cuts.gained(shard)

    def _cut(self, shard: int, epoch: int, records: int) -> bool:
        if self._engine.status(shard) is not ShardStatus.ACTIVE:
            return False
        self._engine.submit(shard, CutFound(shard, epoch, records))
        self._driver.wake()
        return True

    def _soon(self) -> None:
        if self._pass is None:
            self._pass = asyncio.get_running_loop().call_soon(self._see)

    def _see(self) -> None:
        self._pass = None
        whole, self._whole = self._whole, set()
        for shard in whole:
            self._commit(shard)
        for shard in list(self._due):
            self._look_at(shard)

    # -- those who led before -------------------------------------------------------------------------------------

    def _waited_for(self) -> dict[int, list[LedUnits]]:
        wanted: dict[int, list[LedUnits]] = {}
        now_ms = self._now_ms()
        for shard, term in self._terms.items():
            for node in term.waits_for(now_ms):
                wanted.setdefault(node, []).append((self._unit(shard), term.epoch))
        return wanted

    def _let_go(self, node: int, units: Iterable[LedUnits]) -> None:
        """What was asked in an earlier epoch than the present one says nothing of those in between."""
        for place, epoch in units:
            term = self._terms.get(place.partition)
            if term is not None and term.epoch == epoch:
                term.let_go(node)
                self._dry.add(place.partition)
        self._check_shards()
