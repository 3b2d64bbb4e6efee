"""What tools may ask, and change, of groups that ZooKeeper holds: their positions, and their end.

Everything here waits for ZooKeeper, for a bounded time and off nobody's way; what it cannot do becomes a code.
"""

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from typing import TypeVar

from muster.coordinator.core.model.effects import DeleteReply, OffsetCommitReply, OffsetDeleteReply
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.zookeeper.errors import ConnectionLost, ZooKeeperError
from muster.coordinator.zookeeper.observer import GroupHasMembers, GroupObserver

TopicPartition = tuple[str, int]
Answer = TypeVar("Answer")


class ZooKeeperGroups:
    """The groups that this node watches in ZooKeeper, for the handlers."""

    def __init__(self, observer: GroupObserver, patience_ms: int) -> None:
        self._observer = observer
        self._patience_ms = patience_ms

    def knows(self, group_id: str) -> bool:
        return self._observer.knows(group_id)

    async def positions(self, group_id: str) -> Mapping[TopicPartition, int]:
        """What the group keeps in ZooKeeper; nothing when it is not there. Raises CoordinatorError: at once while
        ZooKeeper is known to be away."""
        if not self.knows(group_id):
            return {}
        try:
            if not self._observer.in_touch:
                raise ConnectionLost("ZooKeeper is out of reach; try again once it is back")
            return await self._patiently(self._observer.positions(group_id))
        except ZooKeeperError as error:
            raise CoordinatorError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"the positions that {group_id!r} keeps in ZooKeeper cannot be read: {error}",
            ) from error

    async def set_positions(self, group_id: str, positions: Mapping[TopicPartition, int]) -> OffsetCommitReply:
        """Write them where the group keeps its positions in ZooKeeper; refused while it has members."""
        code, why = await self._changed(self._observer.write_positions(group_id, positions))
        return OffsetCommitReply(code, why)

    async def delete_positions(self, group_id: str, partitions: Collection[TopicPartition]) -> OffsetDeleteReply:
        """Forget them where the group keeps them in ZooKeeper; refused while it has members."""
        code, why = await self._changed(self._observer.delete_positions(group_id, partitions))
        return OffsetDeleteReply(code, why, dict.fromkeys(partitions, ErrorCode.NONE) if not code else {})

    async def delete(self, group_id: str) -> DeleteReply:
        """Delete all that ZooKeeper has of it; refused while it has members."""
        code, why = await self._changed(self._observer.delete(group_id))
        return DeleteReply(code, why)

    async def _changed(self, change: Awaitable[None]) -> tuple[ErrorCode, str]:
        try:
            await self._patiently(change)
        except GroupHasMembers as error:
            return ErrorCode.NON_EMPTY_GROUP, str(error)
        except ZooKeeperError as error:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)
        return ErrorCode.NONE, ""

    async def _patiently(self, answer: Awaitable[Answer]) -> Answer:
        try:
            async with asyncio.timeout(self._patience_ms / 1000):
                return await answer
        except TimeoutError as error:
            raise ConnectionLost(f"ZooKeeper did not answer within {self._patience_ms} ms; try again") from error
