"""What the diary of a shard records of a takeover (CL-G9): from which node and why, and what an unclean election cost.

Replicas that cut their copies count what they cut and report it to the ledger of elections when they are back; from
there it is added to the diary.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from muster.coordinator.core.model.events import TookOver
from muster.coordinator.replication.io.shards.replicated_shards import shard_unit
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    NO_NODE_ID,
    OFFSETS,
    ClusterImage,
    ClusterNodeStatus,
    PartitionChange,
    TopicPartition,
)
from muster.coordinator.replication.protocol.coordinator_term import FIRST_EPOCH, CoordinatorTerm

# From which node, and why
# ------------------------

NOT_KNOWN: Final = 0
"""A moment."""


class ShardTakeovers:
    """What is to be noted once the shard is served. now_ms: the side's clock, clock_ms: the engine's."""

    def __init__(self, me: int, image: ClusterImage, now_ms: Callable[[], int]) -> None:
        self._me = me
        self._image = image
        self._now_ms = now_ms
        self._led_by: dict[int, int] = {}
        self._due: dict[int, tuple[TookOver, CoordinatorTerm]] = {}

    def read_leaders(self) -> None:
        """The image as it is: what changes from now on is told by `learned`."""
        topic = self._image.topics.get(OFFSETS)
        for number, view in topic.partitions.items() if topic is not None else ():
            if view.leader != NO_NODE_ID:
                self._led_by[number] = view.leader

    def learned(self, moved: Iterable[PartitionChange]) -> None:
        """Who leads from now on; to be told after `gained` for the same change."""
        for each in moved:
            if each.place.topic == OFFSETS and each.after.leader != NO_NODE_ID:
                self._led_by[each.place.partition] = each.after.leader

    def gained(self, shard: int, term: CoordinatorTerm, clock_ms: int) -> None:
        """This node leads the shard's unit."""
        if term.epoch == FIRST_EPOCH:
            return
        before = self._led_by.get(shard, NO_NODE_ID)
        silent_ms = None if before == NO_NODE_ID else term.silent_ms(before, self._now_ms())
        heard_ms = NOT_KNOWN if silent_ms is None else clock_ms - silent_ms
        event = TookOver(shard, term.epoch, before, self._me, self._cause(before), heard_ms, clock_ms)
        self._due[shard] = event, term

    def lost(self, shard: int) -> None:
        self._due.pop(shard, None)

    def served(self, shard: int) -> TookOver | None:
        """It is served now: what to note, once."""
        if (due := self._due.pop(shard, None)) is None:
            return None
        event, term = due
        before = event.moved_from
        lost = before not in (self._me, NO_NODE_ID) and self._is_gone(before) and not term.has_let_go(before)
        return replace(event, lost=lost)

    def _is_gone(self, node_id: int) -> bool:
        node = self._image.nodes.get(node_id)
        return node is None or node.status is ClusterNodeStatus.GONE

    def _cause(self, before: int) -> str:
        if before == self._me:
            return "it led before"
        if before == NO_NODE_ID:
            return "nobody is known to have led before"
        if self._is_gone(before):
            return f"node {before} died"
        node = self._image.nodes[before]
        return f"node {before} shut down" if node.status is ClusterNodeStatus.SHUTTING_DOWN else "moved"


# What an unclean election cost
# -----------------------------

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
            await self.check_losses()

    async def check_losses(self) -> None:
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
