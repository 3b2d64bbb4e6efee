"""From whom this node takes shards over, and why, as far as the image tells: what their diaries say of it (CL-G9)."""

from collections.abc import Callable, Iterable
from typing import Final

from muster.coordinator.core.model.core_events import TookOver
from muster.coordinator.replication.protocol.coordinator_term import FIRST_EPOCH, CoordinatorTerm
from muster.coordinator.replication.protocol.facts import NO_NODE_ID, OFFSETS
from muster.coordinator.replication.protocol.image import ClusterImage, ClusterNodeStatus, PartitionChange

NOT_KNOWN: Final = 0
"""A moment."""


class ShardTakeovers:
    """What is to be noted once the shard is served. now_ms: the side's clock, clock_ms: the engine's."""

    def __init__(self, me: int, image: ClusterImage, now_ms: Callable[[], int]) -> None:
        self._me = me
        self._image = image
        self._now_ms = now_ms
        self._led_by: dict[int, int] = {}
        self._due: dict[int, TookOver] = {}

    def begin(self) -> None:
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
        self._due[shard] = TookOver(shard, term.epoch, before, self._me, self._cause(before), heard_ms, clock_ms)

    def lost(self, shard: int) -> None:
        self._due.pop(shard, None)

    def served(self, shard: int) -> TookOver | None:
        """It is served now: what to note, once."""
        return self._due.pop(shard, None)

    def _cause(self, before: int) -> str:
        if before == self._me:
            return "it led before"
        if before == NO_NODE_ID:
            return "nobody is known to have led before"
        node = self._image.nodes.get(before)
        if node is None or node.status is ClusterNodeStatus.GONE:
            return f"node {before} died"
        return f"node {before} shut down" if node.status is ClusterNodeStatus.SHUTTING_DOWN else "moved"
