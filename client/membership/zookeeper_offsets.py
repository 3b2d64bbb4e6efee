"""Positions of a ZooKeeper-based group: kept in ZooKeeper, at the coordinator or in both, and migrated from one to the
other.

Implements `offsets.storage` and `dual.commit.enabled`. A migration copies only positions that are missing or behind
in the target.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from muster.client.calls.group_calls import GroupCalls
from muster.client.config import ConsumerConfig
from muster.client.described import GroupDescription
from muster.client.errors import ClientError, GroupNotFound, IllegalState, ZookeeperAway, ZookeeperRefused, refusal
from muster.client.members.coordinator_link import Backoff
from muster.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.consumer_group import ConsumerNotRegistered, GroupOffsets
from muster.coordinator.zookeeper.errors import (
    ConnectionLost,
    MalformedZnode,
    SessionExpired,
    ZooKeeperError,
    ZooKeeperUnreachable,
)
from muster.coordinator.zookeeper.session import ZooKeeperSession

# Positions
# ---------

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

    def forget_start(self) -> None:
        """Nothing is kept: each question is asked."""

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


# Migration
# ---------

NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND = 68, 69
ROUNDS = 5
"""How often to look again while members go on committing."""

Store = Literal["zookeeper", "kafka"]
Describe = Callable[[str], Awaitable[GroupDescription]]
Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class MovedOffset:
    """One position that is, or would be, copied. `before` is what the other store had, None: nothing."""

    partition: TopicPartition
    offset: int
    before: int | None


async def migrate_offsets(
    describe: Describe, calls: GroupCalls, connect: str, to: Store, *, timeout_ms: int, dry_run: bool
) -> list[MovedOffset]:
    """What was copied, by partition; positions that the other store has already, or further on, are left alone.

    Raises GroupNotEmpty while members commit elsewhere, GroupNotFound when there is nothing to copy from.
    """
    try:
        session = ZooKeeperSession(connect, connection_timeout_ms=timeout_ms)
        await session.open(make_chroot=False)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await OffsetMigration(describe, calls, session, to).run(dry_run)
        finally:
            await session.close()
    except (ZooKeeperUnreachable, TimeoutError) as error:
        raise ZookeeperAway(str(error) or f"ZooKeeper at {connect} did not answer within {timeout_ms} ms") from error
    except (ZooKeeperError, MalformedZnode) as error:
        raise ZookeeperRefused(str(error)) from error


class OffsetMigration:
    """One group between its two stores."""

    def __init__(self, describe: Describe, calls: GroupCalls, session: ZooKeeperSession, to: Store) -> None:
        self._describe = describe
        self._calls = calls
        self._session = session
        self._group = calls.group_id
        self._nodes = GroupOffsets(session, self._group)
        self._to = to
        self._said = set[str]()

    async def run(self, dry_run: bool) -> list[MovedOffset]:
        await self._check_members()
        source, target = await self._both()
        if not source:
            store = "ZooKeeper" if self._to == "kafka" else "the coordinator"
            raise refusal(
                GROUP_ID_NOT_FOUND, "GROUP_ID_NOT_FOUND", f"{store} has no positions of group {self._group!r}"
            )
        first = find_positions_behind(source, target)
        if dry_run:
            return [MovedOffset(tp, offset, target.get(tp)) for tp, offset in first.items()]
        before, moved = dict(target), dict(first)
        for _ in range(ROUNDS):
            if not (late := find_positions_behind(source, target)):
                break
            await self._write(late)
            moved |= late
            source, target = await self._both()
        return [MovedOffset(tp, moved[tp], before.get(tp)) for tp in sorted(moved)]

    async def _check_members(self) -> None:
        """Whoever reads may commit to both stores, or must be stopped: its next commit would go past what is copied."""
        ids = await self._session.children(layout.consumer_ids_path(self._group)) or []
        for consumer_id in ids:
            path = layout.consumer_path(self._group, consumer_id)
            node = await self._session.get(path)
            if node is not None and self._to not in layout.read_consumer(path, node.data).offsets:
                raise self._active(
                    f"{consumer_id} does not commit to {self._to}; stop the group, or restart its members one by one "
                    "with dual.commit.enabled=true first"
                )
        try:
            described = await self._describe(self._group)
        except GroupNotFound:
            return
        if others := [member.member_id for member in described.members if member.member_id not in ids]:
            if described.protocol_type == "zookeeper":
                raise self._active(
                    f"{len(others)} member(s) meet in ZooKeeper, {others[0]} among them, but not under "
                    f"{self._session.connect}; expected what the node has in its zookeeper.connect"
                )
            raise self._active(
                f"{len(others)} member(s) speak to the coordinator, {others[0]} among them; stop them first "
                f"(muster groups members {self._group})"
            )

    def _malformed(self, why: str) -> None:
        if why not in self._said:
            self._said.add(why)
            log.warning("a position counts as none: %s", why)

    def _active(self, why: str) -> Exception:
        return refusal(NON_EMPTY_GROUP, "NON_EMPTY_GROUP", f"group {self._group!r} is active: {why}")

    async def _both(self) -> tuple[Offsets, Offsets]:
        """(where from, where to)"""
        in_nodes = {
            TopicPartition(*tp): offset for tp, offset in (await self._nodes.fetch_all(self._malformed)).items()
        }
        kept = await self._calls.committed(None)
        in_log = {tp: position.offset for tp, position in kept.items() if position is not None}
        return (in_nodes, in_log) if self._to == "kafka" else (in_log, in_nodes)

    async def _write(self, offsets: Offsets) -> None:
        if self._to == "zookeeper":
            await self._nodes.write({(tp.topic, tp.partition): offset for tp, offset in offsets.items()}, None)
            return
        positions = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}
        await self._calls.commit(positions, None)


def find_positions_behind(source: Mapping[TopicPartition, int], target: Mapping[TopicPartition, int]) -> Offsets:
    """The positions that the target does not have yet.

    >>> t = [TopicPartition("t", number) for number in range(3)]
    >>> find_positions_behind({t[0]: 5, t[1]: 5, t[2]: 5}, {t[0]: 5, t[1]: 9, t[2]: 4})
    {TopicPartition(topic='t', partition=2): 5}
    """
    return {tp: offset for tp, offset in sorted(source.items()) if target.get(tp, -1) < offset}
