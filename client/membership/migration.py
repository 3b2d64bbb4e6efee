"""Copies a group's positions from ZooKeeper to its coordinator, or back, where the other store is behind."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from muster.client.calls.group_calls import GroupCalls
from muster.client.described import GroupDescription
from muster.client.errors import GroupNotFound, ZookeeperAway, ZookeeperRefused, refusal
from muster.client.types import OffsetAndMetadata, TopicPartition
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.errors import MalformedZnode, ZooKeeperError, ZooKeeperUnreachable
from muster.coordinator.zookeeper.offsets import GroupOffsets
from muster.coordinator.zookeeper.session import ZooKeeperSession

log = logging.getLogger("muster.client")

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
