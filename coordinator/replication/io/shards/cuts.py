"""What an unclean election cost the shards that this node leads (CL-G9): those who cut their copies count it, and tell
the ledger of elections when they are back; here it is looked for there, and noted in the shard's diary."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from muster.coordinator.replication.io.shards.group_log import shard_unit
from muster.coordinator.replication.protocol.facts import NO_EPOCH, TopicPartition
from muster.coordinator.replication.protocol.image import ClusterImage

LOOK_S: Final = 5.0

LOOKS_AFTER: Final = 3
"""So often once all replicas are in sync: who cut has told it by then, unless the ledger has no leader for longer."""


@dataclass(slots=True)
class ExpectedLoss:
    """epoch: that the unclean election began. told: records, as far as the diary has them. left: looks."""

    epoch: int
    told: int = 0
    left: int = LOOKS_AFTER


class ShardLosses:
    """cost: records that replicas of a unit cut because of the election of this epoch, as far as is known; see
    `Ledger.cost`. found: notes it for a shard; whether that could be done."""

    def __init__(
        self,
        image: ClusterImage,
        cost: Callable[[TopicPartition, int], Awaitable[int]],
        found: Callable[[int, int, int], bool],
    ) -> None:
        self._image = image
        self._cost = cost
        self._found = found
        self._due: dict[int, ExpectedLoss] = {}

    def gained(self, shard: int) -> None:
        """This node serves the shard: what its last unclean election cost may not be known yet."""
        view = self._image.partition(shard_unit(shard))
        if view is not None and view.unclean_epoch != NO_EPOCH:
            self._due[shard] = ExpectedLoss(view.unclean_epoch)

    def lost(self, shard: int) -> None:
        self._due.pop(shard, None)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """At those of which more may come to be known."""
        for shard, due in list(self._due.items()):
            view = self._image.partition(shard_unit(shard))
            if view is not None and set(view.replicas) <= set(view.isr):
                due.left -= 1
            records = await self._cost(shard_unit(shard), due.epoch)
            if self._due.get(shard) is not due:
                continue
            if records > due.told and self._found(shard, due.epoch, records):
                due.told = records
            if due.left <= 0 and records <= due.told:
                del self._due[shard]
