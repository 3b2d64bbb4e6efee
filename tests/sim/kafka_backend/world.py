"""A seed of the simulated cluster: Kafka, its network and its nodes, what goes wrong, and clients that count."""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as fx
from muster.coordinator.kafka_backend.shard_ownership.lease import Stage
from muster.coordinator.kafka_backend.shard_ownership.shard_log import BatchResult
from tests.fakes.kafka_group import Group
from tests.fakes.kafka_partition import Partition, TransactionCoordinator
from tests.sim.kafka_backend.checkers import Check, Violation
from tests.sim.kafka_backend.node import Node
from tests.sim.kafka_backend.transactional import Transactional

SESSION_MS = 3_000
LAG_MS = 12_000
"""min.compaction.lag.ms: longer than anything that is to be repaired stays unseen."""
KEYS = 3
PRODUCERS = 4
FAULTS = (
    *("freeze", "kill", "drain", "cut", "elect", "elect", "away", "slow"),
    *("trouble", "forget", "clean", "expire", "all"),
)


@dataclass
class Result:
    seed: int
    events: int
    violation: str = ""
    census: Counter[str] = field(default_factory=Counter)


class Brokers:
    """Produce: appended at the leader, acknowledged when all in sync have it."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.terms = [0] * world.shards
        self.slow_until = [0.0] * 3

    def produce(self, node: Node, effect: fx.Produce, answered: Callable[[dict[int, BatchResult]], None]) -> None:
        world = self.world
        results: dict[int, BatchResult] = {}

        def done(shard: int, result: BatchResult) -> None:
            results[shard] = result
            world.census[f"produce {result.code}"] += 1
            if len(results) == len(effect.batches):
                world.back(node, lambda: answered(results))

        for batch in effect.batches:
            partition = world.partitions[batch.shard]
            code = world.away(batch.shard) or (6 if partition.leader != effect.broker else 0)
            if code:
                done(batch.shard, BatchResult(code))
                continue
            pairs = [(key, value) for key, value, _ in batch.records]
            result = partition.append(batch.producer, batch.sequence, pairs, world.whole_ms)
            if result.code:
                done(batch.shard, result)
            else:
                self._replicate(batch.shard, effect.broker, result, len(pairs), done)

    def _replicate(
        self, shard: int, broker: int, result: BatchResult, count: int, done: Callable[[int, BatchResult], None]
    ) -> None:
        world, term = self.world, self.terms[shard]
        delay = world.random.uniform(0.5, 3) + (
            world.random.uniform(0, 1_500) if world.now_ms < self.slow_until[broker] else 0
        )

        def replicated() -> None:
            partition = world.partitions[shard]
            if self.terms[shard] != term:
                done(shard, BatchResult(world.random.choice((6, 7))))
                return
            partition.committed = max(partition.committed, result.offset + count)
            done(shard, result)

        world.later(delay, replicated)

    def write_txn(self, effect: fx.WriteClientBatch, answered: Callable[[BatchResult], None]) -> None:
        world, batch, shard = self.world, effect.batch, effect.shard
        partition = world.partitions[shard]
        if code := world.away(shard):
            answered(BatchResult(code))
            return
        pairs = [(key, value) for key, value, _ in batch.records]
        result = partition.append(batch.producer, batch.sequence, pairs, world.whole_ms, transactional=True)
        if result.code:
            answered(result)
        else:
            self._replicate(shard, partition.leader, result, len(pairs), lambda shard, acked: answered(acked))

    def elect(self, shard: int) -> None:
        """Another broker leads, with what it had copied."""
        world, partition = self.world, self.world.partitions[shard]
        self.terms[shard] += 1
        kept = world.random.randint(partition.committed, partition.end)
        partition.elect((partition.leader + world.random.randint(1, 2)) % 3, kept=kept)


class World:
    name = "muster"

    def __init__(
        self, seed: int, *, shards: int = 4, nodes: int = 3, duration_ms: int = 45_000, faults: Sequence[str] = FAULTS
    ) -> None:
        self.seed, self.random, self.shards = seed, Random(seed), shards
        self.session_ms = SESSION_MS
        self.now_ms = 0.0
        self.duration_ms, self.faults = duration_ms, faults
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.events = 0
        self.census: Counter[str] = Counter()
        self.group = Group(SESSION_MS, delay_ms=200)
        self.partitions = [Partition(shard % 3) for shard in range(shards)]
        self.transactions = TransactionCoordinator(most_epoch=self.random.choice((3, 8, 32_766)))
        self.brokers = Brokers(self)
        self.check = Check(self)
        self.away_until = [0.0] * shards
        self.trouble_until = 0.0
        self.cut_until: dict[int, float] = {}
        self.calm = False
        self.values = Counter[Any]()
        self.nodes: dict[int, Node] = {}
        self.lives = Counter[int]()
        for node in range(nodes):
            self.later(self.random.uniform(0, 500), partial(self.start, node))

    # Time.

    @property
    def whole_ms(self) -> int:
        return int(self.now_ms)

    group_ms = whole_ms

    def later(self, delay_ms: float, do: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now_ms + max(0.0, delay_ms), self._count, do))

    def run(self) -> None:
        while self._heap and self._heap[0][0] <= self.duration_ms:
            self.now_ms, _, do = heapq.heappop(self._heap)
            self.events += 1
            do()
        self.check.end(all(self._is_served(shard) for shard in range(self.shards)))

    def _is_served(self, shard: int) -> bool:
        return any(node.alive and node.shards.may_answer(shard, node.now_ms) for node in self.nodes.values())

    def where(self) -> str:
        stages = {
            node.id: {shard: stage.name for shard, stage in node.shards.stages().items()} if node.alive else "dead"
            for node in self.nodes.values()
        }
        return f"{stages}, {self.group.state.name} {list(self.group.instances)}"

    # The network.

    def forth(self, node: Node, do: Callable[[], None]) -> bool:
        """Towards Kafka; False: it never comes."""
        if self.now_ms < self.cut_until.get(node.id, 0) or (not self.calm and self.random.random() < 0.01):
            return False
        self.later(self._delay(), do)
        return True

    def back(self, node: Node, do: Callable[[], None]) -> bool:
        """From Kafka; False: it never comes."""
        if self.now_ms < self.cut_until.get(node.id, 0) or (not self.calm and self.random.random() < 0.01):
            return False
        self.later(self._delay(), lambda: node.run(do))
        return True

    def _delay(self) -> float:
        if not self.calm and self.random.random() < 0.02:
            return self.random.uniform(5, 900)
        return self.random.uniform(0.3, 4)

    def trouble(self) -> int:
        if self.now_ms < self.trouble_until:
            return self.random.choice((14, 15, 16, 51))
        return 0 if self.calm or self.random.random() > 0.03 else 51

    def away(self, shard: int) -> int:
        """The partition has no leader just now."""
        return self.random.choice((3, 5, 6, 7)) if self.now_ms < self.away_until[shard] else 0

    def base_of(self, node: Node, sent_ms: int) -> int:
        """KB-F7: when a request was sent."""
        return sent_ms

    # What goes wrong.

    def start(self, node: int) -> None:
        """One process of a node at a time; two are a story of their own (KB-F2)."""
        if node in self.nodes and self.nodes[node].alive:
            if self.nodes[node].subscriber.leaving:
                self.later(500, lambda: self.start(node))
            return
        self.lives[node] += 1
        self.nodes[node] = Node(self, node, self.lives[node], self.random.uniform(0.99, 1.01))
        self.nodes[node].start()

    def kill(self, node: int) -> None:
        self.nodes[node].alive = False
        self.later(self.random.choice((50, 500, 2_000, 6_000)), lambda: self.start(node))

    def drain(self, node: int) -> None:
        """In good order; it comes back later."""
        gone = self.nodes[node]
        gone.drain()

        def ends() -> None:
            if self.nodes[node] is gone:
                gone.close()
                self.later(self.random.uniform(100, 3_000), lambda: self.start(node))

        self.later(self.random.uniform(500, 4_000), ends)

    def freeze(self, node: int) -> None:
        frozen = self.nodes[node]
        frozen.frozen_until = int(self.now_ms + self.random.uniform(0.1, 3) * SESSION_MS)
        self.later(frozen.frozen_until - self.now_ms + 1, frozen.wakes)

    def fault(self) -> None:
        if self.now_ms > self.duration_ms - 5 * SESSION_MS:
            self.calms()
            return
        shard, node = self.random.randrange(self.shards), self.random.choice(list(self.nodes))
        alive = self.nodes[node].awake
        what = self.random.choice(self.faults)
        self.census[what] += 1
        if what in ("freeze", "kill", "drain") and alive:
            getattr(self, what)(node)
        elif what == "cut":
            self.cut_until[node] = self.now_ms + self.random.uniform(0.1, 2) * SESSION_MS
        elif what == "elect":
            self.brokers.elect(shard)
        elif what == "away":
            self.away_until[shard] = self.now_ms + self.random.uniform(50, 6_000)
            self.later(self.away_until[shard] - self.now_ms, lambda: self.brokers.elect(shard))
        elif what == "slow":
            self.brokers.slow_until[shard % 3] = self.now_ms + self.random.uniform(200, 5_000)
        elif what == "trouble":
            self.trouble_until = self.now_ms + self.random.uniform(100, 3_000)
        elif what == "forget":
            self.transactions.forget(f"shard-{shard}")
        elif what == "clean":
            self.clean()
        elif what == "expire":
            self._expire(shard)
        elif what == "all" and self.random.random() < 0.3:
            for each, one in self.nodes.items():
                if one.alive:
                    self.kill(each)
        self.later(self.random.expovariate(1 / 900), self.fault)

    def _expire(self, shard: int) -> None:
        """A broker forgets producers of owners that are none any more."""
        partition = self.partitions[shard]
        latest = partition.log[-1].seen.producer.id if partition.log else -1
        for producer_id, known in list(partition.producers.items()):
            if known.open_at is None and producer_id != latest and known.at_ms < self.now_ms - 2 * SESSION_MS:
                del partition.producers[producer_id]

    def clean(self) -> None:
        for partition in self.partitions:
            self.census["records cleaned"] += partition.clean(self.whole_ms, LAG_MS)

    def calms(self) -> None:
        """Faults end: everybody comes back."""
        self.calm = True
        for shard in range(self.shards):
            self.away_until[shard] = 0.0
        self.trouble_until = 0.0
        self.cut_until.clear()

    # Clients.

    def client(self, shard: int, key: bytes) -> None:
        """One after another: writes the next number, or reads."""
        node = self._owner(shard)
        writes = self.random.random() < 0.6
        at_least = self.check.acked.get((shard, key), 0)
        value: int | None = None
        if writes:
            self.values[shard, key] += 1
            value = self.values[shard, key]
        done = [False]

        def again() -> None:
            self.later(self.random.uniform(1, 250), lambda: self.client(shard, key))

        def said(seen: int | None, code: int) -> None:
            """At the node: the answer leaves. Whether it arrives matters to nobody but the client."""
            self.census[f"answer {code}"] += 1
            if code == 0 and value is not None:
                self.check.wrote(shard, key, value)
            elif code == 0:
                assert seen is not None
                self.check.read(shard, key, seen, at_least)
            if not done[0]:
                done[0] = True
                again()

        def gives_up() -> None:
            if not done[0]:
                done[0] = True
                again()

        self.later(2_000, gives_up)
        if node is not None:
            self.later(self.random.uniform(0.2, 3), lambda: node.run(lambda: node.ask(shard, key, value, said)))

    def _owner(self, shard: int) -> Node | None:
        nodes = [node for node in self.nodes.values() if node.alive]
        if nodes and self.random.random() < 0.1:
            return self.random.choice(nodes)
        return next((node for node in nodes if node.shards.takes(shard)), None)

    def clock(self) -> None:
        """The group's coordinator looks at its timers."""
        self.group.tick(self.whole_ms)
        self.later(50, self.clock)

    def look(self) -> None:
        """Owners that have written all are held against the log."""
        for node in self.nodes.values():
            if not node.awake:
                continue
            for shard, stage in node.shards.stages().items():
                partition = self.partitions[shard]
                if (
                    stage is Stage.SERVE
                    and node.shards.may_answer(shard, node.now_ms)
                    and node.shards.unacked(shard) == 0
                    and partition.committed == partition.end
                ):
                    self.census["looks"] += 1
                    self.check.settled(node, shard)
        self.later(400, self.look)

    def truth(self, shard: int, upto: int) -> dict[bytes, int]:
        return reading(self.partitions[shard], upto)


def reading(partition: Partition, upto: int = 1 << 62) -> dict[bytes, int]:
    """What the log says: owners by their turns, transactions by their markers, and of each key what has the highest
    offset. Apart from tombstones, for which the model has no use, that is what the rules come to; written another way
    on purpose."""
    batches = [batch for batch in partition.fetch(0, 1 << 30)[0] if batch.base_offset < upto]
    ends: dict[int, list[tuple[int, bool]]] = {}
    for batch in batches:
        if batch.marker is not None:
            ends.setdefault(batch.producer.id, []).append((batch.base_offset, batch.marker))
    turn, owner = 0, None
    newest: dict[bytes, tuple[int, int | None]] = {}
    for batch in batches:
        if batch.transactional:
            marker = next((commits for at, commits in ends.get(batch.producer.id, ()) if at > batch.base_offset), False)
            counts = marker
        else:
            for record in batch.records:
                if (record.key or b"").startswith(b"\xffowner") and record.value is not None:
                    number = int((record.key or b"").split()[1])
                    if number > turn:
                        turn, owner = number, batch.producer
            counts = owner is None or batch.producer == owner
        for record in batch.records:
            if counts and record.key is not None and record.key[:1] != b"\xff":
                newest[record.key] = record.offset, None if record.value is None else int(record.value)
    return {key: value for key, (_, value) in newest.items() if value is not None}


def run_seed(seed: int, **rest: Any) -> Result:
    world = World(seed, **rest)
    for shard in range(world.shards):
        for key in range(KEYS):
            world.later(600, partial(world.client, shard, b"key-%d" % key))
    world.later(3_000, world.fault)
    for number in range(PRODUCERS):
        client = Transactional(world, number)
        world.later(2_000, client.begins)
        world.later(world.duration_ms - world.session_ms, client.closes)
    return run_world(world, seed)


def run_world(world: World, seed: int) -> Result:
    world.later(1_000, world.look)
    world.later(1, world.clock)
    result = Result(seed, 0, census=world.census)
    try:
        world.run()
    except Violation as violation:
        result.violation = f"at {world.now_ms:.0f} ms: {violation}"
    result.events = world.events
    return result
