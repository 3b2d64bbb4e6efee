"""Reads and watches a cluster's znodes: nodes, topics, partition states, and the requests that operators and tools
leave.

Znodes are read in parallel. What cannot be read is reported and left out (CL-C13). Each watcher calls `changed` on the
loop when `read` would return something else. Requests are elections, reassignments, topic deletions (`/admin`),
drained nodes and changes of settings (`/config/changes`). A node takes its blocks of producer ids from here, too.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace as with_
from functools import partial
from typing import Final

from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_TOPIC_ID,
    ClusterNode,
    ClusterTopic,
    ImageVersion,
    PartitionState,
    TopicPartition,
)
from muster.coordinator.replication.protocol.controller import events_and_effects
from muster.coordinator.replication.protocol.controller.events_and_effects import AdminMarker, UnidentifiedTopic
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.consumer_group import gather_bounded
from muster.coordinator.zookeeper.errors import BadVersion, MalformedZnode, NodeExists, ZooKeeperError
from muster.coordinator.zookeeper.published_topics import ForeignAclWatch
from muster.coordinator.zookeeper.session import WatchEvent, Znode, ZooKeeperSession

# Nodes, topics and partition states
# ----------------------------------

ReportUnreadable = Callable[[str], None]

MAX_READS_IN_FLIGHT: Final = 8 << 10
"""Bytes of a topic's znode that are read on the loop, in about 2 ms: 500 partitions. A larger one is read beside it."""


async def read_node(session: ZooKeeperSession, node_id: int) -> ClusterNode | None:
    """A node as it is registered, its epoch told; None if it is not, or is no node of a cluster (CL-Z2). Raises
    MalformedZnode."""
    found = await session.get(paths.broker_path(node_id))
    return (
        None if found is None else cluster_layout.read_registration(paths.broker_path(node_id), found.data, found.made)
    )


class NodeWatch:
    """All registrations, read again as a whole: they are few, and each may have been made anew."""

    def __init__(self, session: ZooKeeperSession, changed: Callable[[], None], warn: ReportUnreadable) -> None:
        self._session = session
        self._changed = changed
        self._warn = warn
        self._told: set[str] = set()

    async def read(self) -> dict[int, ClusterNode]:
        """By node id. Raises ZooKeeper's weather."""
        names = await self._session.children(paths.BROKER_IDS, self._fired) or []
        found = await gather_bounded((int(name) for name in names if paths.is_decimal(name)), self._one)
        return {node.id: node for node in found if node is not None}

    async def _one(self, node_id: int) -> ClusterNode | None:
        path = paths.broker_path(node_id)
        try:
            znode = await self._session.get(path)
            if znode is None:
                return None
            node = cluster_layout.read_registration(path, znode.data, znode.made)
        except MalformedZnode as error:
            self._once(str(error))
            return None
        if node is None:
            self._once(f"{path} is not a node of a cluster (no muster.directory, or other features): it does not count")
        return node

    def _once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._warn(text)

    def _fired(self, fired: WatchEvent) -> None:
        self._changed()


class ClusterTopicsWatch:
    """Topics with what is set for them, each read once, and again when its watch or a change of settings says so."""

    def __init__(self, session: ZooKeeperSession, changed: Callable[[], None], warn: ReportUnreadable) -> None:
        self._session = session
        self._changed = changed
        self._warn = warn
        self._known: dict[str, ClusterTopic | None] = {}
        """None: what cannot be read."""
        self._in_sync: dict[str, frozenset[int] | None] = {}
        """Of topics whose znode says no id: see `UnidentifiedTopic`."""
        self._suspect: set[str] = set()
        self._list_is_stale = True

    def suspect(self, name: str) -> None:
        """Its settings are others than before."""
        self._suspect.add(name)

    def suspect_all(self) -> None:
        self._list_is_stale = True
        self._suspect.update(self._known)

    async def read(self) -> events_and_effects.TopicsRead:
        """All of them where the list had to be read, else those that changed. Raises ZooKeeper's weather."""
        complete, suspect = self._list_is_stale, self._suspect
        self._list_is_stale, self._suspect = False, set()
        try:
            names = set(self._known)
            if complete:
                names = set(await self._session.children(paths.BROKER_TOPICS, self._list_fired) or ())
                for name in self._known.keys() - names:
                    del self._known[name]
            wanted = sorted((names - self._known.keys()) | (suspect & names))
            await gather_bounded(wanted, self._one)
        except ZooKeeperError:
            self._list_is_stale |= complete
            self._suspect |= suspect
            raise
        looked_at = sorted(self._known) if complete else wanted
        found = [topic for name in looked_at if (topic := self._known.get(name)) is not None]
        gone = () if complete else tuple(name for name in wanted if name not in self._known)
        return events_and_effects.TopicsRead(
            tuple(topic for topic in found if topic.topic_id),
            complete,
            gone,
            tuple(UnidentifiedTopic(topic, self._in_sync[topic.name]) for topic in found if not topic.topic_id),
        )

    async def _one(self, name: str) -> None:
        path = paths.topic_path(name)
        znode = await self._session.get(path, self._topic_fired)
        if znode is None:
            self._known.pop(name, None)
            return
        try:
            configs = await self._configs(name)
            parse = partial(cluster_layout.read_topic, path, znode.data, configs, needs_id=False)
            topic = await asyncio.to_thread(parse) if len(znode.data) > MAX_READS_IN_FLIGHT else parse()
            if topic.topic_id == NO_TOPIC_ID:
                self._in_sync[name] = await self._read_in_sync(topic)
            self._known[name] = with_(topic, version=znode.version)
        except MalformedZnode as error:
            self._warn(
                f"a topic stays as it was: {error}" if self._known.get(name) else f"a topic is left out: {error}"
            )
            self._known.setdefault(name, None)

    async def _read_in_sync(self, topic: ClusterTopic) -> frozenset[int] | None:
        states, broken = await read_states(self._session, [topic], self._warn)
        if not states and not broken:
            return None
        return frozenset(node for state in states.values() for node in (*state.isr, *state.elr))

    async def _configs(self, name: str) -> Mapping[str, str]:
        path = paths.topic_config_path(name)
        znode = await self._session.get(path)
        try:
            return {} if znode is None or not znode.data else paths.read_config(path, znode.data)
        except MalformedZnode as error:
            known = self._known.get(name)
            self._warn(f"settings of a topic stay as they were: {error}")
            return {} if known is None else known.configs

    # kazoo tells watches apart by what they call, so these are methods.

    def _list_fired(self, fired: WatchEvent) -> None:
        self._list_is_stale = True
        self._note(fired)

    def _topic_fired(self, fired: WatchEvent) -> None:
        self._suspect.add(fired.path.rpartition("/")[2])
        self._note(fired)

    def _note(self, fired: WatchEvent) -> None:
        if fired.kind == "session":
            self.suspect_all()  # every watch went with the connection
        self._changed()


async def read_stored_version(session: ZooKeeperSession, warn: ReportUnreadable) -> events_and_effects.ClusterVersion:
    """`/muster/cluster/version` as the ensemble has it now. One that cannot be read says nothing but its version: no
    write is found done by it, and the next one replaces it."""
    await session.sync(cluster_layout.CLUSTER_VERSION)
    found = await session.get(cluster_layout.CLUSTER_VERSION)
    if found is None:
        return events_and_effects.ClusterVersion()
    try:
        read = cluster_layout.read_cluster_version(cluster_layout.CLUSTER_VERSION, found.data)
    except MalformedZnode as error:
        warn(str(error))
        return events_and_effects.ClusterVersion(version=found.version)
    return events_and_effects.ClusterVersion(ImageVersion(read.controller_epoch, read.sequence), found.version)


async def read_states(
    session: ZooKeeperSession, topics: Iterable[ClusterTopic], warn: ReportUnreadable
) -> tuple[dict[TopicPartition, PartitionState], tuple[TopicPartition, ...]]:
    """The states that there are, and which cannot be read."""
    states: dict[TopicPartition, PartitionState] = {}
    broken: list[TopicPartition] = []

    async def one(place: TopicPartition) -> None:
        path = paths.partition_state_path(*place)
        znode = await session.get(path)
        if znode is None:
            return
        try:
            states[place] = cluster_layout.read_state(path, znode.data, znode.version)
        except MalformedZnode as error:
            warn(str(error))
            broken.append(place)

    await gather_bounded(
        (TopicPartition(topic.name, number) for topic in topics for number in range(len(topic.partitions))), one
    )
    return states, tuple(sorted(broken))


# Requests of operators and tools; producer ids
# ---------------------------------------------

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

    async def read(self) -> list[events_and_effects.ControllerEvent]:
        """Topics to delete, all there are; what else is asked for, once each. Raises ZooKeeper's weather."""
        found: list[events_and_effects.ControllerEvent] = []
        if (preferred := await self._new(AdminMarker.PREFERRED)) is not None:
            found.append(events_and_effects.ElectLeadersRequested(None, cluster_layout.read_preferred(*preferred)))
        if (unclean := await self._new(AdminMarker.UNCLEAN)) is not None:
            found.append(
                events_and_effects.ElectLeadersRequested(
                    None, cluster_layout.read_preferred(*unclean), events_and_effects.ElectionType.UNCLEAN
                )
            )
        if (reassign := await self._new(AdminMarker.REASSIGN)) is not None:
            found.append(events_and_effects.ReassignmentRequested(None, cluster_layout.read_reassignment(*reassign)))
        names = await self._session.children(paths.DELETE_TOPICS, self._list_fired)
        if names:
            found.append(events_and_effects.TopicDeletionsRead(tuple(names)))
        return found

    async def remove(self, wanted: events_and_effects.RemoveMarker) -> None:
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

    async def read(self) -> events_and_effects.DrainedNodesRead | None:
        """All that are drained; None where nothing is new. Raises ZooKeeper's weather."""
        if not self._stale:
            return None
        self._stale = False
        try:
            names = await self._session.children(cluster_layout.DRAINED, self._fired) or ()
        except ZooKeeperError:
            self._stale = True
            raise
        return events_and_effects.DrainedNodesRead(frozenset(int(name) for name in names if paths.is_decimal(name)))

    def _fired(self, fired: WatchEvent) -> None:
        self._stale = True
        self._changed()


class ConfigChangeWatch:
    """`/config/changes`: whose settings have changed. What was there at the first look is told, too.

    Lists that `kafka-acls` has left in ZooKeeper are warned of: another tool's word that a cluster does not follow.
    """

    def __init__(
        self, session: ZooKeeperSession, changed: Callable[[], None], warn: ReportUnreadable, wall_ms: Callable[[], int]
    ) -> None:
        self._session = session
        self._changed = changed
        self._warn = warn
        self._wall_ms = wall_ms
        self._foreign_acls = ForeignAclWatch(session, changed)
        self._made_ms: dict[str, int] = {}
        """By name of the znode, when it was made."""
        self._news: set[tuple[str, str]] = set()

    async def read(self) -> set[tuple[str, str]]:
        """(`topics` or `brokers`, name) of what has changed since the last look. Removes what has been there for 15
        minutes. Raises ZooKeeper's weather; nothing is missed by that."""
        names = await self._session.children(paths.CONFIG_CHANGES, self._fired) or []
        await self._foreign_acls.look()
        for name in self._made_ms.keys() - set(names):
            del self._made_ms[name]
        await gather_bounded((name for name in names if name not in self._made_ms), self._one)
        too_old_ms = self._wall_ms() - CONFIG_CHANGE_RETENTION_MS
        for name in [name for name, made_ms in self._made_ms.items() if made_ms <= too_old_ms]:
            await self._session.delete(f"{paths.CONFIG_CHANGES}/{name}")
            self._made_ms.pop(name, None)
        news, self._news = self._news, set()
        return news

    async def _one(self, name: str) -> None:
        path = f"{paths.CONFIG_CHANGES}/{name}"
        znode = await self._session.get(path)
        if znode is None:
            return
        self._made_ms[name] = znode.created_ms
        try:
            self._news.add(cluster_layout.parse_config_entity(path, paths.read_config_change(path, znode.data)))
        except MalformedZnode as error:
            self._warn(f"a change of settings is passed over: {error}")

    def _fired(self, fired: WatchEvent) -> None:
        self._changed()


async def take_producer_ids(session: ZooKeeperSession, node_id: int) -> cluster_layout.ProducerIdBlock:
    """The next block of producer ids, for this node alone (CL-A4). One whose answer was lost is taken all the same, and
    used by nobody. Raises ConnectionLost, SessionExpired, MalformedZnode, ProducerIdsExhausted."""
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
