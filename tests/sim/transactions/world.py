"""One seeded run: a virtual clock, connections that keep order and may be held back, and all that can go wrong."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from heapq import heappop, heappush
from itertools import count
from typing import Any

from muster.coordinator.runtime.transaction_records import encode_transaction
from muster.coordinator.transactions.records import TransactionState, TransactionStored
from tests.sim.transactions.clients import Call, Producer, Sleep, Transaction
from tests.sim.transactions.judge import Judge, Violation
from tests.sim.transactions.node import Node, Refused

FAULTS_MS = 15_000
"""How long faults go on; then producers finish what they have begun."""
QUIET_MS = 45_000
"""Longest time to the end after that."""
IDS = ("A", "B")


@dataclass(slots=True, frozen=True)
class Options:
    """levels: of which clients there are. newest_connection: whether overtaken requests are refused. reigns: whether
    each load has a coordinator epoch of its own, as in a cluster. lower_level: whether a restart may change the node's
    level. late_markers: whether markers that an earlier life of the shard sent are written yet, as in a cluster.
    busy_topics: whether a topic is deleted and made again all the time. kill_rate: how often the node is killed just
    behind a step of a transaction. node, judge, client: what is run.

    With groups: `workers` read the `backlog` of each of `inputs` partitions as members of `group`; without workers
    producers commit positions of groups without members, which `retention_ms` lets expire.
    """

    levels: tuple[int, ...] = (0, 2)
    newest_connection: bool = True
    reigns: bool = False
    lower_level: bool = True
    late_markers: bool = False
    busy_topics: bool = False
    kill_rate: float = 0.0
    node: type[Node] = Node
    judge: type[Judge] = Judge
    client: Callable[..., Producer] = Producer
    workers: int = 0
    group: str = "g"
    inputs: int = 3
    backlog: int = 14
    session_ms: int = 1_500
    rebalance_ms: int = 3_000
    retention_ms: int = 10_000_000
    operator: Callable[[Any], Any] | None = None
    member_kinds: tuple[tuple[str, ...], ...] = ()


@dataclass(slots=True, eq=False)
class Connection:
    """What one client says by it arrives in its order. number: the node's; boot: of which process it is."""

    number: int
    boot: int
    arrived_ms: int = 0
    closed: bool = False


@dataclass(slots=True)
class Result:
    seed: int
    violation: str
    events: int
    digest: str
    met: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Actor:
    """A client that runs: its generator, its two connections, and how often it was called back."""

    producer: Producer
    steps: Any
    connections: dict[str, Connection] = field(default_factory=dict)
    turn: int = 0
    alive: bool = True


class World:
    def __init__(self, seed: int, options: Options, *, keep_trace: bool = False) -> None:
        self.seed, self.options = seed, options
        self.rng = random.Random(seed)
        self.now_ms = 1_000_000
        self.queue: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.order = count()
        self.events = 0
        self.met: Counter[str] = Counter()
        self.lines: list[str] = []
        self.keep_trace = keep_trace
        self.hash = sha256()
        self.producers: list[Producer] = []
        self.actors: list[Actor] = []
        self.finished: set[str] = set()
        self.transactions: list[Transaction] = []
        self.faulty, self.closing = True, False
        self.tagged: dict[str, Transaction] = {}
        """By how they are told of in positions' metadata."""
        self.names = tuple(f"w{number}" for number in range(options.workers)) or IDS
        self.member_kind = self.rng.choice(options.member_kinds) if options.member_kinds else ()
        self.judge: Any = options.judge(self)
        self.node: Any = options.node(self)
        self.timeouts = {name: self.rng.choice((1_500, 3_000, 6_000)) for name in self.names}
        self.levels = {name: self.rng.choice(options.levels) for name in self.names}
        self.stall_rate = self.rng.choice((0.0, 0.02, 0.06))
        self.loss_rate = self.rng.choice((0.0, 0.02, 0.05))
        self.forbidden = (self.delete_topic, self.retain) if options.workers else ()
        """What workers have written would be missed."""
        self.kill_every_ms = self.rng.choice((400, 1_500, 5_000, 60_000))
        self.client_every_ms = self.rng.choice((700, 2_500, 30_000))
        self.drop_every_ms = self.rng.choice((900, 6_000, 60_000))
        self.full_rate = self.rng.choice((0.0, 0.0, 0.01, 0.05))
        self.topic_every_ms = 150 if options.busy_topics else self.rng.choice((60_000, 60_000, 3_000))
        self.retain_every_ms = self.rng.choice((60_000, 60_000, 800))

    # -- the clock ----------------------------------------------------------------------------------------

    def at(self, at_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        heappush(self.queue, (max(at_ms, self.now_ms), next(self.order), action, arguments))

    def after(self, ms: int, action: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now_ms + ms, action, *arguments)

    def trace(self, kind: str, *what: Any) -> None:
        line = f"{self.now_ms - 1_000_000} {kind} {' '.join(map(str, what))}"
        self.hash.update(line.encode())
        if self.keep_trace:
            self.lines.append(line)

    def run(self) -> Result:
        violation = ""
        try:
            self.play()
            self.judge.conclude(self.node)
        except (Violation, AssertionError) as error:
            violation = f"{error}"
        except Exception as error:  # a bug of the machine is a violation like any other
            violation = f"{type(error).__name__}: {error}"
        return Result(self.seed, violation, self.events, self.hash.hexdigest(), self.met, self.lines)

    def play(self) -> None:
        if self.rng.random() < 0.4:
            self.begin_late()
        self.node.start()
        for name in self.names:
            self.after(self.rng.randint(0, 50), self.spawn, name)
        if self.options.operator is not None:
            self.after(self.rng.randint(1, 300), self.repeat, self.options.operator(self).act, 150)
        for every_ms, fault in (
            (self.kill_every_ms, self.kill_node),
            (self.client_every_ms, self.change_clients),
            (self.drop_every_ms, self.drop_shard),
            (self.topic_every_ms, self.delete_topic),
            (self.retain_every_ms, self.retain),
        ):
            if fault not in self.forbidden:
                self.after(self.rng.randint(1, 2 * every_ms), self.repeat, fault, every_ms)
        self.at(self.now_ms + FAULTS_MS, self.calm_down)
        end_ms = self.now_ms + FAULTS_MS + QUIET_MS
        while self.queue and self.queue[0][0] <= end_ms:
            self.now_ms, _, action, arguments = heappop(self.queue)
            self.events += 1
            action(*arguments)
            if self.closing and self.is_quiet():
                break

    def begin_late(self) -> None:
        """Ids whose epochs are nearly used up."""
        for number, name in enumerate(self.names):
            producer_id, epoch = 7 + number, self.rng.choice((32_760, 32_765, 32_766))
            empty = TransactionState.EMPTY
            stored = TransactionStored(
                name, producer_id, epoch, 1_500, empty, updated_ms=1, previous_producer_id=producer_id
            )
            self.judge.used[stored.producer_id] = name
            self.node.records.append(encode_transaction(stored))
        self.node.durable = len(self.node.records)

    def is_quiet(self) -> bool:
        node = self.node
        done = node.up and not node.held and not node.flushing and not node.marked
        idle = done and all(known.stored.state.idle for known in node.shard.state.ids.values())
        return idle and node.quiet() and all(producer.name in self.finished for producer in self.producers)

    def calm_down(self) -> None:
        self.faulty, self.closing = False, True
        if not self.node.up:
            self.node.start()
        if self.options.workers:
            self.revive()

    # -- inputs -------------------------------------------------------------------------------------------

    def available(self) -> int:
        """How many inputs each partition has by now."""
        passed_ms = self.now_ms - 1_000_000
        return min(self.options.backlog, 1 + passed_ms * self.options.backlog // FAULTS_MS)

    def consumed(self) -> bool:
        """Whether there will be nothing to do any more."""
        return self.closing and len(self.judge.outputs) == self.options.inputs * self.options.backlog

    def revive(self) -> None:
        """A worker that has died is there again in a moment."""
        alive = {actor.producer.transactional_id for actor in self.actors if actor.alive}
        for name in self.names:
            if name not in alive and not self.consumed():
                self.spawn(name)
        if not self.consumed():
            self.after(500, self.revive)

    def broken(self) -> None:
        """The node is gone: members notice that their connections are."""
        for actor in self.actors:
            if actor.alive:
                actor.producer.broken()

    # -- faults -------------------------------------------------------------------------------------------

    def repeat(self, fault: Callable[[], None], every_ms: int) -> None:
        if self.faulty:
            fault()
            self.after(self.rng.randint(1, 2 * every_ms), self.repeat, fault, every_ms)

    def kill_node(self) -> None:
        if not self.node.up:
            return
        power = self.rng.random() < 0.5
        self.met["power lost" if power else "node killed"] += 1
        for known in self.node.shard.state.ids.values():
            self.met[f"killed in {known.stored.state.title}"] += 1
        self.trace("kill", power)
        self.node.crash(power=power)
        if self.options.lower_level:
            before, self.node.level = self.node.level, self.rng.choice((0, 2, 2))
            self.met["level changed at a restart"] += before != self.node.level
        if self.rng.random() < 0.2:
            self.met["clock set"] += 1
            self.node.skew_ms = self.rng.choice((-20_000, -1_500, 0, 2_000))
        self.after(self.rng.choice((1, 30, 300, 3_000)), self.start_node, self.node.boot)

    def passed(self, step: str) -> None:
        """A transaction has come this far; the node may not come further."""
        if self.faulty and self.options.kill_rate and self.rng.random() < self.options.kill_rate:
            self.after(0, self.kill_behind, step, self.node.boot)

    def kill_behind(self, step: str, boot: int) -> None:
        if self.node.up and boot == self.node.boot:
            self.met[f"killed behind {step}"] += 1
            self.kill_node()

    def start_node(self, boot: int) -> None:
        if not self.node.up and boot == self.node.boot:
            self.node.start()

    def is_full(self) -> bool:
        """Whether there is no room on the disk just now."""
        return self.faulty and self.rng.random() < self.full_rate

    def drop_shard(self) -> None:
        if self.node.up:
            self.met["shard dropped"] += 1
            self.trace("drop")
            self.node.drop()

    def delete_topic(self) -> None:
        """Of the one with two partitions, while transactions are open or decided in it."""
        node = self.node
        if not node.up or "t" in node.absent:
            return
        for known in node.shard.state.ids.values():
            self.met[f"topic deleted in {known.stored.state.title}"] += 1
        self.trace("delete")
        node.delete_topic("t", self.rng.choice((0, 0, 100, 900)))

    def retain(self) -> None:
        place, log = self.rng.choice(list(self.node.logs.items()))
        start = self.rng.randint(log.start, log.durable)
        if any(start > known.first for known in log.producers.values() if known.first is not None):
            self.met["retention over an open transaction"] += 1
        self.trace("retain", place, start)
        self.judge.retained(place, log.retain(start))

    def change_clients(self) -> None:
        """A client is killed, or another instance of an id begins."""
        name = self.rng.choice(self.names)
        alive = [actor for actor in self.actors if actor.alive and actor.producer.transactional_id == name]
        if alive and self.rng.random() < 0.6:
            actor = self.rng.choice(alive)
            actor.alive = False
            actor.producer.kill()
            self.finished.add(actor.producer.name)
            self.met["client killed"] += 1
            self.after(self.rng.choice((1, 50, 800)), self.spawn, name)
        elif len(alive) < 2:
            self.met["second instance"] += 1
            self.spawn(name)

    # -- clients ------------------------------------------------------------------------------------------

    def spawn(self, name: str) -> None:
        if self.closing and (not self.options.workers or self.consumed()):
            return
        producer = self.options.client(self, name, self.levels[name], self.timeouts[name], len(self.producers))
        self.producers.append(producer)
        actor = Actor(producer, producer.live())
        self.actors.append(actor)
        self.resume(actor, 0, None)

    def resume(self, actor: Actor, turn: int, answer: Any) -> None:
        """The client gets an answer, wakes up, or has waited long enough; whichever comes first."""
        if not actor.alive or turn != actor.turn:
            return
        actor.turn += 1
        try:
            wanted = actor.steps.send(answer)
        except StopIteration:
            actor.alive = False
            self.finished.add(actor.producer.name)
            actor.producer.kill()
            if not self.closing:
                self.after(self.rng.randint(1, 300), self.spawn, actor.producer.transactional_id)
            return
        if isinstance(wanted, Sleep):
            self.after(wanted.ms, self.resume, actor, actor.turn, None)
        else:
            self.call(actor, wanted)

    def call(self, actor: Actor, call: Call) -> None:
        kind = "partitions" if call.make is None else "coordinator"
        connection = actor.connections.get(kind)
        if connection is None or connection.closed or connection.boot != self.node.boot:
            if not self.node.up:
                self.after(self.rng.randint(20, 200), self.resume, actor, actor.turn, None)
                return
            self.node.connection += 1
            connection = actor.connections[kind] = Connection(self.node.connection, self.node.boot)
        ms = self.rng.randint(1, 8)
        if self.faulty and self.rng.random() < self.stall_rate:
            self.met["message held back"] += 1
            ms = self.rng.choice((600, 1_200, 3_000))
        connection.arrived_ms = max(connection.arrived_ms, self.now_ms + ms)
        self.at(connection.arrived_ms, self.arrive, actor, actor.turn, connection, call)
        self.after(self.rng.randint(300, 500), self.give_up, actor, actor.turn, connection)

    def give_up(self, actor: Actor, turn: int, connection: Connection) -> None:
        """Not answered in time: the client goes on by another connection. What it has sent may arrive yet."""
        if actor.alive and turn == actor.turn:
            connection.closed = True
            self.resume(actor, turn, None)

    def arrive(self, actor: Actor, turn: int, connection: Connection, call: Call) -> None:
        node = self.node
        if not node.up or connection.boot != node.boot:
            return
        if turn != actor.turn:
            self.met["request overtaken by its repetition"] += 1

        def answered(said: Any) -> None:
            self.answer(actor, turn, connection, call, said)

        if call.batch is not None:
            node.produce(call.batch, answered)
        elif call.perform is not None:
            call.perform(node, connection.number, answered)
        else:
            make = call.make
            assert make is not None
            node.serve(lambda number, fresh: make(number, fresh, connection.number), answered)

    def answer(self, actor: Actor, turn: int, connection: Connection, call: Call, said: Any) -> None:
        """An answer leaves the node."""
        if getattr(said, "close_connection", False):
            self.met["connection closed"] += 1
            self.after(2, self.give_up, actor, turn, connection)
            return
        if not isinstance(said, Refused):
            self.judge.replied(actor.producer, said, self.node)
        if connection.closed or (self.faulty and self.rng.random() < self.loss_rate):
            self.met["answer lost"] += 1
            return
        self.after(self.rng.randint(1, 8), self.resume, actor, turn, said)


DEFAULTS = Options()


def run_seed(seed: int, options: Options = DEFAULTS, *, keep_trace: bool = False) -> Result:
    return World(seed, options, keep_trace=keep_trace).run()
