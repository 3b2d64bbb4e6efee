"""Nodes, topics and states as they lie in ZooKeeper, read in parallel. What cannot be read is named and left out
(CL-C13).

What `NodeWatch` and `ClusterTopicsWatch` read is watched: `changed` is called, on the loop, when `read` would give
something else.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace as with_
from typing import Final

from muster.coordinator.replication.protocol.controller import events
from muster.coordinator.replication.protocol.facts import ClusterNode, ClusterTopic, PartitionState, TopicPartition
from muster.coordinator.replication.protocol.image import ImageVersion
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.consumer import gather_bounded
from muster.coordinator.zookeeper.errors import MalformedZnode, ZooKeeperError
from muster.coordinator.zookeeper.session import WatchEvent, ZooKeeperSession

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
            self._once(f"{path} is no node of a cluster (no muster.directory, or other features): it does not count")
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
        self._suspect: set[str] = set()
        self._list_is_stale = True

    def suspect(self, name: str) -> None:
        """Its settings are others than before."""
        self._suspect.add(name)

    def suspect_all(self) -> None:
        self._list_is_stale = True
        self._suspect.update(self._known)

    async def read(self) -> events.TopicsRead:
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
        found = tuple(topic for name in looked_at if (topic := self._known.get(name)) is not None)
        gone = () if complete else tuple(name for name in wanted if name not in self._known)
        return events.TopicsRead(found, complete, gone)

    async def _one(self, name: str) -> None:
        path = paths.topic_path(name)
        znode = await self._session.get(path, self._topic_fired)
        if znode is None:
            self._known.pop(name, None)
            return
        try:
            configs = await self._configs(name)
            if len(znode.data) > MAX_READS_IN_FLIGHT:
                topic = await asyncio.to_thread(cluster_layout.read_topic, path, znode.data, configs)
            else:
                topic = cluster_layout.read_topic(path, znode.data, configs)
            self._known[name] = with_(topic, version=znode.version)
        except MalformedZnode as error:
            self._warn(
                f"a topic stays as it was: {error}" if self._known.get(name) else f"a topic is left out: {error}"
            )
            self._known.setdefault(name, None)

    async def _configs(self, name: str) -> Mapping[str, str]:
        path = paths.topic_config_path(name)
        znode = await self._session.get(path)
        try:
            return {} if znode is None or not znode.data else cluster_layout.read_config(path, znode.data)
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


async def read_stored_version(session: ZooKeeperSession, warn: ReportUnreadable) -> events.ClusterVersion:
    """`/muster/cluster/version` as the ensemble has it now. One that cannot be read says nothing but its version: no
    write is found done by it, and the next one replaces it."""
    await session.sync(cluster_layout.CLUSTER_VERSION)
    found = await session.get(cluster_layout.CLUSTER_VERSION)
    if found is None:
        return events.ClusterVersion()
    try:
        read = cluster_layout.read_cluster_version(cluster_layout.CLUSTER_VERSION, found.data)
    except MalformedZnode as error:
        warn(str(error))
        return events.ClusterVersion(version=found.version)
    return events.ClusterVersion(ImageVersion(read.controller_epoch, read.sequence), found.version)


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
