"""An operator who sets and unsets which assignor plans for a group, and what the planner is told."""

from muster.assignors.api import JsonValue
from muster.coordinator.core.model.events import AlterSettings
from muster.coordinator.errors import ErrorCode
from tests.sim.network import Answer, Network

TIMEOUT_MS = 5_000
ASSIGNORS = ("uniform", "range", "cooperative-sticky", "sticky", "lag")


class Tinkerer:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.world = network.world

    def tinker(self, group_id: str) -> None:
        """Change something about who plans for the group, or take back all that was changed."""
        rng = self.world.rng
        what = rng.random()
        if what < 0.3:
            self._alter(group_id, unset=("assignor", "assignor.options"))
            return
        wanted: dict[str, JsonValue] = {"assignor": rng.choice(ASSIGNORS)}
        if what > 0.8:
            wanted["assignor.protocols"] = ["something-else"]
        # Options that somebody else has set may not be those of this assignor.
        self._alter(group_id, wanted, unset=("assignor.options",))

    def _alter(self, group_id: str, wanted: dict[str, JsonValue] | None = None, unset: tuple[str, ...] = ()) -> None:
        self.world.census["settings of who plans"] += 1
        request = AlterSettings(0, group_id, wanted or {}, unset, None, False, operator="ops")
        self.network.call("operator", request, TIMEOUT_MS, self._hear)

    def _hear(self, answer: Answer) -> None:
        # A canary that was promoted may have left options which another assignor does not take.
        if answer is not None and answer.code is ErrorCode.INVALID_CONFIG and "assignor.options" not in answer.message:
            self.world.violated("Tinkerer", f"a setting was refused: {answer}")
