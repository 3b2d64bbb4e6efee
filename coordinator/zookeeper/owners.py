"""The owner registry of a group: one ephemeral znode per partition, made before the partition is read."""

import asyncio
from collections.abc import Iterable

from muster.client.members.types import TopicPartition
from muster.client.members.zookeeper_types import ClaimedShare
from muster.coordinator.zookeeper import errors, layout
from muster.coordinator.zookeeper.session import ZooKeeperSession

MAX_CLAIMS_IN_FLIGHT = 500
CLAIM_ATTEMPTS = 3
UNSTABLE_OWNER = "somebody who comes and goes"


class OwnershipClaims:
    """Claims and releases of one session. What another session holds is never touched."""

    def __init__(self, session: ZooKeeperSession, group_id: str) -> None:
        self._session = session
        self._group_id = group_id
        self._topics: set[str] = set()
        """Topics whose directory was seen to be there."""

    async def claim(self, consumer_id: str, share: ClaimedShare) -> tuple[dict[TopicPartition, str], int]:
        """Who holds what could not be claimed, and the transaction number of the newest claim that could."""
        for topic in sorted({topic for topic, _ in share} - self._topics):
            await self._session.ensure(layout.topic_owners_path(self._group_id, topic))
            self._topics.add(topic)
        conflicts: dict[TopicPartition, str] = {}
        newest = 0
        for some in chunk_partitions(sorted(share)):
            claims = [self._claim_one(tp, layout.owner_text(consumer_id, share[tp])) for tp in some]
            for tp, (holder, number) in zip(some, await asyncio.gather(*claims), strict=True):
                newest = max(newest, number)
                if holder:
                    conflicts[tp] = holder
        return conflicts, newest

    async def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete those that are this session's."""
        for some in chunk_partitions(sorted(partitions)):
            await asyncio.gather(*(self._release_one(tp) for tp in some))

    async def _claim_one(self, tp: TopicPartition, text: bytes) -> tuple[str, int]:
        """("", number) when it is this session's now, else (its holder, 0)."""
        path = layout.owner_path(self._group_id, *tp)
        for _ in range(CLAIM_ATTEMPTS):
            try:
                _, stat = await self._session.perform(
                    lambda c: c.create_async(path, text, ephemeral=True, include_data=True)
                )
                return "", int(stat.czxid)
            except errors.NodeExists:
                found = await self._held(path)
            except errors.NoNode:
                await self._session.ensure(layout.topic_owners_path(self._group_id, tp[0]))
                continue
            if found is not None:
                return found
        return UNSTABLE_OWNER, 0

    async def _held(self, path: str) -> tuple[str, int] | None:
        try:
            data, stat = await self._session.perform(lambda c: c.get_async(path))
        except errors.NoNode:
            return None
        if stat.ephemeralOwner == self._session.id:
            return "", int(stat.czxid)  # The answer to an earlier attempt was lost.
        return bytes(data).decode(errors="replace"), 0

    async def _release_one(self, tp: TopicPartition) -> None:
        path = layout.owner_path(self._group_id, *tp)
        node = await self._session.get(path)
        if node is not None and node.owner == self._session.id:
            await self._session.delete(path)


def chunk_partitions(partitions: list[TopicPartition]) -> Iterable[list[TopicPartition]]:
    for start in range(0, len(partitions), MAX_CLAIMS_IN_FLIGHT):
        yield partitions[start : start + MAX_CLAIMS_IN_FLIGHT]
