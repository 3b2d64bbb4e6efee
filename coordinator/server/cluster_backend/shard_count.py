"""Over how many shards a cluster's groups are spread: as many as `__consumer_offsets` has partitions in ZooKeeper.

What the image shows of a topic may be a part of it: its partitions come as they are written, a hundred at a time.
"""

import asyncio
from typing import Final

import structlog

from muster.coordinator.replication.io.background_tasks import SupervisedTasks, TaskFailed
from muster.coordinator.replication.io.replica_manager import ReplicaManager
from muster.coordinator.replication.protocol.facts import OFFSETS
from muster.coordinator.replication.protocol.image import ImageChanges
from muster.coordinator.runtime.group_log import PartitionCountConflict
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.errors import MalformedZnode, ZooKeeperError
from muster.coordinator.zookeeper.session import ZooKeeperSession

RETRY_S: Final = 0.1

log = structlog.get_logger("muster.cluster")


class ShardCount:
    """setting: `offsets.topic.num.partitions`, which counts until somebody has made the topic (CL-C12)."""

    def __init__(self, session: ZooKeeperSession, setting: int, failed: TaskFailed) -> None:
        self._session = session
        self._failed = failed
        self._tasks = SupervisedTasks(failed)
        self.count = setting

    async def take(self) -> int:
        """The cluster's, or the setting. Raises ZooKeeper's weather, and MalformedZnode."""
        self.count = await self._made() or self.count
        return self.count

    def watch(self, side: ReplicaManager) -> None:
        """From now on see to it that the cluster's is what was taken; `failed` hears of a PartitionCountConflict."""
        side.on_learned(self._learned)
        if OFFSETS in side.image.topics:  # it may have been made while it was asked for
            self._tasks.start(self._check())

    def stop(self) -> None:
        self._tasks.stop()

    def _learned(self, changes: ImageChanges) -> None:
        if OFFSETS in changes.configs:
            self._tasks.start(self._check())

    async def _check(self) -> None:
        """Until it is known: nobody says a second time that the topic was made."""
        try:
            made = await self._persistently()
        except MalformedZnode as error:
            log.warning("how many shards the cluster has cannot be read", why=str(error))
            return
        if made not in (0, self.count):
            self._failed(
                PartitionCountConflict(
                    f"the cluster's {OFFSETS} has {made} partitions, by another node's offsets.topic.num.partitions; "
                    f"this node was started with {self.count}: start it again, and it takes the cluster's"
                )
            )

    async def _persistently(self) -> int:
        """Raises MalformedZnode."""
        while True:
            await self._session.connected()
            try:
                return await self._made()
            except ZooKeeperError as error:
                log.debug("how many shards the cluster has is asked again", why=str(error))
                await asyncio.sleep(RETRY_S)

    async def _made(self) -> int:
        path = paths.topic_path(OFFSETS)
        found = await self._session.get(path)
        return 0 if found is None else len(cluster_layout.read_topic(path, found.data).partitions)
