"""An operator who has partitions kept by other nodes (CL-A8), as `replication.admin.cluster_admin` asks for it."""

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.admin import cluster_admin
from muster.coordinator.replication.io.admin.cluster_admin import WantedReplicas
from muster.coordinator.replication.protocol.cluster_metadata import TopicPartition
from muster.coordinator.replication.protocol.controller.events_and_effects import AdminMarker
from tests.sim.replication.operators import Asked, Operator
from tests.sim.replication.watching import TOPICS


class Reassigner(Operator):
    kind = "reassignments"

    def ask(self) -> None:
        """For some units of some node's image. What is under way is now and then called off, or changed."""
        found = self._some_node()
        if found is None:
            return
        node, views = found
        wanted: dict[TopicPartition, WantedReplicas] = {}
        for unit, view in self._world.rng.sample(views, min(len(views), self._world.between(1, 2))):
            target = None if (view.adding or view.removing) and self._world.chance(0.5) else self._target()
            code = cluster_admin.reassignment_refusal(node.image, view, target)
            if code is None:
                wanted[unit] = cluster_admin.wanted_replicas(view, target)
            else:
                self._answered(code)
        if wanted:
            until_ms = self._world.now_ms + self._world.between(50, 2_000)
            body = {unit: None if wish.cancels else wish.replicas for unit, wish in wanted.items()}

            def came(unit: TopicPartition) -> ErrorCode | None:
                return cluster_admin.reassignment_outcome(node.image, node.image.partition(unit), wanted[unit])

            self._leave(Asked(node, node.life, until_ms, AdminMarker.REASSIGN, body, tuple(wanted), came))

    def _target(self) -> tuple[int, ...]:
        """Two copies at least: as many as are to be in sync by default."""
        ids = [node.id for node in self._nodes]
        return tuple(self._world.rng.sample(ids, self._world.between(2, min(4, len(ids)))))

    def end(self) -> None:
        """Each is over: who was to come is there, and who was to go has gone."""
        for path, znode in self._ensemble.committed.nodes.items():
            if path.startswith(f"{TOPICS}/") and path.count("/") == 3:
                for number, each in enumerate(znode.data.partitions):
                    if each.adding or each.removing:
                        self._world.violated("Liveness", f"{path}-{number} is being moved yet: {each}")
