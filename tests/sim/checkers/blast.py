"""12. A shard falls for its own log only, and is back soon after that is: groups on it and on others are served."""

from muster.coordinator.runtime.shards import LONGEST_PAUSE_MS, ShardStatus
from tests.sim.watch import Checker
from tests.sim.world import World

BACK_MS = LONGEST_PAUSE_MS + 5_000
"""By then the log has been tried again, and loaded if it could be read."""


class WhoseRecordsAreWholeIsServed(Checker):
    """What the log refuses is on its record; nothing else takes a shard away, whatever groups and ledger say."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.fallen_ms: dict[int, int] = {}

    def status(self, shard: int, status: ShardStatus, why: str) -> None:
        log = self.node.log
        self.world.trace(f"shard {shard} is {status.value}: {why}")
        if status is not ShardStatus.FAILED:
            self.fallen_ms.pop(shard, None)
            log.refused.discard(shard)
            return
        self.world.census["shards that fell for their log"] += 1
        if shard not in log.refused:
            self.fail(f"shard {shard} fell, though its log had refused nothing: {why}")
        self.fallen_ms[shard] = self.world.now_ms
        self._look_again(shard, self.node.life)

    def crashed(self) -> None:
        self.fallen_ms.clear()

    def _look_again(self, shard: int, life: int) -> None:
        since_ms = self.world.now_ms
        self.world.after(BACK_MS, lambda: self._is_back(shard, since_ms, life))

    def _is_back(self, shard: int, since_ms: int, life: int) -> None:
        if life != self.node.life or self.fallen_ms.get(shard) != since_ms:
            return
        if self.world.now_ms < self.node.ears.deaf_until_ms + BACK_MS:
            self.world.after(BACK_MS, lambda: self._is_back(shard, since_ms, life))
            return
        self.fail(f"shard {shard} fell {self.world.now_ms - since_ms} ms ago and nobody has looked at its log since")
