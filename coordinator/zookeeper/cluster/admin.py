"""What operators and tools leave in ZooKeeper for the controller, and what a node takes from there: producer ids."""

from collections.abc import Callable

from muster.coordinator.cluster.controller import effects, events
from muster.coordinator.cluster.controller.effects import Marker
from muster.coordinator.zookeeper import paths
from muster.coordinator.zookeeper.cluster import layout
from muster.coordinator.zookeeper.cluster.reading import Warn
from muster.coordinator.zookeeper.connect import Fired, Session, Znode
from muster.coordinator.zookeeper.consumer import at_most
from muster.coordinator.zookeeper.errors import BadVersion, MalformedZnode, NodeExists, ZooKeeperError

CHANGES_MS = 15 * 60 * 1_000
"""How long a change of settings stays to be read."""
LAST_PRODUCER_ID = 2**63 - 1

PATH_OF = {
    Marker.PREFERRED: paths.PREFERRED_REPLICA_ELECTION,
    Marker.UNCLEAN: layout.UNCLEAN_ELECTION,
    Marker.REASSIGN: layout.REASSIGN_PARTITIONS,
}


class NoProducerIds(Exception):
    """All 2^63 are taken."""


class Markers:
    """What is asked for in `/admin`, and beside. `changed` is called when there may be something new."""

    def __init__(self, session: Session, changed: Callable[[], None], warn: Warn) -> None:
        self._session = session
        self._changed = changed
        self._warn = warn
        self._seen: dict[Marker, Znode] = {}

    async def read(self) -> list[events.Event]:
        """Topics to delete, all there are; what else is asked for, once each. Raises ZooKeeper's weather."""
        found: list[events.Event] = []
        if (preferred := await self._new(Marker.PREFERRED)) is not None:
            found.append(events.ElectLeaders(None, layout.read_preferred(*preferred)))
        if (unclean := await self._new(Marker.UNCLEAN)) is not None:
            found.append(events.ElectLeaders(None, layout.read_preferred(*unclean), events.Election.UNCLEAN))
        if (reassign := await self._new(Marker.REASSIGN)) is not None:
            found.append(events.Reassign(None, layout.read_reassignment(*reassign)))
        names = await self._session.children(paths.DELETE_TOPICS, self._list_fired)
        if names:
            found.append(events.DeleteTopics(tuple(names)))
        return found

    async def remove(self, wanted: effects.Remove) -> None:
        """It was taken in. Of one that was replaced meanwhile, only what was read goes."""
        if wanted.marker is Marker.DELETE:
            await self._session.delete(paths.delete_topic(wanted.name))
        else:
            await self._drop(wanted.marker)

    async def _new(self, marker: Marker) -> tuple[str, bytes] | None:
        path = PATH_OF[marker]
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
            (layout.read_reassignment if marker is Marker.REASSIGN else layout.read_preferred)(path, found.data)
        except MalformedZnode as error:
            # It would keep others from asking: tools wait until nothing is there.
            self._warn(f"what is asked for cannot be read, and is removed: {error}")
            await self._drop(marker)
            return None
        return path, found.data

    async def _drop(self, marker: Marker) -> None:
        """What was read of it. Versions begin anew with each znode that is made: by its version alone one that somebody
        has left in its place, after a removal whose answer was lost, would go unread."""
        path, seen = PATH_OF[marker], self._seen.get(marker)
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

    def _list_fired(self, fired: Fired) -> None:
        self._changed()

    def _data_fired(self, fired: Fired) -> None:
        self._changed()


class Drained:
    """`/muster/cluster/drained`, read again when it has changed. `changed` is called when it has."""

    def __init__(self, session: Session, changed: Callable[[], None]) -> None:
        self._session = session
        self._changed = changed
        self._stale = True

    async def read(self) -> events.DrainedSeen | None:
        """All that are drained; None where nothing is new. Raises ZooKeeper's weather."""
        if not self._stale:
            return None
        self._stale = False
        try:
            names = await self._session.children(layout.DRAINED, self._fired) or ()
        except ZooKeeperError:
            self._stale = True
            raise
        return events.DrainedSeen(frozenset(int(name) for name in names if paths.is_decimal(name)))

    def _fired(self, fired: Fired) -> None:
        self._stale = True
        self._changed()


class ConfigChanges:
    """`/config/changes`: whose settings have changed. What was there at the first look is told, too."""

    def __init__(self, session: Session, changed: Callable[[], None], warn: Warn, wall_ms: Callable[[], int]) -> None:
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
        names = await self._session.children(layout.CONFIG_CHANGES, self._fired) or []
        for name in self._made_ms.keys() - set(names):
            del self._made_ms[name]
        await at_most((name for name in names if name not in self._made_ms), self._one)
        too_old_ms = self._wall_ms() - CHANGES_MS
        for name in [name for name, made_ms in self._made_ms.items() if made_ms <= too_old_ms]:
            await self._session.delete(f"{layout.CONFIG_CHANGES}/{name}")
            self._made_ms.pop(name, None)
        news, self._news = self._news, set()
        return news

    async def _one(self, name: str) -> None:
        path = f"{layout.CONFIG_CHANGES}/{name}"
        znode = await self._session.get(path)
        if znode is None:
            return
        self._made_ms[name] = znode.created_ms
        try:
            self._news.add(layout.entity_of(path, layout.read_config_change(path, znode.data)))
        except MalformedZnode as error:
            self._warn(f"a change of settings is passed over: {error}")

    def _fired(self, fired: Fired) -> None:
        self._changed()


async def take_producer_ids(session: Session, node_id: int) -> layout.ProducerIds:
    """The next block of producer ids, for this node alone (CL-A4). One whose answer was lost is taken all the same, and
    used by nobody. Raises ConnectionLost, SessionExpired, MalformedZnode, NoProducerIds."""
    path = layout.PRODUCER_ID_BLOCK
    while True:
        found = await session.get(path)
        taken = None if found is None else layout.read_producer_ids(path, found.data)
        block = layout.ProducerIds.after(taken, node_id)
        if block.last > LAST_PRODUCER_ID:
            raise NoProducerIds(f"{path} says that producer ids up to {block.first - 1} are taken; there are no more")
        try:
            if found is None:
                await session.create(path, block.to_json())
            else:
                await session.put(path, block.to_json(), found.version)
        except (NodeExists, BadVersion):
            continue  # another node was faster: the block after its own
        return block
