"""Where a group of the ZooKeeper era keeps its positions: in ZooKeeper, with the coordinator, or for a while both."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from muster.client.calls.group_calls import GroupCalls
from muster.client.config import ConsumerConfig
from muster.client.errors import ClientError, IllegalState, ZookeeperAway, ZookeeperRefused, refusal
from muster.client.members.backoff import Backoff
from muster.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.errors import ConnectionLost, MalformedZnode, SessionExpired, ZooKeeperError
from muster.coordinator.zookeeper.offsets import ConsumerNotRegistered, GroupOffsets
from muster.coordinator.zookeeper.session import ZooKeeperSession

log = logging.getLogger("muster.client")

UNKNOWN_MEMBER_ID = 25
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConsumerClaims:
    """As whom a consumer is registered, which partitions it has claimed, and the generation of those claims."""

    consumer_id: str = ""
    generation: int = -1
    claimed: frozenset[tuple[str, int]] = frozenset()


class ZookeeperStore:
    """`offsets.storage` and `dual.commit.enabled`. `holding` says what this consumer holds right now.

    A member's commit counts only while it is registered and holds the partition. ZooKeeper has room for the offset
    alone: a commit's metadata is kept by the coordinator only.
    """

    def __init__(self, config: ConsumerConfig, calls: GroupCalls, holding: Callable[[], ConsumerClaims]) -> None:
        self._config = config
        self._calls = calls
        self._holding = holding
        self._session: ZooKeeperSession | None = None
        self._nodes: GroupOffsets | None = None
        self._evened: tuple[int, set[tuple[str, int]]] = (-1, set())
        """The generation, and the partitions of it that both stores agree about."""
        self._in_zookeeper = config.offsets_storage == "zookeeper" or config.commits_twice
        self._in_kafka = config.offsets_storage == "kafka" or config.commits_twice

    @property
    def places(self) -> tuple[str, ...]:
        """Where commits go, as the registration tells it."""
        return (*(["kafka"] if self._in_kafka else []), *(["zookeeper"] if self._in_zookeeper else []))

    def attach(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._nodes = GroupOffsets(session, self._calls.group_id)

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
        except (ConsumerNotRegistered, SessionExpired) as error:
            raise refusal(UNKNOWN_MEMBER_ID, "UNKNOWN_MEMBER_ID", str(error), self._calls.group_id) from error
        if self._in_kafka:
            # To the coordinator such a consumer is no member: it commits like a simple one.
            await self._calls.commit(offsets, None, timeout_ms)

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """With both stores in use: the larger offset of the two, which the other one gets if this consumer may write.

        Without that, a partition in which nothing happens would never be committed to the new store, and its place
        would be lost with the old one.
        """
        wanted = [TopicPartition(*tp) for tp in partitions]
        in_log = await self._calls.committed(wanted) if self._in_kafka else dict.fromkeys(wanted)
        in_nodes = await self._fetch(wanted) if self._in_zookeeper else dict.fromkeys(wanted)
        found = {tp: choose_further_position(in_log.get(tp), in_nodes[tp]) for tp in wanted}
        if self._in_kafka and self._in_zookeeper:
            await self._even_out(found, in_log, in_nodes)
        return found

    async def _fetch(self, wanted: list[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        kept = await self._patiently(lambda: self._attached.fetch(wanted), None)
        return {
            TopicPartition(*tp): None if offset is None else OffsetAndMetadata(offset) for tp, offset in kept.items()
        }

    async def _even_out(
        self,
        found: Mapping[TopicPartition, OffsetAndMetadata | None],
        in_log: Mapping[TopicPartition, OffsetAndMetadata | None],
        in_nodes: Mapping[TopicPartition, OffsetAndMetadata | None],
    ) -> None:
        holding = self._holding()
        if holding.generation != self._evened[0]:
            self._evened = holding.generation, set()
        # Once per claim: later on, a difference is a commit of its own that is on its way.
        fresh = (set(found) & holding.claimed) - self._evened[1]
        self._evened[1].update(fresh)
        uneven = {
            tp: best
            for tp, best in found.items()
            if best is not None and tp in fresh and read_position(in_log.get(tp)) != read_position(in_nodes[tp])
        }
        if not uneven:
            return
        try:
            await self.commit(
                uneven, GroupMetadata(self._calls.group_id, holding.generation, holding.consumer_id, None)
            )
        except ClientError as error:
            log.warning("only one store has the positions of %s: %s", ", ".join(f"{t}-{p}" for t, p in uneven), error)

    @property
    def _attached(self) -> GroupOffsets:
        if self._nodes is None:
            raise IllegalState("not connected to ZooKeeper yet: call subscribe() or assign() first")
        return self._nodes

    def _must_hold(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if strange := sorted(set(offsets) - self._holding().claimed):
            named = ", ".join(f"{topic}-{number}" for topic, number in strange)
            raise refusal(
                UNKNOWN_MEMBER_ID, "UNKNOWN_MEMBER_ID", f"{named} is not claimed by this consumer", self._calls.group_id
            )

    async def _check_registered(self, consumer_id: str) -> None:
        assert self._session is not None, "a member has a session"
        if not await self._session.exists(layout.consumer_path(self._calls.group_id, consumer_id)):
            raise ConsumerNotRegistered(f"{consumer_id} is not registered any more; nothing was committed")

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
        except (ConsumerNotRegistered, SessionExpired):
            raise
        except (MalformedZnode, ZooKeeperError) as error:
            raise ZookeeperRefused(str(error)) from error


def choose_further_position(one: OffsetAndMetadata | None, other: OffsetAndMetadata | None) -> OffsetAndMetadata | None:
    """The first one where both are as far: it may have metadata."""
    return other if read_position(other) > read_position(one) else one


def read_position(position: OffsetAndMetadata | None) -> int:
    return -1 if position is None else position.offset
