"""An operator who asks nodes for elections (A5), as `replication.admin.cluster_admin` does, and what came of each."""

from dataclasses import dataclass
from typing import NamedTuple

from muster.coordinator.cluster.controller.effects import Marker
from muster.coordinator.cluster.facts import LEDGER, NOBODY, TopicPartition
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.admin import elections
from tests.sim.cluster.node import SimNode
from tests.sim.cluster.watching import ASKED, DRAINED, RETRY_MS, state_path
from tests.sim.cluster.zookeeper import Client, Create, Ensemble, NodeExists
from tests.sim.world import World

LOOK_MS = 20
BY_OPERATORS = "preferred", "unclean by operator"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: of which node, in which of its lives, by when it is to be answered, and for what it was left."""

    node: SimNode
    life: int
    unclean: bool
    until_ms: int
    units: tuple[TopicPartition, ...]


class TimedOut(NamedTuple):
    """One that ended as 7: it may happen yet, or not. since: transactions of ZooKeeper's by then."""

    unit: TopicPartition
    since: int


class Elector:
    def __init__(self, world: World, ensemble: Ensemble, nodes: list[SimNode], zookeeper: Client) -> None:
        self._world = world
        self._ensemble = ensemble
        self._nodes = nodes
        self._zookeeper = zookeeper
        self._timed_out: list[TimedOut] = []

    def ask(self, *, unclean: bool) -> None:
        """Some units of some node's image; where it is allowed, and one has no leader: that one, whatever it costs."""
        rng = self._world.rng
        able = [node for node in self._nodes if node.alive and not node.frozen]
        node = rng.choice(able) if able else None
        views = [] if node is None else [each for each in node.image.partitions() if each[0].topic != LEDGER]
        if node is None or not views:
            return
        leaderless = [unit for unit, view in views if view.leader == NOBODY]
        forced = unclean and bool(leaderless)
        chosen = [rng.choice(leaderless)] if forced else [unit for unit, _ in views if self._world.chance(0.5)]
        left = []
        for unit in chosen:
            code = elections.unclean(node.image, unit) if forced else self._preferred(node, unit)
            if code is None:
                left.append(unit)
            else:
                self._world.census[f"elections answered {code.name}"] += 1
        if left:
            until_ms = self._world.now_ms + self._world.between(5, 400)
            self._leave(Asked(node, node.life, forced, until_ms, tuple(left)))

    def _preferred(self, node: SimNode, unit: TopicPartition) -> ErrorCode | None:
        return elections.preferred(node.image, unit, self._drained())

    def _drained(self) -> frozenset[int]:
        return frozenset(map(int, self._ensemble.committed.children(DRAINED)))

    def _leave(self, asked: Asked) -> None:
        """For the controller, when what somebody left before has been taken. One whose answer is lost counts as
        left."""
        marker = Marker.UNCLEAN if asked.unclean else Marker.PREFERRED

        def left(outcome: object) -> None:
            if isinstance(outcome, NodeExists) and self._world.now_ms < asked.until_ms:
                self._world.after(RETRY_MS, lambda: self._leave(asked))
            else:
                self._wait(asked)

        self._zookeeper.multi([Create(ASKED[marker], asked.units)], left)

    def _wait(self, asked: Asked) -> None:
        """Until the node's image shows what came of it."""
        if asked.node.life != asked.life or not asked.node.alive:
            self._world.census["elections that nobody answered"] += len(asked.units)
            return
        came = {unit: self._came(asked, unit) for unit in asked.units}
        if None in came.values() and self._world.now_ms < asked.until_ms:
            self._world.after(LOOK_MS, lambda: self._wait(asked))
            return
        for unit, code in came.items():
            answer = ErrorCode.REQUEST_TIMED_OUT if code is None else code
            self._world.census[f"elections answered {answer.name}"] += 1
            if code is None:
                self._timed_out.append(TimedOut(unit, len(self._ensemble.history)))

    def _came(self, asked: Asked, unit: TopicPartition) -> ErrorCode | None:
        return elections.came(asked.node.image, unit, self._drained(), unclean=asked.unclean)

    def end(self) -> None:
        """Counts what became of those that ended as 7."""
        for each in self._timed_out:
            path = state_path(each.unit)
            later = (changed.get(path) for changed in self._ensemble.history[each.since :])
            done = any(znode is not None and znode.data.cause in BY_OPERATORS for znode in later)
            self._world.census[f"elections that ended as 7 and were {'done' if done else 'not done'}"] += 1
