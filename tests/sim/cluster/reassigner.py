"""An operator who has partitions kept by other nodes (A8), as `replication.admin.cluster_admin` asks for it."""

from dataclasses import dataclass

from muster.coordinator.cluster.controller.effects import Marker
from muster.coordinator.cluster.facts import LEDGER, TopicPartition
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.admin import reassignments
from muster.coordinator.replication.admin.reassignments import Wanted
from tests.sim.cluster.node import SimNode
from tests.sim.cluster.watching import ASKED, RETRY_MS, TOPICS
from tests.sim.cluster.zookeeper import Client, Create, Ensemble, NodeExists
from tests.sim.world import World

LOOK_MS = 20


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: of which node, in which of its lives, by when it is to be answered, and what is wanted."""

    node: SimNode
    life: int
    until_ms: int
    wanted: dict[TopicPartition, Wanted]


class Reassigner:
    def __init__(self, world: World, ensemble: Ensemble, nodes: list[SimNode], zookeeper: Client) -> None:
        self._world = world
        self._ensemble = ensemble
        self._nodes = nodes
        self._zookeeper = zookeeper

    def ask(self) -> None:
        """For some units of some node's image. What is under way is now and then called off, or changed."""
        rng = self._world.rng
        able = [node for node in self._nodes if node.alive and not node.frozen]
        node = rng.choice(able) if able else None
        views = [] if node is None else [each for each in node.image.partitions() if each[0].topic != LEDGER]
        if node is None or not views:
            return
        wanted: dict[TopicPartition, Wanted] = {}
        for unit, view in rng.sample(views, min(len(views), self._world.between(1, 2))):
            target = None if (view.adding or view.removing) and self._world.chance(0.5) else self._target()
            code = reassignments.refused(node.image, view, target)
            if code is None:
                wanted[unit] = reassignments.wanted(view, target)
            else:
                self._world.census[f"reassignments answered {code.name}"] += 1
        if wanted:
            self._leave(Asked(node, node.life, self._world.now_ms + self._world.between(50, 2_000), wanted))

    def _target(self) -> tuple[int, ...]:
        """Two copies at least: as many as are to be in sync by default."""
        ids = [node.id for node in self._nodes]
        return tuple(self._world.rng.sample(ids, self._world.between(2, min(4, len(ids)))))

    def _leave(self, asked: Asked) -> None:
        """For the controller, when what somebody left before has been taken. One whose answer is lost counts as
        left."""
        body = {unit: None if wish.cancels else wish.replicas for unit, wish in asked.wanted.items()}

        def left(outcome: object) -> None:
            if isinstance(outcome, NodeExists) and self._world.now_ms < asked.until_ms:
                self._world.after(RETRY_MS, lambda: self._leave(asked))
            else:
                self._wait(asked)

        self._zookeeper.multi([Create(ASKED[Marker.REASSIGN], body)], left)

    def _wait(self, asked: Asked) -> None:
        """Until the node's image shows what came of it."""
        if asked.node.life != asked.life or not asked.node.alive:
            self._world.census["reassignments that nobody answered"] += len(asked.wanted)
            return
        image = asked.node.image
        came = {unit: reassignments.came(image, image.partition(unit), wish) for unit, wish in asked.wanted.items()}
        if None in came.values() and self._world.now_ms < asked.until_ms:
            self._world.after(LOOK_MS, lambda: self._wait(asked))
            return
        for code in came.values():
            answer = ErrorCode.REQUEST_TIMED_OUT if code is None else code
            self._world.census[f"reassignments answered {answer.name}"] += 1

    def end(self) -> None:
        """Each is over: who was to come is there, and who was to go has gone."""
        for path, znode in self._ensemble.committed.nodes.items():
            if path.startswith(f"{TOPICS}/") and path.count("/") == 3:
                for number, each in enumerate(znode.data.partitions):
                    if each.adding or each.removing:
                        self._world.violated("Liveness", f"{path}-{number} is being moved yet: {each}")
