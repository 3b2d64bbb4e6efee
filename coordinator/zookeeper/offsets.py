"""Offsets of a group in ZooKeeper: one persistent znode per partition, the offset in decimal."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from muster.client.members.types import TopicPartition
from muster.coordinator.zookeeper import errors, layout
from muster.coordinator.zookeeper.consumer import gather_bounded
from muster.coordinator.zookeeper.session import ZooKeeperSession

MAX_IN_TRANSACTION = 500
WRITE_ATTEMPTS = 3


class ConsumerNotRegistered(errors.ZooKeeperError):
    """The consumer that commits is not registered any more: its partitions may be somebody else's."""


class GroupOffsets:
    """Positions of one group as the tools of that era read and write them. There is room for an offset, no more."""

    def __init__(self, session: ZooKeeperSession, group_id: str) -> None:
        self._session = session
        self._group_id = group_id
        self._there: set[TopicPartition] = set()
        """Partitions whose znode was seen to be there."""

    async def fetch(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """None where nothing is committed. Raises MalformedZnode."""
        return dict(await gather_bounded(partitions, self._fetch_one))

    async def fetch_all(self, malformed: Callable[[str], None]) -> dict[TopicPartition, int]:
        """Everything the group has committed, by partition. `malformed` is told of what cannot be read: it counts as
        nothing, so that whoever asks can put something better in its place."""

        async def fetch_one(tp: TopicPartition) -> tuple[TopicPartition, int | None]:
            try:
                return await self._fetch_one(tp)
            except errors.MalformedZnode as error:
                malformed(str(error))
                return tp, None

        topics = await self._session.children(layout.offsets_path(self._group_id)) or []
        found = await gather_bounded(topics, self._numbers)
        partitions = [(topic, number) for topic, numbers in found for number in numbers]
        kept = await gather_bounded(sorted(partitions), fetch_one)
        return {tp: offset for tp, offset in kept if offset is not None}

    async def write(self, offsets: Mapping[TopicPartition, int], registered_as: str | None) -> None:
        """Write them, all or none of each 500.

        With `registered_as`, only while that registration stands: the check is part of the transaction, so a consumer
        that slept through its session's end cannot overwrite its successor. Raises NotRegistered then.
        """
        wanted = sorted(offsets)
        for start in range(0, len(wanted), MAX_IN_TRANSACTION):
            some = wanted[start : start + MAX_IN_TRANSACTION]
            await self._write_some({tp: offsets[tp] for tp in some}, registered_as)

    async def _write_some(self, offsets: Mapping[TopicPartition, int], registered_as: str | None) -> None:
        """One transaction; again when a znode came or went since it was looked for."""
        registration = layout.consumer_path(self._group_id, registered_as) if registered_as else None
        for attempt in range(WRITE_ATTEMPTS):
            await gather_bounded([tp for tp in sorted(offsets) if tp not in self._there], self._look_for)

            def build(transaction: Any) -> None:
                if registration is not None:
                    transaction.check(registration, -1)
                for tp, offset in offsets.items():
                    # Made with its content: a tool that finds an empty one would stumble.
                    put = transaction.set_data if tp in self._there else transaction.create
                    put(layout.offset_path(self._group_id, *tp), layout.offset_text(offset))

            try:
                await self._session.commit(build)
                self._there |= set(offsets)
                return
            except (errors.NoNode, errors.NodeExists) as error:
                if registration is not None and not await self._session.exists(registration):
                    raise ConsumerNotRegistered(
                        f"{registered_as} is not registered in group {self._group_id!r} any more: its session expired, "
                        "or somebody deleted its node; nothing was committed"
                    ) from error
                self._there -= set(offsets)
                if attempt + 1 == WRITE_ATTEMPTS:
                    raise

    async def _look_for(self, tp: TopicPartition) -> None:
        path = layout.offset_path(self._group_id, *tp)
        if await self._session.exists(path):
            self._there.add(tp)
        else:
            await self._session.ensure(layout.topic_offsets_path(self._group_id, tp[0]))

    async def _fetch_one(self, tp: TopicPartition) -> tuple[TopicPartition, int | None]:
        path = layout.offset_path(self._group_id, *tp)
        node = await self._session.get(path)
        return tp, None if node is None else layout.read_offset(path, node.data)

    async def _numbers(self, topic: str) -> tuple[str, Iterable[int]]:
        names = await self._session.children(layout.topic_offsets_path(self._group_id, topic)) or []
        return topic, sorted(int(name) for name in names if layout.is_decimal(name))
