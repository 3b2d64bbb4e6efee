"""The shards whose copies this node has, and which others lead: kept ready to be taken over (CL-G8)."""

import asyncio
import threading
from collections.abc import Callable, Container
from typing import Final

import structlog

from muster.coordinator.replication.io.shards.group_log import shard_unit
from muster.coordinator.replication.protocol.facts import TopicPartition
from muster.coordinator.runtime.ports import LogFailed
from muster.coordinator.runtime.slot import ShardCore
from muster.coordinator.runtime.warm import WarmLog, WarmShard

logger = structlog.get_logger("muster.replication")

PAUSE_S: Final = 0.005
"""Between two slices of what is there already: others have their turn."""

LOOK_S: Final = 0.1
"""Until it is looked again whether more is committed."""

MAX_BEGINNINGS: Final = 3
"""Of a shard whose log was cut each time, until it is led here."""


class WarmShards:
    """One core for each such shard, as large as its leader's. `take_some`, `take` and `run` by one thread."""

    def __init__(
        self,
        log: WarmLog,
        shards: int,
        new_core: Callable[[int], ShardCore],
        copied: Callable[[], Container[TopicPartition]],
    ) -> None:
        """copied: the partitions that this node follows others in."""
        self._log = log
        self._shards = shards
        self._new_core = new_core
        self._copied = copied
        self._warm: dict[int, WarmShard] = {}
        self._begun: dict[int, int] = {}
        """How often, of each shard that has been begun since it was led here last."""
        self._useless: set[int] = set()

    def take(self, shard: int) -> WarmShard | None:
        """This node leads the shard from now on: what was kept ready of it, for whoever takes it over."""
        self._useless.discard(shard)
        self._begun.pop(shard, None)
        warm = self._warm.pop(shard, None)
        return None if warm is None or warm.useless else warm

    def take_some(self) -> bool:
        """A slice of each shard. Whether there may be more already."""
        more = [self._step(shard) for shard in self._behind()]
        return any(more)

    async def run(self) -> None:
        """Each slice is taken in a thread: one large batch holds nobody up."""
        while True:
            for shard in self._behind():
                while (warm := self._of(shard)) is not None:
                    more = await asyncio.to_thread(warm.take_some)
                    self._judge(warm)
                    if not more:
                        break
                    await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(LOOK_S)

    def _step(self, shard: int) -> bool:
        warm = self._of(shard)
        if warm is None:
            return False
        more = warm.take_some()
        self._judge(warm)
        return more

    def _behind(self) -> list[int]:
        """Those copied here of which more is committed than was taken in. What was kept of others goes."""
        copied, behind = self._copied(), []
        for shard in range(self._shards):
            if shard_unit(shard) not in copied:
                self._warm.pop(shard, None)
            elif shard not in self._useless and ((warm := self._warm.get(shard)) is None or warm.behind):
                behind.append(shard)
        return behind

    def _of(self, shard: int) -> WarmShard | None:
        """What is kept ready of the shard, begun where there is nothing; None where nothing is to be."""
        if shard_unit(shard) not in self._copied() or shard in self._useless:
            return None
        if shard not in self._warm:
            if self._begun.get(shard, 0) >= MAX_BEGINNINGS:
                self._useless.add(shard)
                log_unfit(shard, f"its log was cut {MAX_BEGINNINGS} times")
                return None
            try:
                self._warm[shard] = WarmShard(shard, self._new_core(shard), self._log, threading.Lock(), log_unfit)
            except LogFailed:
                return None
            self._begun[shard] = self._begun.get(shard, 0) + 1
        return self._warm[shard]

    def _judge(self, warm: WarmShard) -> None:
        """One that was cut is begun anew; one that is of no use for another reason is not, until the shard was led."""
        if not warm.useless or self._warm.get(warm.shard) is not warm:
            return
        del self._warm[warm.shard]
        if not warm.cut:
            self._useless.add(warm.shard)


def log_unfit(shard: int, why: str) -> None:
    """Once for each core: it is of no use from then on."""
    logger.warning("a copy of groups is not kept ready, taking over will take a load", shard=shard, why=why)
