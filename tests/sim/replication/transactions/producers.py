"""Producers with transactional ids over a simulated cluster: the clients of the simulator of transactions
(`tests.sim.transactions.clients`), whose requests go to whoever leads, by connections that break."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from tests.sim.replication.clients import Asker
from tests.sim.replication.groups.coordinator import GroupAsk
from tests.sim.replication.network import Network
from tests.sim.replication.node import SimNode
from tests.sim.replication.transactions.coordinator import SharedByIds, shard_of, shard_of_group
from tests.sim.replication.transactions.messages import DataAsk, IdAsk, PositionsAsk
from tests.sim.transactions.clients import Call, Producer, Sleep, Transaction
from tests.sim.transactions.group_node import PositionCommit
from tests.sim.world import World

PATIENCE_MS = 900


class ProducersHistory:
    """All producers there were, and what they tried; for them it is the world."""

    make_producer: Callable[..., Producer] = Producer

    def __init__(
        self,
        world: World,
        nodes: list[SimNode],
        network: Network,
        shared: SharedByIds,
        told: Callable[["IdClient", Any], None],
    ) -> None:
        self.told = told
        self.rng: Random = world.rng
        self.cluster, self.nodes, self.network, self.shared = world, nodes, network, shared
        self.met: Counter[str] = world.census
        self.transactions: list[Transaction] = []
        self.producers: list[Producer] = []
        self.clients: list[IdClient] = []
        self.faulty, self.closing = True, False

    @property
    def now_ms(self) -> int:
        return self.cluster.now_ms

    def consumed(self) -> bool:
        """Whether nobody has anything to do any more."""
        return self.closing

    def after(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        self.cluster.after(delay_ms, lambda: action(*arguments))

    def at(self, at_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        self.cluster.at(at_ms, lambda: action(*arguments))

    def trace(self, *what: Any) -> None:
        self.cluster.trace(" ".join(map(str, what)))

    def start(self, ids: int, levels: Sequence[int]) -> None:
        for number in range(ids):
            name = f"id{number}"
            level = levels[number % len(levels)]
            self._begin(name, level)
            self.cluster.after(
                self.rng.randint(2_000, 6_000), lambda name=name, level=level: self._replace(name, level)
            )

    def _begin(self, name: str, level: int) -> None:
        if not self.consumed():
            self.clients.append(IdClient(self, name, level, len(self.clients)))
            self.clients[-1].start()

    def _replace(self, name: str, level: int) -> None:
        """A producer is killed, or another instance of its id begins beside it."""
        if self.closing:
            return
        alive = [each for each in self.clients if each.producer.transactional_id == name and not each.over]
        if alive and self.rng.random() < 0.6:
            self.rng.choice(alive).kill()
            self.met["producers killed"] += 1
        if len(alive) < 2:
            self._begin(name, level)
        self.cluster.after(self.rng.randint(1_000, 6_000), lambda: self._replace(name, level))

    def close(self) -> None:
        """Producers finish what they have begun."""
        self.faulty, self.closing = False, True

    def unfinished(self) -> list[str]:
        return [each.name for each in self.clients if not each.over]


class IdClient(Asker):
    """One producer's process. A request that is not answered in time goes again by another connection."""

    def __init__(self, history: ProducersHistory, transactional_id: str, level: int, number: int) -> None:
        super().__init__(history.cluster, history.network, history.nodes, f"c{number}-{transactional_id}")
        self.history = history
        timeout_ms = history.rng.choice((2_000, 6_000))
        self.producer = history.make_producer(history, transactional_id, level, timeout_ms, number)
        history.producers.append(self.producer)
        self.steps = self.producer.live()
        self.over = False
        self._connections: dict[str, int] = {}
        """By node: the number of the connection that is open."""

    def start(self) -> None:
        self.world.after(self.world.between(1, 200), lambda: self._resume(None))

    def kill(self) -> None:
        self.over = True
        self.producer.kill()

    def _resume(self, answer: Any) -> None:
        if self.over:
            return
        try:
            wanted = self.steps.send(answer)
        except StopIteration:
            self.kill()
            if not self.history.consumed():
                name, level = self.producer.transactional_id, self.producer.level
                alive = [each for each in self.history.clients if each.producer.transactional_id == name]
                if all(each.over for each in alive):
                    self.world.after(self.world.between(1, 300), lambda: self.history._begin(name, level))
            return
        if isinstance(wanted, Sleep):
            self.world.after(wanted.ms, lambda: self._resume(None))
        else:
            self._call(wanted)

    def _call(self, call: Call) -> None:
        name = self.producer.transactional_id
        if call.perform is not None:
            call.perform(self, 0, self._resume)
        elif call.batch is not None:
            batch = call.batch
            place = TopicPartition(*batch.place)
            self._ask(
                place,
                "data",
                lambda topic_id, _: DataAsk(place, topic_id, batch.transactional_id, batch.level, batch.batch),
                self._resume,
            )
        else:
            make = call.make
            assert make is not None
            self._ask(
                shard_of(name),
                "ids",
                lambda _, number: IdAsk(name, lambda at_node, fresh: make(at_node, fresh, number)),
                self._told,
            )

    def _told(self, answer: Any) -> None:
        if answer is not None:
            self.history.told(self, answer)
        self._resume(answer)

    def commit_positions(self, request: PositionCommit, _: int, answered: Callable[[Any], None]) -> None:
        place = shard_of_group(request.group_id)
        self._ask(place, "positions", lambda _, number: PositionsAsk(request, number), answered)

    def ask_group(self, request: Any, answered: Callable[[Any], None]) -> None:
        self._ask(shard_of_group(request.group_id), "groups", lambda *_: GroupAsk(request), answered)

    def _ask(
        self,
        place: TopicPartition,
        what: str,
        make: Callable[[bytes, int], Any],
        answered: Callable[[Any], None],
    ) -> None:
        """Of whoever leads the place; None where there is no answer. make: of the topic's id, and the number of the
        connection."""
        found = self.leader_of(place)
        if found is None:
            self.world.after(100, lambda: answered(None))
            return
        leader, topic_id = found
        kind = f"{leader} {what}"
        if kind not in self._connections:
            self.history.shared.connections += 1
            self._connections[kind] = self.history.shared.connections
        number = self._connections[kind]

        def told(outcome: Any) -> None:
            lost = isinstance(outcome, Exception) or getattr(outcome, "close_connection", False)
            if lost:
                self._connections.pop(kind, None)
            answered(None if lost else outcome)

        by = f"{self.name}#{number}"
        self.network.ask(self.name, leader, make(topic_id, number), told, patience_ms=PATIENCE_MS, by=by)
