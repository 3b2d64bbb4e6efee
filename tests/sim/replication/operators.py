"""Operators who ask a node for something: it leaves that in ZooKeeper for the controller, and answers by its image."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import LEDGER, PartitionView, TopicPartition
from muster.coordinator.replication.protocol.controller.events_and_effects import AdminMarker
from tests.sim.replication.node import SimNode
from tests.sim.replication.watching import ASKED, RETRY_MS
from tests.sim.replication.zookeeper import Client, Create, Ensemble, NodeExists
from tests.sim.world import World

LOOK_MS = 20


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: of which node, in which of its lives, by when it is to be answered, what is left under the marker,
    for which units, and what has come of one by now (None: nothing yet)."""

    node: SimNode
    life: int
    until_ms: int
    marker: AdminMarker
    body: Any
    units: tuple[TopicPartition, ...]
    came: Callable[[TopicPartition], ErrorCode | None]


class Operator:
    """kind: what they ask for, as the census has it."""

    kind: ClassVar[str]

    def __init__(self, world: World, ensemble: Ensemble, nodes: list[SimNode], zookeeper: Client) -> None:
        self._world = world
        self._ensemble = ensemble
        self._nodes = nodes
        self._zookeeper = zookeeper

    def _some_node(self) -> tuple[SimNode, list[tuple[TopicPartition, PartitionView]]] | None:
        """Who is asked, and the units in its image; None where nobody can be, or it knows of none."""
        able = [node for node in self._nodes if node.alive and not node.frozen]
        node = self._world.rng.choice(able) if able else None
        views = [] if node is None else [each for each in node.image.partitions() if each[0].topic != LEDGER]
        return None if node is None or not views else (node, views)

    def _answered(self, code: ErrorCode) -> None:
        self._world.census[f"{self.kind} answered {code.name}"] += 1

    def _timed_out(self, unit: TopicPartition) -> None:
        """It was answered so, and may be done yet."""

    def _leave(self, asked: Asked) -> None:
        """For the controller, when what somebody left before has been taken. One whose answer is lost counts as
        left."""

        def left(outcome: object) -> None:
            if isinstance(outcome, NodeExists) and self._world.now_ms < asked.until_ms:
                self._world.after(RETRY_MS, lambda: self._leave(asked))
            else:
                self._wait(asked)

        self._zookeeper.multi([Create(ASKED[asked.marker], asked.body)], left)

    def _wait(self, asked: Asked) -> None:
        """Until the node's image shows what came of it."""
        if asked.node.life != asked.life or not asked.node.alive:
            self._world.census[f"{self.kind} that nobody answered"] += len(asked.units)
            return
        came = {unit: asked.came(unit) for unit in asked.units}
        if None in came.values() and self._world.now_ms < asked.until_ms:
            self._world.after(LOOK_MS, lambda: self._wait(asked))
            return
        for unit, code in came.items():
            self._answered(ErrorCode.REQUEST_TIMED_OUT if code is None else code)
            if code is None:
                self._timed_out(unit)
