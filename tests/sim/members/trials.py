"""An operator who tries other assignors: beside the group's own (shadows), and in its place (canaries)."""

from muster.assignors.api import JsonValue
from muster.coordinator.core.model.events import AlterSettings, EndCanary, LagMeasured, StartCanary
from tests.sim.network import Answer, Network
from tests.sim.node.node import Node

TIMEOUT_MS = 5_000
CANDIDATES = ("uniform", "range", "roundrobin", "sticky", 'lag-sticky{"move.budget": 1}')
GUARDS = ((), (), ("moves > 2",), ("moves > 1x", "expired > 1"), ("unowned > 5",), ("lag > 100", "plan-failures > 2"))


class Tester:
    def __init__(self, network: Network, node: Node) -> None:
        self.network, self.node = network, node
        self.world = network.world

    def test(self, group_id: str) -> None:
        """Begin something, end it, or measure."""
        what = self.world.rng.random()
        if what < 0.35:
            self._ask(self._canary(group_id))
        elif what < 0.55:
            self._ask(EndCanary(0, group_id, self.world.chance(0.5), "ops"))
        elif what < 0.75:
            lag = self.world.rng.choice((0, 50, 5_000))
            for _ in range(self.world.between(1, 4) if self.node.up else 0):
                self.node.engine.submit(self.node.shard_index(group_id), LagMeasured(group_id, lag))
                self.node.wake()
        else:
            self._ask(self._shadows(group_id))

    def _canary(self, group_id: str) -> StartCanary:
        rng = self.world.rng
        return StartCanary(
            *(0, group_id, rng.choice(CANDIDATES), self.world.between(1_000, 60_000), rng.choice(GUARDS)),
            *(10, rng.random() < 0.6, rng.random() < 0.1, "ops", 5.0, 3_600_000),
        )

    def _shadows(self, group_id: str) -> AlterSettings:
        rng = self.world.rng
        words: list[JsonValue] = list(rng.sample(CANDIDATES, self.world.between(1, 3)))
        wanted: dict[str, JsonValue] = {"shadow.assignors": words}
        unset = rng.random() < 0.2
        return AlterSettings(
            *(0, group_id, {} if unset else wanted, ("shadow.assignors",) if unset else (), None, False), operator="ops"
        )

    def _ask(self, request: StartCanary | EndCanary | AlterSettings) -> None:
        self.world.census[f"asked of trials: {type(request).__name__}"] += 1
        self.network.call("operator", request, TIMEOUT_MS, self._hear)

    def _hear(self, answer: Answer) -> None:
        return
