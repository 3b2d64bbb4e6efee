"""What a consumer of the ZooKeeper era does in ZooKeeper: registers, reads its group under watches, claims, releases.

The rules are `muster.client.members.zookeeper_machine`'s; here they are performed. Every method may
raise ConnectionLost and SessionExpired.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar
from uuid import uuid4

from muster.client.members.types import TopicPartition
from muster.client.members.zookeeper_types import STATIC, ClaimedShare, ConsumerGroupView, GroupRegistration
from muster.coordinator.zookeeper import errors, layout
from muster.coordinator.zookeeper.owners import OwnershipClaims
from muster.coordinator.zookeeper.session import WatchEvent, ZooKeeperSession

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
        """The id of this session's one registration. Raises IdInUse when `consumer_path.id` stays taken for two
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
        self._tell("members", event)

    def _brokers_changed(self, event: WatchEvent) -> None:
        self._tell("brokers", event)

    def _topics_changed(self, event: WatchEvent) -> None:
        self._tell("topics", event)

    def _partitions_changed(self, event: WatchEvent) -> None:
        self._tell("partitions", event)

    def _tell(self, what: str, event: WatchEvent) -> None:
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
