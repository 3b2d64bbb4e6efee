"""An operator who asks nodes for elections (CL-A5), as `replication.admin.cluster_admin` does, and what came of
each."""

from typing import Any, NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.admin import cluster_admin
from muster.coordinator.replication.protocol.cluster_metadata import NO_NODE_ID, TopicPartition
from muster.coordinator.replication.protocol.controller.events_and_effects import AdminMarker
from tests.sim.replication.node import SimNode
from tests.sim.replication.operators import Asked, Operator
from tests.sim.replication.watching import DRAINED, state_path

BY_OPERATORS = "preferred", "unclean by operator"


class TimedOut(NamedTuple):
    """One that ended as 7: it may happen yet, or not. since: transactions of ZooKeeper's by then."""

    unit: TopicPartition
    since: int


class Elector(Operator):
    kind = "elections"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._late: list[TimedOut] = []

    def ask(self, *, unclean: bool) -> None:
        """Some units of some node's image; where it is allowed, and one has no leader: that one, whatever it costs."""
        rng, found = self._world.rng, self._some_node()
        if found is None:
            return
        node, views = found
        leaderless = [unit for unit, view in views if view.leader == NO_NODE_ID]
        forced = unclean and bool(leaderless)
        chosen = [rng.choice(leaderless)] if forced else [unit for unit, _ in views if self._world.chance(0.5)]
        left = []
        for unit in chosen:
            code = cluster_admin.unclean_refusal(node.image, unit) if forced else self._preferred(node, unit)
            if code is None:
                left.append(unit)
            else:
                self._answered(code)
        if left:
            until_ms = self._world.now_ms + self._world.between(5, 400)
            marker, units = AdminMarker.UNCLEAN if forced else AdminMarker.PREFERRED, tuple(left)

            def came(unit: TopicPartition) -> ErrorCode | None:
                return cluster_admin.election_outcome(node.image, unit, self._drained(), unclean=forced)

            self._leave(Asked(node, node.life, until_ms, marker, units, units, came))

    def _preferred(self, node: SimNode, unit: TopicPartition) -> ErrorCode | None:
        return cluster_admin.preferred_refusal(node.image, unit, self._drained())

    def _drained(self) -> frozenset[int]:
        return frozenset(map(int, self._ensemble.committed.children(DRAINED)))

    def _timed_out(self, unit: TopicPartition) -> None:
        self._late.append(TimedOut(unit, len(self._ensemble.history)))

    def end(self) -> None:
        """Counts what became of those that ended as 7."""
        for each in self._late:
            path = state_path(each.unit)
            later = (changed.get(path) for changed in self._ensemble.history[each.since :])
            done = any(znode is not None and znode.data.cause in BY_OPERATORS for znode in later)
            self._world.census[f"elections that ended as 7 and were {'done' if done else 'not done'}"] += 1
