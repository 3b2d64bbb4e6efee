"""Whole nodes over the modelled Kafka: the real engine, `ShardOwner` and `NodesGroup`, each in a loop of its own, with
the
members and auditors of a cluster's simulation as clients."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from muster.coordinator.core.shard import Shard
from muster.coordinator.edge.cluster_view import OFFSETS_TOPIC
from muster.coordinator.kafka_backend.nodes_group import NodesGroup, NodesGroupSettings
from muster.coordinator.kafka_backend.shard_owner import OwnerCallbacks, OwnerClocks, ShardOwner
from muster.coordinator.kafka_backend.shard_ownership.append_queues import AppendLimits
from muster.coordinator.kafka_backend.shard_ownership.events_and_effects import AcquisitionReport
from muster.coordinator.kafka_backend.shard_ownership.lease import OwnershipSettings, Stage
from muster.coordinator.kafka_backend.shard_ownership.node_shards import NodeShards
from muster.coordinator.kafka_backend.shard_ownership.shard_log import LogBatch, ShardReplay
from muster.coordinator.kafka_backend.state_log import StateLog
from muster.coordinator.kafka_backend.transaction_log import decode_offset
from muster.coordinator.replication.protocol.cluster_metadata import PartitionView
from muster.coordinator.runtime.engine import EngineOptions
from muster.coordinator.runtime.leased import LeasedEngine
from muster.coordinator.runtime.replay import replay_shard
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from tests.sim.checkers.replay import hard_shard
from tests.sim.kafka_backend.checkers import Check, Violation
from tests.sim.kafka_backend.loop import NodeLoop
from tests.sim.kafka_backend.upstream import SimUpstream, wire_of
from tests.sim.kafka_backend.ways import Ways
from tests.sim.kafka_backend.whole_transactional import WholeTransactional
from tests.sim.kafka_backend.world import FAULTS, PRODUCERS, Result, World, run_world
from tests.sim.replication.groups.checkers import Stale
from tests.sim.replication.groups.coordinator import LONG_MS, SHARDS, TOPICS, Answered, answer_plans, limits_of
from tests.sim.replication.groups.members import Auditor, ClassicMember, ConsumerMember, Member, MemberHistory

TOPIC = "muster.state"
APPENDS = AppendLimits(batch_bytes=100_000, delivery_timeout_ms=4_000, request_timeout_ms=800)
LIMITS = limits_of(LONG_MS)
MEMBERS = 2
"""Of each group."""
GROUPS = ("orders", "parts", "bills")
STOOD_STILL_MS = 300


class WholeNode:
    """One life of a node. What `World` and the clients of a cluster's simulation ask of a node, it is."""

    def __init__(self, world: "WholeWorld", node: int, life: int, rate: float) -> None:
        self.world, self.id, self.life, self.rate = world, node, life, rate
        self.name = f"n{node}"
        self.alive = True
        self.frozen_until = 0
        self.leaving = False
        self.loop = NodeLoop(self)
        self.turns: dict[int, int] = {}
        self._frozen_from = 0.0
        self._inbox: list[Callable[[], None]] = []
        self._requests = 0
        self._asked: dict[int, tuple[Any, Callable[[Any], None]]] = {}
        self._turn: asyncio.TimerHandle | None = None
        self._turn_ms = 0
        self.owning: ShardOwner
        self.within(self._make)

    def _make(self) -> None:
        settings = OwnershipSettings(
            self.id,
            f"{self.id}/{self.life}",
            session_timeout_ms=self.world.session_ms,
            owner_refresh_ms=7_000,
            limits=APPENDS,
        )
        upstream: Any = SimUpstream(self, TOPIC)
        log = StateLog(APPENDS.batch_bytes)
        self.owning = ShardOwner(
            upstream,
            log,
            TOPIC,
            "muster",
            settings,
            OwnerClocks(now_ms=lambda: self.now_ms, wall_ms=lambda: self.now_ms),
            OwnerCallbacks(on_served=self._served, on_stop=self._stops, on_bug=self.bug),
        )
        self.engine = LeasedEngine(
            log,
            SHARDS,
            LIMITS,
            options=EngineOptions(
                on_status=self.owning.on_status,
                on_bug=lambda line, error: self.bug(AssertionError(f"{error!r} at {line}")),
            ),
            authority=self.owning,
        )
        self.engine.submit_all(TOPICS)
        self.owning.start(self.engine, self.wake, self.wake)
        self.nodes = NodesGroup(
            upstream,
            self.owning,
            settings,
            NodesGroupSettings(
                cluster="muster",
                shards=SHARDS,
                heartbeat_ms=self.world.session_ms // 5,
                addresses={"grpc": f"{self.name}:9290"},
            ),
            on_trouble=lambda sentence: self.world.census.update([f"trouble: {sentence[:60]}"]),
            on_bug=self.bug,
        )

    # What `World` asks of a node.

    @property
    def now_ms(self) -> int:
        """By its own clock."""
        return 1_000_000 + int(self.world.now_ms * self.rate)

    @property
    def awake(self) -> bool:
        return self.alive and self.world.now_ms >= self.frozen_until

    @property
    def shards(self) -> NodeShards:
        return self.owning.shards

    @property
    def subscriber(self) -> Any:
        return self.nodes

    def within(self, do: Callable[[], None]) -> None:
        """In this process: its loop is the one that runs."""
        asyncio._set_running_loop(self.loop)
        try:
            do()
        finally:
            asyncio._set_running_loop(None)

    def run(self, do: Callable[[], None]) -> None:
        """Something comes to the process: now, or when it wakes."""
        if not self.alive:
            return
        if self.world.now_ms < self.frozen_until:
            self._inbox.append(do)
            return
        self.within(do)
        self.world.check.step()

    def wakes(self) -> None:
        """A process that was frozen finds that first of all."""
        if not self.awake:
            return
        inbox, self._inbox = self._inbox, []
        if self.world.random.random() < 0.5:
            self.world.random.shuffle(inbox)
        slept_ms = int(self.world.now_ms - self._frozen_from)
        if slept_ms > STOOD_STILL_MS:
            self.run(lambda: self.engine.stood_still(slept_ms, self.now_ms))
        for do in inbox:
            self.run(do)

    def freeze(self, until_ms: int) -> None:
        self._frozen_from, self.frozen_until = self.world.now_ms, until_ms

    def later(self, delay_ms: float, do: Callable[[], None]) -> None:
        """By its own clock."""
        self.world.later(delay_ms / self.rate, lambda: self.run(do))

    def start(self) -> None:
        self.run(self.nodes.start)

    def drain(self) -> None:
        """As SIGTERM does."""

        async def leaves() -> None:
            self.world.census["left" if await self.nodes.leave(6.0) else "left, but held on to something"] += 1
            self.alive = False

        self.leaving = True
        self.run(lambda: self.loop.create_task(leaves()) and None)

    def close(self) -> None:
        """Its patience is over."""
        self.alive = False

    # What it says.

    def bug(self, error: BaseException) -> None:
        self.world.violated("Bug", f"{self.name}: {error!r}")

    def _stops(self, sentence: str) -> None:
        self.world.census["stopped by another of its id"] += 1
        self.alive = False
        self.world.later(1_000, lambda: self.world.start(self.id))

    def _served(self, report: AcquisitionReport, shard: int) -> None:
        self.turns[shard] = report.owner.turn
        self.world.census[f"owners: {report.cause}"] += 1
        self.world.census["voids met"] += report.fenced_records
        self.world.census["keys repaired"] += report.repaired
        self.world.census["waits"] += report.waited_ms > 0

    # What clients of a cluster's simulation look for: who coordinates a shard, as this node knows it.

    @property
    def frozen(self) -> bool:
        return not self.awake

    @property
    def image(self) -> "WholeNode":
        return self

    @property
    def topics(self) -> "WholeNode":
        return self

    topic_id = b""

    def get(self, topic: str) -> "WholeNode":
        return self

    def partition(self, place: Any) -> PartitionView | None:
        return self.nodes.view.partition(OFFSETS_TOPIC, place.partition)

    # Requests and turns.

    def next_request(self) -> int:
        self._requests += 1
        return self._requests

    def asks(self, request: Any, reply: Callable[[Any], None]) -> None:
        """One that has its number."""
        self._asked[request.request_id] = request, reply
        assert self.engine.submit(partition_for(request.group_id, SHARDS), request)
        self.wake()

    def receive(self, request: Any, reply: Callable[[Any], None]) -> None:
        self._requests += 1
        asked = replace(request, request_id=self._requests)
        self._asked[self._requests] = asked, reply
        assert self.engine.submit(partition_for(asked.group_id, SHARDS), asked)
        self.wake()

    def wake(self) -> None:
        """What may be told is told before anything else can happen: a process that freezes between leave and word
        cannot be told from one whose word is under way."""
        self._release()
        self._turn_by(self.now_ms + self.world.between(0, 3))

    def _turn_by(self, at_ms: int) -> None:
        if self._turn is not None and self._turn_ms <= at_ms:
            return
        if self._turn is not None:
            self._turn.cancel()
        self._turn_ms = at_ms
        self._turn = self.loop.call_later(max(at_ms - self.now_ms, 0) / 1000, self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        self.engine.turn(self.now_ms)
        job = self.engine.flush_job()
        if job is not None:
            job.run()
            self.engine.flushed(job, self.now_ms)
        self._release()
        if self.engine.pending:
            self.wake()
        due_ms = self.engine.next_deadline_ms
        if due_ms is not None:
            self._turn_by(max(due_ms, self.now_ms + 1))

    def _release(self) -> None:
        released = self.engine.take_released()
        for request_id, reply in released.replies:
            self._answer(request_id, reply)
        answer_plans(self.engine, released)

    def _answer(self, request_id: int, reply: Any) -> None:
        found = self._asked.pop(request_id, None)
        if found is None:
            self.world.violated("AnswersOnce", f"{self.name} answers request {request_id} a second time")
            return
        request, back = found
        shard = partition_for(request.group_id, SHARDS)
        self.world.stale.answered(Answered(self, shard, self.turns.get(shard, -1), request, reply))  # type: ignore[arg-type]
        back(reply)


class WholeCheck(Check):
    world: "WholeWorld"

    def told(self, record: Any) -> tuple[bytes, int]:
        found = decode_offset(record)
        assert found is not None
        return b"txn-%d" % found.partition, found.value.offset

    def settled(self, node: Any, shard: int) -> None:
        """The owner has what its log says, once all it wrote is acknowledged."""
        core, cold = node.engine.core(shard), Shard(LIMITS, shard)
        if core.state.pending or node.engine.waiting:
            return  # what their markers say is not read yet, or is not there
        log, records = StateLog(APPENDS.batch_bytes), ShardReplay()
        log.begin_shard(shard)
        log.hold(shard, records.take_all(self.world.partitions[shard].fetch(0, 1 << 30)[0]))
        replay_shard(log, shard, cold)
        if hard_shard(core) != hard_shard(cold):
            self.fail("state", f"node {node.id} has shard {shard} not as its log says")

    def end(self, served: bool) -> None:
        if not served:
            self.fail("14 liveness", f"not every shard is served: {self.world.where()}")
        for node in self.world.nodes.values():
            for shard in node.shards.served() if node.alive else ():
                core: Any = node.engine.core(shard)
                if core is not None and core.state.pending:
                    self.fail("E4", f"{node.name}, shard {shard}: {core.state.pending} waits, and all has ended")
        for group in GROUPS:
            if group not in self.world.history.settled:
                self.fail("14 liveness", f"group {group} has not settled")


class WholeWorld(World):
    nodes: dict[int, WholeNode]  # type: ignore[assignment]

    def __init__(self, seed: int, *, duration_ms: int = 45_000, faults: Iterable[str] = FAULTS) -> None:
        super().__init__(seed, shards=SHARDS, duration_ms=duration_ms, faults=tuple(faults))
        self.rng = self.random
        self.violations: list[str] = []
        self.check = WholeCheck(self)
        self.stale = Stale(self)  # type: ignore[arg-type]
        self.history = MemberHistory()
        self._wires: dict[int, tuple[LogBatch, bytes]] = {}
        network: Any = Ways(self)
        for group in GROUPS:
            kind: type[Member] = ClassicMember if group == GROUPS[0] else ConsumerMember
            for number in range(MEMBERS):
                kind(self, network, self, group, number, self.history).start()  # type: ignore[arg-type]
            Auditor(self, network, self, group, self.history).start()  # type: ignore[arg-type]

    def __iter__(self) -> Any:
        """The nodes, for clients."""
        return iter(list(self.nodes.values()))

    # As `tests.sim.world.World` has it.

    def after(self, delay_ms: float, do: Callable[[], None]) -> None:
        self.later(delay_ms, do)

    def between(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def trace(self, line: str) -> None:
        """Nobody reads it."""

    def violated(self, checker: str, sentence: str) -> None:
        """Told before the next event: raised here it would be taken for a bug of whoever called."""
        self.violations.append(f"{checker}: {sentence}")

    # Time and faults.

    def later(self, delay_ms: float, do: Callable[[], None]) -> None:
        def done() -> None:
            do()
            if self.violations:
                raise Violation("; ".join(self.violations))

        super().later(delay_ms, done)

    def start(self, node: int) -> None:
        if node in self.nodes and self.nodes[node].alive:
            if self.nodes[node].leaving:
                self.later(500, lambda: self.start(node))
            return
        self.lives[node] += 1
        self.nodes[node] = WholeNode(self, node, self.lives[node], self.random.uniform(0.99, 1.01))
        self.nodes[node].start()

    def freeze(self, node: int) -> None:
        frozen = self.nodes[node]
        frozen.freeze(int(self.now_ms + self.random.uniform(0.1, 3) * self.session_ms))
        self.later(frozen.frozen_until - self.now_ms + 1, frozen.wakes)

    def wire(self, batch: LogBatch) -> bytes:
        """A batch of the state topic as bytes, made once."""
        found = self._wires.get(id(batch))
        if found is None:
            found = self._wires[id(batch)] = batch, wire_of(batch, batch.marker)
        return found[1]

    def look(self) -> None:
        for node in self.nodes.values():
            if not node.awake:
                continue
            for shard, stage in node.shards.stages().items():
                partition = self.partitions[shard]
                if (
                    stage is Stage.SERVE
                    and node.shards.may_answer(shard, node.now_ms)
                    and node.engine.status(shard) is ShardStatus.ACTIVE
                    and not node.engine.pending
                    and not node.engine.undrafted(shard)
                    and node.shards.unacked(shard) == 0
                    and partition.committed == partition.end
                ):
                    self.census["looks"] += 1
                    self.check.settled(node, shard)
        self.later(1_500, self.look)


def run_whole_seed(seed: int, **rest: Any) -> Result:
    world = WholeWorld(seed, **rest)
    world.later(6_000, world.fault)
    for number in range(PRODUCERS):
        client = WholeTransactional(world, number)
        world.later(3_000, client.begins)
        world.later(world.duration_ms - world.session_ms, client.closes)
    return run_world(world, seed)
