"""Where a group of the ZooKeeper era keeps its positions: in ZooKeeper, with the coordinator, or for a while both."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from coordinator.client.config import ConsumerConfig
from coordinator.client.errors import IllegalState, ZookeeperAway, ZookeeperRefused, refusal
from coordinator.client.group_calls import GroupCalls
from coordinator.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from coordinator.member.backoff import Backoff
from coordinator.zookeeper import paths
from coordinator.zookeeper.connect import Session
from coordinator.zookeeper.errors import ConnectionLost, MalformedZnode, SessionExpired, ZooKeeperError
from coordinator.zookeeper.offsets import NotRegistered, OffsetNodes

UNKNOWN_MEMBER_ID = 25
T = TypeVar("T")


class ZookeeperStore:
    """`offsets.storage` and `dual.commit.enabled`. `claimed` says which partitions this consumer holds right now.

    A member's commit counts only while it is registered and holds the partition. ZooKeeper has room for the offset
    alone: a commit's metadata is kept by the coordinator only.
    """

    def __init__(
        self, config: ConsumerConfig, calls: GroupCalls, claimed: Callable[[], set[tuple[str, int]] | None]
    ) -> None:
        self._config = config
        self._calls = calls
        self._claimed = claimed
        self._session: Session | None = None
        self._nodes: OffsetNodes | None = None
        self._in_zookeeper = config.offsets_storage == "zookeeper" or config.commits_twice
        self._in_kafka = config.offsets_storage == "kafka" or config.commits_twice

    def attach(self, session: Session) -> None:
        self._session = session
        self._nodes = OffsetNodes(session, self._calls.group_id)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: GroupMetadata | None,
        timeout_ms: int | None = None,
    ) -> None:
        consumer_id = identity.member_id if identity is not None else None
        values = {(tp[0], tp[1]): offset.offset for tp, offset in offsets.items()}

        async def attempt() -> None:
            # Every time: while the connection was away the partitions may have been let go of.
            if consumer_id is not None:
                self._must_hold(offsets)
            if self._in_zookeeper:
                await self._attached.write(values, consumer_id)
            elif consumer_id is not None:
                await self._check_registered(consumer_id)

        try:
            await self._patiently(attempt, timeout_ms)
        except (NotRegistered, SessionExpired) as error:
            raise refusal(UNKNOWN_MEMBER_ID, "UNKNOWN_MEMBER_ID", str(error), self._calls.group_id) from error
        if self._in_kafka:
            # To the coordinator such a consumer is no member: it commits like a simple one.
            await self._calls.commit(offsets, None, timeout_ms)

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """With both stores in use: the larger offset of the two."""
        found: dict[TopicPartition, OffsetAndMetadata | None] = {TopicPartition(*tp): None for tp in partitions}
        if self._in_kafka:
            found |= await self._calls.committed(partitions)
        if self._in_zookeeper:
            kept = await self._patiently(lambda: self._attached.fetch(list(partitions)), None)
            for tp, offset in kept.items():
                known = found[TopicPartition(*tp)]
                if offset is not None and (known is None or known.offset < offset):
                    found[TopicPartition(*tp)] = OffsetAndMetadata(offset)
        return found

    @property
    def _attached(self) -> OffsetNodes:
        if self._nodes is None:
            raise IllegalState("not connected to ZooKeeper yet: call subscribe() or assign() first")
        return self._nodes

    def _must_hold(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        claimed = self._claimed() or set()
        if strange := sorted(set(offsets) - claimed):
            named = ", ".join(f"{topic}-{number}" for topic, number in strange)
            raise refusal(
                UNKNOWN_MEMBER_ID, "UNKNOWN_MEMBER_ID", f"{named} is not claimed by this consumer", self._calls.group_id
            )

    async def _check_registered(self, consumer_id: str) -> None:
        assert self._session is not None, "a member has a session"
        if not await self._session.exists(paths.consumer(self._calls.group_id, consumer_id)):
            raise NotRegistered(f"{consumer_id} is not registered any more; nothing was committed")

    async def _patiently(self, attempt: Callable[[], Awaitable[T]], timeout_ms: int | None) -> T:
        """Again while the connection comes and goes, until the time for a call is up."""
        patience_ms = timeout_ms or self._config.default_api_timeout_ms
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        try:
            async with asyncio.timeout(patience_ms / 1000):
                while True:
                    try:
                        return await attempt()
                    except ConnectionLost:
                        await asyncio.sleep(backoff.next_ms() / 1000)
        except TimeoutError:
            raise ZookeeperAway(
                f"ZooKeeper at {self._config.zookeeper_connect} did not answer for {patience_ms} ms; is a majority of "
                "its servers running?"
            ) from None
        except (NotRegistered, SessionExpired):
            raise
        except (MalformedZnode, ZooKeeperError) as error:
            raise ZookeeperRefused(str(error)) from error
