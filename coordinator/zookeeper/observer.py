"""Watches the groups of the ZooKeeper era, and says what it sees as events of the core.

One task looks at what has changed, one group after the other; however many watches go off meanwhile, the next look
sees them all. Positions are not watched (they change all the time): they are read when somebody asks.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeAlias

import structlog

from muster.coordinator.core.model.observed_events import GroupObserved, GroupUnseen, TopicPartition
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.coordinator.zookeeper.group_watch import ClusterSnapshot, GroupWatch
from muster.coordinator.zookeeper.offsets import GroupOffsets
from muster.coordinator.zookeeper.session import SessionState, WatchEvent, ZooKeeperSession
from muster.coordinator.zookeeper.topics import TopicsWatch

MAX_GROUPS = 1_000
"""Groups that are watched; a node says so when there are more."""
RETRY_S = 0.5

ReportGroup: TypeAlias = Callable[[GroupObserved | GroupUnseen], None]

log = structlog.get_logger("muster.zookeeper")


class GroupHasMembers(ZooKeeperError):
    """The group has members, so what it keeps in ZooKeeper is not to be changed from outside."""


class GroupObserver:
    """All groups below /consumers. `tell` gets an event for every change, on the loop."""

    def __init__(self, session: ZooKeeperSession, tell: ReportGroup) -> None:
        self._session = session
        self._tell = tell
        self._topics = TopicsWatch(session, self._around_changed)
        self._watches: dict[str, GroupWatch] = {}
        self._seen: dict[str, GroupObserved] = {}
        self._around = ClusterSnapshot((), {})
        self._stale: dict[str, None] = {}
        """Groups to look at, in their order: one that changes all the time takes its turn like the others."""
        self._central: set[str] = set()
        self._stale_around = True
        self._look = asyncio.Event()
        self._first = True
        self._left_out = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._session.on_state(self._session_changed)
        self._look.set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def in_touch(self) -> bool:
        return self._session.state is SessionState.CONNECTED

    def knows(self, group_id: str) -> bool:
        return group_id in self._watches

    def tell_again(self, wanted: Callable[[str], bool]) -> None:
        """Say once more how these groups stand: whoever was told has forgotten."""
        for group_id, seen in self._seen.items():
            if wanted(group_id):
                self._tell(replace(seen, renewed=frozenset(), gone_for_ms={}, ended=frozenset(), was_there=True))

    async def positions(self, group_id: str) -> dict[TopicPartition, int]:
        """What the group has committed in ZooKeeper. Raises ZooKeeperError."""

        def malformed(why: str) -> None:
            log.warning("a position cannot be read and counts as none", group=group_id, why=why)

        return await GroupOffsets(self._session, group_id).fetch_all(malformed)

    async def write_positions(self, group_id: str, positions: Mapping[TopicPartition, int]) -> None:
        """Set positions of a group without members. Raises GroupActive, ZooKeeperError."""
        await self._must_be_idle(group_id)
        await GroupOffsets(self._session, group_id).write(positions, registered_as=None)

    async def delete_positions(self, group_id: str, partitions: Collection[TopicPartition]) -> None:
        """Forget positions of a group without members. Raises GroupActive, ZooKeeperError."""
        await self._must_be_idle(group_id)
        for topic, partition in partitions:
            await self._session.delete(layout.offset_path(group_id, topic, partition))

    async def delete(self, group_id: str) -> None:
        """Delete all that ZooKeeper has of a group without members. Raises GroupActive, ZooKeeperError."""
        await self._must_be_idle(group_id)
        await self._session.delete_all(layout.group_path(group_id))
        self._forget(group_id)

    async def _must_be_idle(self, group_id: str) -> None:
        if members := await self._session.children(layout.consumer_ids_path(group_id)):
            raise GroupHasMembers(f"group {group_id!r} has {len(members)} members in ZooKeeper; stop them first")

    async def _run(self) -> None:
        while True:
            await self._look.wait()
            await self._session.connected()
            self._look.clear()
            try:
                await self._look_around()
                await self._look_at_groups()
            except ZooKeeperError as error:
                log.debug("groups in ZooKeeper cannot be looked at now", why=str(error))
                self._look.set()
                await asyncio.sleep(RETRY_S)

    async def _look_around(self) -> None:
        """Brokers, topics, and which groups there are."""
        if not self._stale_around:
            return
        self._stale_around = False
        try:
            brokers = await self._session.children(layout.BROKER_IDS, self._around_fired) or ()
            around = ClusterSnapshot(
                tuple(sorted(int(each) for each in brokers if each.isdigit())), await self._counts()
            )
            groups = await self._consumers_own(await self._session.children(layout.CONSUMERS, self._around_fired) or [])
        except ZooKeeperError:
            self._stale_around = True
            raise
        if around != self._around:
            self._around = around
            self._stale.update(dict.fromkeys(self._watches))
        self._follow(groups)

    async def _consumers_own(self, groups: list[str]) -> list[str]:
        """Without the central groups, which a coordinator shows there and speaks for itself."""
        for group_id in set(groups) - self._watches.keys() - self._central:
            znode = await self._session.get(layout.group_path(group_id))
            if znode is not None and znode.data == layout.CENTRAL_GROUP:
                self._central.add(group_id)
        self._central &= set(groups)
        return [group_id for group_id in groups if group_id not in self._central]

    async def _counts(self) -> dict[str, int]:
        return {name: len(assignment) for name, assignment in (await self._topics.read()).items()}

    def _follow(self, groups: list[str]) -> None:
        """Watch those that are new, up to the limit, and let go of those that are gone."""
        for group_id in self._watches.keys() - set(groups):
            self._forget(group_id)
        fresh = [group_id for group_id in groups if group_id not in self._watches]
        room = MAX_GROUPS - len(self._watches)
        if len(fresh) > room and self._left_out != len(fresh) - room:
            self._left_out = len(fresh) - room
            log.warning("ZooKeeper has more groups than are watched", watched=MAX_GROUPS, left_out=self._left_out)
        for group_id in fresh[:room]:
            self._watches[group_id] = GroupWatch(
                self._session, group_id, self._marking(group_id), was_there=self._first
            )
            self._stale[group_id] = None
        self._first = False

    def _forget(self, group_id: str) -> None:
        self._watches.pop(group_id, None)
        self._stale.pop(group_id, None)
        if self._seen.pop(group_id, None) is not None:
            self._tell(GroupUnseen(group_id))

    async def _look_at_groups(self) -> None:
        while self._stale:
            await self._look_around()  # what members did since may rest on it
            group_id = next(iter(self._stale))
            del self._stale[group_id]
            watch = self._watches.get(group_id)
            if watch is None:
                continue
            try:
                seen = await watch.look(self._around)
            except ZooKeeperError:
                self._stale[group_id] = None
                raise
            if self._watches.get(group_id) is not watch:
                continue  # it was deleted while we looked
            if seen.renewed or seen != self._seen.get(group_id):
                self._tell(seen)
            self._seen[group_id] = seen

    def _marking(self, group_id: str) -> Callable[[], None]:
        def mark() -> None:
            self._stale[group_id] = None
            self._look.set()

        return mark

    def _around_fired(self, fired: WatchEvent) -> None:
        self._around_changed()

    def _around_changed(self) -> None:
        self._stale_around = True
        self._look.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._stale_around = True
            self._stale.update(dict.fromkeys(self._watches))
            self._look.set()
