"""One consumer's part of `/consumers/[group]`: its registration, its ownership of partitions, and committed offsets.

A consumer of the ZooKeeper era registers, reads its group under watches, claims and releases partitions. The rules are
in `muster.client.members`; this module performs them. Every method may raise ConnectionLost and SessionExpired.

An owner is an ephemeral znode per partition, created before the partition is read; what another session owns is never
touched. An offset is a persistent znode per partition with the number in decimal, and has no room for anything else.
Offsets are written 500 to a transaction, which can also check that the consumer is still registered.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from muster.assignors.api import TopicPartition
from muster.client.members.zookeeper_assignment import STATIC, ClaimedShare, ConsumerGroupView, GroupRegistration
from muster.coordinator.zookeeper import errors, layout
from muster.coordinator.zookeeper.session import WatchEvent, ZooKeeperSession

# Ownership of partitions
# -----------------------

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


# Registration and watches
# ------------------------

log = logging.getLogger("muster.client")

GatheredResult = TypeVar("GatheredResult")
MAX_IN_FLIGHT = 500
"""Requests that wait for an answer at once."""
NAME_CHECK_S = 0.1


class ConsumerIdInUse(errors.ZooKeeperError):
    """Another consumer lives under the same `consumer_path.id`."""


class RegisteredConsumer:
    """One consumer's part of `/consumers/[group]`. `fired` is told which watch went off, on the session's loop."""

    def __init__(
        self,
        session: ZooKeeperSession,
        group_id: str,
        fired: Callable[[str], None],
        *,
        name: str | None = None,
        offsets: tuple[str, ...] = layout.ZOOKEEPER_ALONE,
    ) -> None:
        self.notifications = 0
        """Watches that went off so far: what this consumer cost the ensemble in messages nobody asked for."""
        self.owners = OwnershipClaims(session, group_id)
        self.leaders: dict[str, int] = {}
        """topic -> the broker that leads it, as the last `read` found it. A node is a whole log: it leads all of it."""
        self._session = session
        self._group_id = group_id
        self._name = name
        self._offsets = offsets
        self._fired = fired
        self._registration = GroupRegistration({})
        self._ids: list[str] = []
        """Registrations that are, or may be, this session's."""
        self._sessions: set[int] = set()
        """All that this consumer has had."""

    async def prepare(self) -> None:
        """Make the directories that every consumer of that era makes if they are not there."""
        for path in (
            layout.BROKER_IDS,
            layout.BROKER_TOPICS,
            layout.consumer_ids_path(self._group_id),
            layout.owners_path(self._group_id),
            layout.offsets_path(self._group_id),
        ):
            await self._session.ensure(path)

    async def register(self, registration: GroupRegistration) -> str:
        """The id of this session's one registration. Raises ConsumerIdInUse when `consumer_path.id` stays taken for two
        sessions.

        ZooKeeper tells whose session holds a name, and not whether a process is behind it: that of one that died holds
        it until its timeout. What an earlier session of this consumer left behind is taken over at once.
        """
        self._registration = registration
        await self._unregister()
        at_ms = time.time_ns() // 1_000_000
        made = layout.new_consumer_id(self._group_id, socket.gethostname(), at_ms, uuid4().hex)
        consumer_id = f"{self._group_id}_{self._name}" if self._name else made
        self._ids.append(consumer_id)
        path = layout.consumer_path(self._group_id, consumer_id)
        body = layout.ConsumerZnode(registration.subscription, registered_pattern(registration), at_ms, self._offsets)
        self._sessions.add(self._session.id)
        clock = asyncio.get_running_loop()
        patience_s, told = self._session.session_timeout_ms / 1000 * 2, False
        deadline = clock.time() + patience_s
        while True:
            try:
                await self._session.create(path, body.to_json(), ephemeral=True)
                return consumer_id
            except errors.NodeExists:
                node = await self._session.get(path)
                if node is not None and node.owner == self._session.id:
                    return consumer_id  # The answer to an earlier attempt was lost.
                if node is not None and node.owner in self._sessions:
                    await self._session.delete(path)
                    continue
            # The session of a process that died may hold the name a little longer.
            if not told:
                told = True
                log.warning(
                    "%s is registered in group %r by another session: either by a consumer that lives, or by one that "
                    "has just died; waiting up to %.0f s for it to go",
                    consumer_id,
                    self._group_id,
                    patience_s,
                )
            if clock.time() >= deadline:
                raise ConsumerIdInUse(
                    f"{consumer_id} is registered in group {self._group_id!r} by another session; give each consumer "
                    "a consumer.id of its own, or leave it out"
                )
            await asyncio.sleep(NAME_CHECK_S)

    async def read(self, afresh: bool) -> ConsumerGroupView:
        """Members, brokers and partition counts, with a watch on each list. Raises MalformedZnode.

        The lists are watched before what is in them is read, so that nothing changes unnoticed.
        """
        if afresh:
            await self._session.sync(layout.group_path(self._group_id))
        ids, brokers = await asyncio.gather(
            self._session.children(layout.consumer_ids_path(self._group_id), self._members_changed),
            self._session.children(layout.BROKER_IDS, self._brokers_changed),
        )
        found = await gather_bounded(ids or (), self._member)
        members = {consumer_id: registration for consumer_id, registration in found if registration is not None}
        self.leaders = {}
        counts = await gather_bounded(await self._topics(members.values()), self._count)
        return ConsumerGroupView(
            members,
            {topic: count for topic, count in counts if count},
            tuple(sorted(int(each) for each in brokers or () if layout.is_decimal(each))),
        )

    async def claim(self, consumer_id: str, share: ClaimedShare) -> tuple[dict[TopicPartition, str], int]:
        """Who holds what could not be claimed, and the number of the newest claim that could."""
        return await self.owners.claim(consumer_id, share)

    async def withdraw(self, partitions: Iterable[TopicPartition]) -> None:
        """Claims first, so that whoever hears that the consumer went finds nothing of it any more."""
        await self.owners.release(partitions)
        await self._unregister()

    async def _unregister(self) -> None:
        """Those of an earlier session are none of this one's business."""
        for consumer_id in list(self._ids):
            path = layout.consumer_path(self._group_id, consumer_id)
            node = await self._session.get(path)
            if node is not None and node.owner == self._session.id:
                await self._session.delete(path)
            self._ids.remove(consumer_id)

    async def _member(self, consumer_id: str) -> tuple[str, GroupRegistration | None]:
        """None when it went between the list and this."""
        path = layout.consumer_path(self._group_id, consumer_id)
        node = await self._session.get(path)
        if node is None:
            return consumer_id, None
        body = layout.read_consumer(path, node.data)
        return consumer_id, GroupRegistration(dict(body.subscription), body.pattern)

    async def _topics(self, registrations: Iterable[GroupRegistration]) -> list[str]:
        """The topics whose partition counts anybody's share depends on."""
        named = {topic for each in registrations if each.pattern == STATIC for topic in each.subscription}
        if all(each.pattern == STATIC for each in registrations):
            return sorted(named)
        watch = self._topics_changed if self._registration.pattern != STATIC else None
        return sorted(named | set(await self._session.children(layout.BROKER_TOPICS, watch) or ()))

    async def _count(self, topic: str) -> tuple[str, int]:
        """How many partitions a topic has, 0: there is none. Watched when this consumer may read it."""
        mine = self._registration.pattern != STATIC or topic in self._registration.subscription
        watch = self._partitions_changed if mine else None
        path = layout.topic_path(topic)
        try:
            node = await self._session.get(path, watch)
        except ValueError:
            return topic, 0  # Somebody subscribes to what no znode can be called, such as `..`.
        if node is None and watch is not None and await self._session.exists(path, watch):
            node = await self._session.get(path)
        if node is None:
            return topic, 0
        assignment = layout.read_topic(path, node.data)
        if (leader := next((replicas[0] for replicas in assignment.values() if replicas), None)) is not None:
            self.leaders[topic] = leader
        return topic, len(assignment)

    # Watches. One method each, because kazoo tells watches apart by what they call.

    def _members_changed(self, event: WatchEvent) -> None:
        self._report_watch("members", event)

    def _brokers_changed(self, event: WatchEvent) -> None:
        self._report_watch("brokers", event)

    def _topics_changed(self, event: WatchEvent) -> None:
        self._report_watch("topics", event)

    def _partitions_changed(self, event: WatchEvent) -> None:
        self._report_watch("partitions", event)

    def _report_watch(self, what: str, event: WatchEvent) -> None:
        if event.kind == "session":
            what = "session"
        else:
            self.notifications += 1
        self._fired(what)


def registered_pattern(registration: GroupRegistration) -> layout.Pattern:
    known: Mapping[str, layout.Pattern] = {each: each for each in layout.PATTERNS}
    return known[registration.pattern]


async def gather_bounded(
    names: Iterable[Any], read: Callable[[Any], Awaitable[GatheredResult]]
) -> list[GatheredResult]:
    """All of them, a limited number at once."""
    wanted, found = list(names), list[GatheredResult]()
    for start in range(0, len(wanted), MAX_IN_FLIGHT):
        found += await asyncio.gather(*(read(name) for name in wanted[start : start + MAX_IN_FLIGHT]))
    return found


# Committed offsets
# -----------------

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
        that slept through its session's end cannot overwrite its successor. Raises ConsumerNotRegistered then.
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
