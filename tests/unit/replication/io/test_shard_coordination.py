"""What becomes of a shard while its unit is led here: the lease comes and goes, copies are too few, another leads."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from muster.coordinator.replication.io.shards.shard_coordination import ShardCoordination
from muster.coordinator.replication.io.wire.node_links import LinkCaller, LinkSettings
from muster.coordinator.replication.protocol.cluster_metadata import ClusterImage, TopicPartition
from muster.coordinator.replication.protocol.leader import Leader
from muster.coordinator.replication.protocol.lease import SilencePromise
from muster.coordinator.runtime.shards import ShardStatus
from tests.support.led import EPOCH, SHARD, Cluster
from tests.support.sides import unheard

NUMBER = SHARD.partition
SESSION = 6_000
LEASE = 5_880
AHEAD = 1_700_000_000_000
"""Of the side's clock is the engine's."""


class RecordingEngine:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.served = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            self.told.append((name, *(arg for arg in args if not (isinstance(arg, int) and arg >= AHEAD))))
            self.served = name == "load_shard" or (self.served and name != "leave")
            return name == "opened"  # answers wait there

        return noted

    def status(self, shard: int) -> ShardStatus:
        return ShardStatus.ACTIVE if self.served else ShardStatus.UNLOADED

    def take(self) -> list[str]:
        told, self.told = self.told, []
        return [name for name, *_ in told]


class Stage:
    """Node 1, and a shard that it leads as soon as `gain` says so."""

    def __init__(self, warming: Any = None) -> None:
        self.now_ms = 10_000
        self.settlers: list[Callable[[], None]] = []
        self.replicas = SimpleNamespace(
            me=1,
            leaders=dict[TopicPartition, Leader](),
            gained=dict[TopicPartition, int](),
            lost=dict[TopicPartition, None](),
            resized=dict[TopicPartition, None](),
            promise=lambda unit: SilencePromise(-SESSION),
        )
        side: Any = SimpleNamespace(
            replicas=self.replicas,
            image=ClusterImage(),
            calling=LinkSettings(LinkCaller("c", 1)),
            on_learned=lambda listener: None,
            on_moved=lambda listener: None,
            on_settled=self.settlers.append,
        )
        self.coordinating = ShardCoordination(
            side, session_ms=SESSION, on_refusal=True, failed=unheard, now_ms=lambda: self.now_ms
        )
        self.lost: list[int] = []
        self.coordinating.on_lost(self.lost.append)
        self.engine: Any = RecordingEngine()
        self.wakes = 0
        driver: Any = SimpleNamespace(wake=self.wake)
        self.coordinating.start(self.engine, driver, lambda: AHEAD + self.now_ms, warming)
        self.cluster = Cluster(isr=(1, 2), unit=SHARD, halves=2)

    def wake(self) -> None:
        self.wakes += 1

    def woken(self) -> bool:
        """Whether the driver takes a turn since this was last asked."""
        wakes, self.wakes = self.wakes, 0
        return wakes > 0

    def gain(self, epoch: int = EPOCH) -> None:
        self.cluster.leader.epoch = epoch
        self.replicas.leaders[SHARD] = self.cluster.leader
        self.replicas.gained[SHARD] = epoch
        self.settle()

    def lose(self) -> None:
        del self.replicas.leaders[SHARD]
        self.replicas.lost[SHARD] = None
        self.settle()

    def settle(self) -> None:
        for listener in self.settlers:
            listener()
        for what in (self.replicas.gained, self.replicas.lost, self.replicas.resized):
            what.clear()

    def prove(self, at_ms: int) -> None:
        """The follower fetches both halves, and fetches on."""
        self.now_ms = at_ms
        for _ in range(2):
            for half in (0, 1):
                self.cluster.fetch(2, 0, at_ms, half=half, epoch=self.cluster.leader.epoch)
        self.settle()

    def in_sync(self, *isr: int) -> None:
        state_epoch = self.cluster.leader.in_sync.partition_epoch + 1
        self.cluster.learns(isr, state_epoch, self.now_ms)
        self.replicas.resized[SHARD] = None
        self.settle()


def play(story: Callable[[Stage], None], warming: Any = None) -> None:
    async def run() -> None:
        stage = Stage(warming)
        story(stage)
        await stage.coordinating.stop()

    asyncio.run(run())


def served() -> Callable[[Callable[[Stage], None]], None]:
    def after(story: Callable[[Stage], None]) -> None:
        def whole(stage: Stage) -> None:
            stage.gain()
            stage.prove(10_100)
            stage.engine.take()
            story(stage)

        play(whole)

    return after


def test_g1_it_is_loaded_when_the_unit_is_gained_and_left_when_it_is_lost() -> None:
    def story(stage: Stage) -> None:
        stage.gain()
        assert stage.engine.take() == ["load_shard"]
        assert not stage.coordinating.may_answer(NUMBER)
        stage.prove(10_100)
        assert stage.coordinating.may_answer(NUMBER)
        assert stage.engine.take() == ["moved", "opened", "submit"], "the takeover is noted once it is served"
        assert stage.woken()
        stage.lose()
        assert stage.engine.take() == ["leave"]
        assert stage.woken(), "who waits there hears so"
        assert stage.lost == [NUMBER]
        assert not stage.coordinating.may_answer(NUMBER)
        assert not stage.coordinating.leads(NUMBER)

    play(story)


class OneReady:
    """What is kept ready of one shard, once."""

    def __init__(self) -> None:
        self.ready: list[object] = [object()]

    def take_warm_shard(self, shard: int) -> object | None:
        assert shard == NUMBER
        return self.ready.pop() if self.ready else None

    async def run(self) -> None: ...


def test_g8_what_was_kept_ready_is_taken_over_and_otherwise_it_is_loaded() -> None:
    warming = OneReady()
    (ready,) = warming.ready

    def story(stage: Stage) -> None:
        stage.gain()
        assert stage.engine.told == [("take_over", NUMBER, ready)]
        stage.engine.served = True
        stage.prove(10_100)
        stage.lose()
        stage.engine.take()
        stage.gain(EPOCH + 2)
        assert stage.engine.take()[0] == "load_shard"

    play(story, warming)


def test_g5_in_its_next_epoch_it_goes_on_and_in_a_later_one_it_is_loaded_anew() -> None:
    def story(stage: Stage) -> None:
        stage.cluster = Cluster(isr=(1, 2), unit=SHARD, halves=2)
        stage.gain(EPOCH + 1)
        assert stage.engine.take() == []
        stage.cluster = Cluster(isr=(1, 2), unit=SHARD, halves=2)
        stage.gain(EPOCH + 3)
        assert stage.engine.take() == ["leave", "load_shard"]

    served()(story)


def test_g6_timers_stand_still_without_the_lease_and_move_before_they_run_again() -> None:
    def story(stage: Stage) -> None:
        assert stage.coordinating.may_fire(NUMBER)
        stage.now_ms = 10_100 + LEASE + 500
        assert not stage.coordinating.may_fire(NUMBER)
        assert stage.engine.take() == []
        stage.prove(10_100 + LEASE + 1_000)
        assert ("moved", NUMBER, 1_000) in stage.engine.told
        assert stage.engine.take() == ["moved", "opened"]
        assert stage.woken(), "what was held is told"
        assert stage.coordinating.may_fire(NUMBER)
        stage.settle()
        assert (stage.engine.take(), stage.woken()) == ([], False), "nobody looks at it again while it has the lease"

    served()(story)


def test_g6_a_lease_that_is_back_before_anybody_looked_lets_no_timer_through() -> None:
    """The turn that fires timers comes first: what was missed is made good before one of them fires."""

    def story(stage: Stage) -> None:
        stage.settlers.clear()  # nobody has looked
        stage.prove(10_100 + LEASE + 1_000)
        assert stage.coordinating.may_answer(NUMBER)
        assert not stage.coordinating.may_fire(NUMBER)
        assert not stage.coordinating.may_fire(NUMBER), "not until the deadlines have moved"
        stage.coordinating._see()
        assert stage.engine.take() == ["moved", "opened"]
        assert stage.coordinating.may_fire(NUMBER)

    served()(story)


def test_g6_after_a_long_gap_it_is_let_go_of_and_loaded_anew() -> None:
    def story(stage: Stage) -> None:
        stage.now_ms = 10_100 + LEASE + 2_000
        assert not stage.coordinating.may_fire(NUMBER)
        stage.coordinating._see()
        assert stage.engine.take() == ["leave"]
        assert stage.lost == [NUMBER]
        assert stage.coordinating.leads(NUMBER), "it is not available, and still this node's"
        stage.prove(20_000)
        assert stage.engine.take() == ["load_shard", "opened"]

    served()(story)


def test_g3_with_too_few_in_sync_the_engine_is_told_before_anything_is_appended() -> None:
    def story(stage: Stage) -> None:
        stage.woken()
        stage.in_sync(1)
        assert (stage.engine.take(), stage.woken()) == (["starve"], True)
        assert not stage.coordinating.may_answer(NUMBER)
        stage.in_sync(1)
        assert (stage.engine.take(), stage.woken()) == ([], False), "once"
        stage.in_sync(1, 2)
        assert ("feed" in stage.engine.take(), stage.woken()) == (True, True)

    served()(story)


def test_g3_what_is_gained_with_too_few_in_sync_begins_so() -> None:
    def story(stage: Stage) -> None:
        stage.cluster = Cluster(isr=(1,), unit=SHARD, halves=2)
        stage.gain()
        assert stage.engine.take() == ["starve", "load_shard"]

    play(story)
