"""Positions of a consumer in a central group: start orders bring them, the coordinator keeps them."""

from collections.abc import Mapping, Sequence

from muster.client.calls.group_calls import GroupCalls
from muster.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from muster.coordinator.core.model.orders import NOTHING_COMMITTED, StartFetcher


class CentralStore:
    """An `OffsetStore` over the group's coordinator that need not ask for what a start order has just said."""

    def __init__(self, calls: GroupCalls) -> None:
        self.calls = calls
        self.committed_by_hand: set[TopicPartition] = set()
        """Committed by a call of this process since they were given: what it reports otherwise is older."""
        self._started: dict[TopicPartition, OffsetAndMetadata | None] = {}

    def start_at(self, order: StartFetcher) -> None:
        """Where to begin, good for the first question: nobody else commits while this member owns the partitions."""
        self._started = {
            TopicPartition(topic, partition): None if offset == NOTHING_COMMITTED else OffsetAndMetadata(offset)
            for topic, partition, offset in order.partitions
        }

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: GroupMetadata | None,
        timeout_ms: int | None = None,
    ) -> None:
        for tp in offsets:
            self._started.pop(tp, None)
        await self.calls.commit(offsets, identity, timeout_ms)
        self.committed_by_hand |= set(offsets)

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        found = {tp: self._started.pop(tp) for tp in partitions if tp in self._started}
        rest = [tp for tp in partitions if tp not in found]
        if rest:
            found |= await self.calls.committed(rest)
        return found
