"""What operators and tools leave in ZooKeeper for the controller, and what a node takes from there: producer ids."""

from collections.abc import Callable

from muster.coordinator.replication.protocol.controller import effects, events
from muster.coordinator.replication.protocol.controller.effects import AdminMarker
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.cluster.reading import ReportUnreadable
from muster.coordinator.zookeeper.consumer import gather_bounded
from muster.coordinator.zookeeper.errors import BadVersion, MalformedZnode, NodeExists, ZooKeeperError
from muster.coordinator.zookeeper.session import WatchEvent, Znode, ZooKeeperSession

CONFIG_CHANGE_RETENTION_MS = 15 * 60 * 1_000
"""How long a change of settings stays to be read."""
LAST_PRODUCER_ID = 2**63 - 1

MARKER_PATHS = {
    AdminMarker.PREFERRED: paths.PREFERRED_REPLICA_ELECTION,
    AdminMarker.UNCLEAN: cluster_layout.UNCLEAN_ELECTION,
    AdminMarker.REASSIGN: cluster_layout.REASSIGN_PARTITIONS,
}


class ProducerIdsExhausted(Exception):
    """All 2^63 are taken."""


class AdminRequestWatch:
    """What is asked for in `/admin`, and beside. `changed` is called when there may be something new."""

    def __init__(self, session: ZooKeeperSession, changed: Callable[[], None], warn: ReportUnreadable) -> None:
        self._session = session
        self._changed = changed
        self._warn = warn
        self._seen: dict[AdminMarker, Znode] = {}

    async def read(self) -> list[events.ControllerEvent]:
        """Topics to delete, all there are; what else is asked for, once each. Raises ZooKeeper's weather."""
        found: list[events.ControllerEvent] = []
        if (preferred := await self._new(AdminMarker.PREFERRED)) is not None:
            found.append(events.ElectLeadersRequested(None, cluster_layout.read_preferred(*preferred)))
        if (unclean := await self._new(AdminMarker.UNCLEAN)) is not None:
            found.append(
                events.ElectLeadersRequested(None, cluster_layout.read_preferred(*unclean), events.ElectionType.UNCLEAN)
            )
        if (reassign := await self._new(AdminMarker.REASSIGN)) is not None:
            found.append(events.ReassignmentRequested(None, cluster_layout.read_reassignment(*reassign)))
        names = await self._session.children(paths.DELETE_TOPICS, self._list_fired)
        if names:
            found.append(events.TopicDeletionsRead(tuple(names)))
        return found

    async def remove(self, wanted: effects.RemoveMarker) -> None:
        """It was taken in. Of one that was replaced meanwhile, only what was read goes."""
        if wanted.marker is AdminMarker.DELETE:
            await self._session.delete(paths.topic_deletion_path(wanted.name))
        else:
            await self._drop(wanted.marker)

    async def _new(self, marker: AdminMarker) -> tuple[str, bytes] | None:
        path = MARKER_PATHS[marker]
        found = None
        if await self._session.exists(path, self._data_fired):
            found = await self._session.get(path)
        if found is None:
            self._seen.pop(marker, None)
            return None
        if found == self._seen.get(marker):
            return None
        self._seen[marker] = found
        try:
            (cluster_layout.read_reassignment if marker is AdminMarker.REASSIGN else cluster_layout.read_preferred)(
                path, found.data
            )
        except MalformedZnode as error:
            # It would keep others from asking: tools wait until nothing is there.
            self._warn(f"what is asked for cannot be read, and is removed: {error}")
            await self._drop(marker)
            return None
        return path, found.data

    async def _drop(self, marker: AdminMarker) -> None:
        """What was read of it. Versions begin anew with each znode that is made: by its version alone one that somebody
        has left in its place, after a removal whose answer was lost, would go unread."""
        path, seen = MARKER_PATHS[marker], self._seen.get(marker)
        await self._session.sync(path)
        found = await self._session.get(path)
        if seen is None or found is None:
            return
        if (found.made, found.version) != (seen.made, seen.version):
            self._changed()
            return
        try:
            await self._session.delete(path, seen.version)
        except BadVersion:
            self._changed()

    def _list_fired(self, fired: WatchEvent) -> None:
        self._changed()

    def _data_fired(self, fired: WatchEvent) -> None:
        self._changed()


class DrainedNodeWatch:
    """`/muster/cluster/drained`, read again when it has changed. `changed` is called when it has."""

    def __init__(self, session: ZooKeeperSession, changed: Callable[[], None]) -> None:
        self._session = session
        self._changed = changed
        self._stale = True

    async def read(self) -> events.DrainedNodesRead | None:
        """All that are drained; None where nothing is new. Raises ZooKeeper's weather."""
        if not self._stale:
            return None
        self._stale = False
        try:
            names = await self._session.children(cluster_layout.DRAINED, self._fired) or ()
        except ZooKeeperError:
            self._stale = True
            raise
        return events.DrainedNodesRead(frozenset(int(name) for name in names if paths.is_decimal(name)))

    def _fired(self, fired: WatchEvent) -> None:
        self._stale = True
        self._changed()


class ConfigChangeWatch:
    """`/config/changes`: whose settings have changed. What was there at the first look is told, too."""

    def __init__(
        self, session: ZooKeeperSession, changed: Callable[[], None], warn: ReportUnreadable, wall_ms: Callable[[], int]
    ) -> None:
        self._session = session
        self._changed = changed
        self._warn = warn
        self._wall_ms = wall_ms
        self._made_ms: dict[str, int] = {}
        """By name of the znode, when it was made."""
        self._news: set[tuple[str, str]] = set()

    async def read(self) -> set[tuple[str, str]]:
        """(`topics` or `brokers`, name) of what has changed since the last look. Removes what has been there for 15
        minutes. Raises ZooKeeper's weather; nothing is missed by that."""
        names = await self._session.children(cluster_layout.CONFIG_CHANGES, self._fired) or []
        for name in self._made_ms.keys() - set(names):
            del self._made_ms[name]
        await gather_bounded((name for name in names if name not in self._made_ms), self._one)
        too_old_ms = self._wall_ms() - CONFIG_CHANGE_RETENTION_MS
        for name in [name for name, made_ms in self._made_ms.items() if made_ms <= too_old_ms]:
            await self._session.delete(f"{cluster_layout.CONFIG_CHANGES}/{name}")
            self._made_ms.pop(name, None)
        news, self._news = self._news, set()
        return news

    async def _one(self, name: str) -> None:
        path = f"{cluster_layout.CONFIG_CHANGES}/{name}"
        znode = await self._session.get(path)
        if znode is None:
            return
        self._made_ms[name] = znode.created_ms
        try:
            self._news.add(
                cluster_layout.parse_config_entity(path, cluster_layout.read_config_change(path, znode.data))
            )
        except MalformedZnode as error:
            self._warn(f"a change of settings is passed over: {error}")

    def _fired(self, fired: WatchEvent) -> None:
        self._changed()


async def take_producer_ids(session: ZooKeeperSession, node_id: int) -> cluster_layout.ProducerIdBlock:
    """The next block of producer ids, for this node alone (CL-A4). One whose answer was lost is taken all the same, and
    used by nobody. Raises ConnectionLost, SessionExpired, MalformedZnode, NoProducerIds."""
    path = cluster_layout.PRODUCER_ID_BLOCK
    while True:
        found = await session.get(path)
        taken = None if found is None else cluster_layout.read_producer_ids(path, found.data)
        block = cluster_layout.ProducerIdBlock.after(taken, node_id)
        if block.last > LAST_PRODUCER_ID:
            raise ProducerIdsExhausted(
                f"{path} says that producer ids up to {block.first - 1} are taken; there are no more"
            )
        try:
            if found is None:
                await session.create(path, block.to_json())
            else:
                await session.put(path, block.to_json(), found.version)
        except (NodeExists, BadVersion):
            continue  # another node was faster: the block after its own
        return block
