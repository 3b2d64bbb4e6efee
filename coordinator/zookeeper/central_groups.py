"""Publishes the owners and offsets of central groups in ZooKeeper, where the tools of that era look for them, and knows
which other nodes would take these groups over.

The coordinator's log is authoritative. This is a copy, written afterwards by the node that coordinates the groups;
owners are ephemeral and disappear with its session.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from muster.assignors.api import TopicPartition
from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.consumer_group import GroupOffsets, chunk_partitions, gather_bounded
from muster.coordinator.zookeeper.errors import MalformedZnode, NodeExists, NoNode, ZooKeeperError
from muster.coordinator.zookeeper.session import SessionState, WatchEvent, ZooKeeperSession

# Nodes that can take over
# ------------------------

NAMED_GROUPS = 5
NAMED_TOPICS = 5


class NeighbourWatch:
    """The other nodes that stand for coordinator on this ensemble. They share no log with this one."""

    def __init__(self, session: ZooKeeperSession, node_id: int) -> None:
        self._session = session
        self._node_id = node_id
        self._stale = True
        self._known: tuple[int, ...] = ()

    async def read(self) -> tuple[int, ...]:
        """Their ids, as ZooKeeper shows them now, or showed them last. A request only where something has changed."""
        if not self._stale or self._session.state is not SessionState.CONNECTED:
            return self._known
        self._stale = False
        try:
            names = await self._session.children(layout.BROKER_IDS, self._fired) or ()
            found = await gather_bounded([each for each in names if each != str(self._node_id)], self._read_one)
        except ZooKeeperError as error:
            self._stale = True
            log.debug("the nodes beside this one cannot be read now", why=str(error))
            return self._known
        self._known = tuple(sorted(each for each in found if each is not None))
        return self._known

    async def _read_one(self, name: str) -> int | None:
        """None of what is no node of Muster: no other program stands for coordinator."""
        path = f"{layout.BROKER_IDS}/{name}"
        znode = await self._session.get(path)
        try:
            broker = None if znode is None else layout.read_broker(path, znode.data)
        except MalformedZnode:
            return None
        return int(name) if broker is not None and broker.grpc is not None and name.isdigit() else None

    def _fired(self, fired: WatchEvent) -> None:
        self._stale = True


def explain_takeover(groups: Mapping[str, Collection[str]], neighbours: Sequence[int]) -> str:
    """What a take-over would cost the central groups of this node. groups: the topics of each.

    >>> explain_takeover({"billing": ["orders"]}, [2, 3])  # doctest: +ELLIPSIS
    'if this node fails, node 2 or 3 takes over its central groups: billing (orders). It finds their members, but ...'
    """
    named = "; ".join(
        f"{group_id} ({list_some(sorted(groups[group_id]), NAMED_TOPICS)})"
        for group_id in sorted(groups)[:NAMED_GROUPS]
    )
    more = f" and {len(groups) - NAMED_GROUPS} more" if len(groups) > NAMED_GROUPS else ""
    return (
        f"if this node fails, node {' or '.join(map(str, neighbours))} takes over its central groups: {named}{more}. "
        "It finds their members, but it has a log of its own: it has none of their records and positions, and assigns "
        "these topics only if it has topics of the same names. To keep it from taking over, give each node a chroot of "
        "its own in zookeeper.connect; to let it go on with the records, make the nodes a cluster "
        "(inter.broker.listeners)"
    )


def list_some(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


# Published groups
# ----------------

RETRY_S = 0.5
ONLY_STREAM = 0
"""A central member has one, and owner entries number a consumer's streams."""

log = structlog.get_logger("muster.zookeeper")


@dataclass(frozen=True, slots=True)
class PublishedCentralGroup:
    """`owners` by member id."""

    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


class CentralGroupPublisher:
    """Writes the latest that it was told of each group; owners are ephemeral, and go with the session."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._wanted: dict[str, PublishedCentralGroup] = {}
        self._written: dict[str, PublishedCentralGroup] = {}
        self._stale: set[str] = set()
        self._refused: set[str] = set()
        """Groups of consumers of that era, under the same name: not touched, and said once."""
        self._session_id = 0
        self._look = asyncio.Event()
        self._running = RestartedTask("central groups in ZooKeeper", self._run)

    def start(self) -> None:
        self._session.on_state(self._session_changed)
        self._session_id = self._session.id
        self._running.start()

    async def stop(self) -> None:
        await self._running.stop()

    def publish(self, groups: Mapping[str, PublishedCentralGroup]) -> None:
        """These are all central groups there are."""
        changed = {group_id for group_id, state in groups.items() if self._wanted.get(group_id) != state}
        changed |= self._wanted.keys() - groups.keys()
        self._wanted = dict(groups)
        self._stale |= changed
        if changed:
            self._look.set()

    async def _run(self) -> None:
        self._stale |= self._wanted.keys() | self._written.keys()
        self._look.set()
        while True:
            await self._look.wait()
            await self._session.connected()
            self._look.clear()
            try:
                while self._stale:
                    group_id = min(self._stale)
                    # Before it is written: what is published meanwhile makes it stale anew.
                    self._stale.discard(group_id)
                    await self._write(group_id, self._wanted.get(group_id))
            except ZooKeeperError as error:
                self._stale.add(group_id)
                log.debug("central groups cannot be published now", why=str(error))
                self._look.set()
                await asyncio.sleep(RETRY_S)

    async def _write(self, group_id: str, state: PublishedCentralGroup | None) -> None:
        before, session_id = self._written.get(group_id, PublishedCentralGroup()), self._session_id
        if not await self._is_ours(group_id):
            return
        if state is None:
            await self._session.delete_all(layout.group_path(group_id))
            self._written.pop(group_id, None)
            return
        for some in chunk_partitions(sorted(before.owners.keys() - state.owners.keys())):
            await asyncio.gather(*(self._session.delete(layout.owner_path(group_id, *tp)) for tp in some))
        fresh = [tp for tp, member in state.owners.items() if before.owners.get(tp) != member]
        for some in chunk_partitions(sorted(fresh)):
            await asyncio.gather(*(self._own(group_id, tp, state.owners[tp]) for tp in some))
        moved = {tp: offset for tp, offset in state.offsets.items() if before.offsets.get(tp) != offset}
        if moved:
            await GroupOffsets(self._session, group_id).write(moved, registered_as=None)
        if session_id == self._session_id:
            # Otherwise the owners among it have gone already.
            self._written[group_id] = state

    async def _is_ours(self, group_id: str) -> bool:
        """Whether the name is free, or was published before."""
        path = layout.group_path(group_id)
        try:
            await self._session.create(path, layout.CENTRAL_GROUP)
        except NodeExists:
            znode = await self._session.get(path)
            if znode is not None and znode.data != layout.CENTRAL_GROUP:
                if group_id not in self._refused:
                    self._refused.add(group_id)
                    log.warning(
                        "consumers have a group of that name in ZooKeeper; the central group is not published",
                        group=group_id,
                    )
                return False
        return True

    async def _own(self, group_id: str, tp: TopicPartition, member_id: str) -> None:
        path, text = layout.owner_path(group_id, *tp), layout.owner_text(member_id, ONLY_STREAM)
        try:
            await self._session.create(path, text, ephemeral=True)
        except NodeExists:
            znode = await self._session.get(path)
            if znode is not None and znode.owner == self._session.id:
                try:
                    await self._session.put(path, text)
                except NoNode:
                    await self._session.create(path, text, ephemeral=True)
                return
            # Of a coordinator before this one: its session has not ended yet.
            await self._session.delete(path)
            await self._session.create(path, text, ephemeral=True)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self._session.id != self._session_id:
            # What was ephemeral went with the old session.
            self._session_id = self._session.id
            self._written.clear()
            self._stale |= self._wanted.keys()
            self._look.set()
