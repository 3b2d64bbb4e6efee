"""What answers about groups have to be (CL-S9, CL-S12)."""

from muster.coordinator.core.model.events import OffsetCommit
from muster.coordinator.errors import ErrorCode
from tests.sim.replication.groups.coordinator import Answered
from tests.sim.world import World


class Stale:
    """CL-S9: whoever has answered for a shard is the last that may; one of an earlier epoch says nothing more but that
    he does not."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._latest: dict[int, tuple[int, str]] = {}

    def answered(self, answer: Answered) -> None:
        if answer.reply.code is not ErrorCode.NONE:
            return
        self.world.census["answers"] += 1
        if isinstance(answer.request, OffsetCommit):
            self.world.census["commits answered"] += 1
        epoch, name = self._latest.get(answer.shard, (-1, ""))
        if answer.epoch < epoch:
            self.world.violated(
                "OneCoordinator",
                f"shard {answer.shard}: {name} answered in epoch {epoch}, then {answer.node.name} in {answer.epoch}",
            )
        self._latest[answer.shard] = max((epoch, name), (answer.epoch, answer.node.name))
