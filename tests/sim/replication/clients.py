"""Producers and readers of a simulated cluster, and what they were promised."""

from dataclasses import dataclass, field
from typing import Any

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import NO_NODE_ID, TopicPartition
from tests.sim.replication.logs import Entry, LogModel
from tests.sim.replication.network import Broken, Host, Network
from tests.sim.replication.node import SimNode
from tests.sim.replication.process.messages import Consume, Consumed, Produce, Produced
from tests.sim.world import World

Log = tuple[TopicPartition, bytes]
"""A partition of one topic id: one that is made again under its name is another log."""


@dataclass(slots=True)
class Promises:
    """By log and offset, what was told, and in which leader epoch: acked, what a producer was told is kept; read, what
    a reader was shown."""

    acked: dict[Log, dict[int, tuple[object, int]]] = field(default_factory=dict)
    read: dict[Log, dict[int, tuple[Entry, int]]] = field(default_factory=dict)
    unclean: dict[Log, dict[int, LogModel | None]] = field(default_factory=dict)
    """By log and the leader epoch that an unclean election began, what the first one had who led by it; None until
    somebody does. What was promised before, and is not in there, is lost by it; nothing else is."""

    def is_lost(self, log: Log, offset: int, value: object, epoch: int, later: int) -> bool:
        """Whether who leads in the epoch `later` need not have what was promised in `epoch`: an entry, or its value."""
        for elected, had in self.unclean.get(log, {}).items():
            if epoch < elected <= later and had is not None:
                entry = had.at(offset)
                if entry is None or (entry if isinstance(value, Entry) else entry.value) != value:
                    return True
        return False

    def is_parted(self, log: Log, one: int, other: int) -> bool:
        """Whether there was an unclean election between two leader epochs."""
        return any(min(one, other) < each <= max(one, other) for each in self.unclean.get(log, {}))


class Asker:
    """A client's process: never frozen, never dead, with a connection to whoever its metadata says leads."""

    def __init__(self, world: World, network: Network, nodes: list[SimNode], name: str) -> None:
        self.world = world
        self.network = network
        self.nodes = nodes
        self.name = name
        network.add(Host(name, lambda asker, request, reply: None, lambda: True))

    def leader_of(self, place: TopicPartition) -> tuple[str, bytes] | None:
        """As some node that answers has it in its image, which may be behind."""
        able = [node for node in self.nodes if node.alive and not node.frozen]
        if not able:
            return None
        node = self.world.rng.choice(able)
        view, topic = node.image.partition(place), node.image.topics.get(place.topic)
        if view is None or topic is None or view.leader == NO_NODE_ID:
            return None
        return f"n{view.leader}", topic.topic_id


class Producer(Asker):
    """Sends numbered records to one partition, batch after batch, acks=all; each is sent until it is kept."""

    def __init__(
        self, world: World, network: Network, nodes: list[SimNode], name: str, place: TopicPartition, promises: Promises
    ) -> None:
        super().__init__(world, network, nodes, name)
        self.place = place
        self.promises = promises
        self.sent = 0
        self.stopped = False
        self._batch: tuple[object, ...] = ()

    def start(self) -> None:
        self.world.after(self.world.between(1, 300), self._send)

    def _send(self) -> None:
        if self.stopped and not self._batch:
            return
        found = self.leader_of(self.place)
        if found is None:
            self.world.after(100, self._send)
            return
        leader, topic_id = found
        if not self._batch:
            count = self.world.between(1, 3)
            self._batch = tuple(f"{self.name}:{self.sent + each}" for each in range(count))
            self.sent += count
        batch = self._batch

        def sent(outcome: Produced | Broken) -> None:
            if isinstance(outcome, Produced) and outcome.code == ErrorCode.NONE:
                kept = self.promises.acked.setdefault((self.place, topic_id), {})
                for offset, value in enumerate(batch, outcome.offset):
                    kept[offset] = value, outcome.epoch
                self.world.census["acked"] += len(batch)
                self._batch = ()
                self.world.after(self.world.between(0, 120), self._send)
            else:
                self.world.census["not acked"] += 1
                self.world.after(100, self._send)

        self.network.ask(self.name, leader, Produce(self.place, topic_id, batch), sent, patience_ms=3_000, by=self.name)


class Reader(Asker):
    """Reads one partition from its beginning over and over; what it was shown once has to be there ever after."""

    def __init__(
        self,
        world: World,
        network: Network,
        nodes: list[SimNode],
        name: str,
        place: TopicPartition,
        promises: Promises,
    ) -> None:
        super().__init__(world, network, nodes, name)
        self.place = place
        self.promises = promises
        self.offset = 0
        self.stopped = False

    def start(self) -> None:
        self.world.after(self.world.between(1, 300), self._fetch)

    def _fetch(self) -> None:
        if self.stopped:
            return
        found = self.leader_of(self.place)
        if found is None:
            self.world.after(200, self._fetch)
            return
        leader, topic_id = found

        def fetched(outcome: Any) -> None:
            wait_ms = 150
            if isinstance(outcome, Consumed) and outcome.code == ErrorCode.NONE:
                for offset, entry in enumerate(outcome.values, outcome.offset):
                    self._shown((self.place, topic_id), offset, entry, outcome.epoch)
                self.offset = outcome.offset + len(outcome.values)
                if not outcome.values and self.world.chance(0.3):
                    self.offset = 0
                self.world.census["read"] += len(outcome.values)
            elif isinstance(outcome, Consumed) and outcome.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self.offset = max(outcome.offset, 0)
            self.world.after(wait_ms, self._fetch)

        ask = Consume(self.place, topic_id, self.offset)
        self.network.ask(self.name, leader, ask, fetched, patience_ms=2_000, by=self.name)

    def _shown(self, log: Log, offset: int, entry: Entry, epoch: int) -> None:
        seen = self.promises.read.setdefault(log, {})
        before, told = seen.setdefault(offset, (entry, epoch))
        if before == entry:
            return
        if not self.promises.is_parted(log, told, epoch):
            self.world.violated("CommittedStays", f"{self.place} {offset}: {before} was read first, then {entry}")
        elif epoch > told:
            seen[offset] = entry, epoch
