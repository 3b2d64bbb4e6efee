"""What a cluster goes by: the controller's settings, those of internal topics, and the number of shards.

Groups are spread over as many shards as `__consumer_offsets` has partitions in ZooKeeper. What the image shows of a
topic may be a part of it: its partitions arrive as they are written, a hundred at a time.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.edge.background_tasks import SupervisedTasks, TaskFailed
from muster.coordinator.replication.io.replica_manager import ReplicaManager
from muster.coordinator.replication.protocol.cluster_metadata import ELECTIONS, LEDGER, OFFSETS, SECURITY, ImageChanges
from muster.coordinator.replication.protocol.controller import controller_state as rules
from muster.coordinator.runtime.group_log import PartitionCountConflict
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.errors import MalformedZnode, ZooKeeperError
from muster.coordinator.zookeeper.session import ZooKeeperSession

# The controller's settings, and those of internal topics
# -------------------------------------------------------

ELECTIONS_RETENTION_MS = 30 * 24 * 60 * 60 * 1000


def controller_settings_of(settings: Settings) -> rules.ControllerSettings:
    """What the controller goes by."""
    return rules.ControllerSettings(
        min_isr=settings.min_insync_replicas,
        unclean_election=settings.unclean_leader_election_enable,
        loose=settings.for_topic({}).flush_messages != 1,
        offsets_partitions=settings.offsets_topic_num_partitions,
        offsets_replicas=settings.offsets_topic_replication_factor,
        internal=(ELECTIONS,) if settings.authorizer == "none" else (ELECTIONS, SECURITY),
        eviction=settings.broker_eviction_on_refusal,
        auto_rebalance=settings.auto_leader_rebalance_enable,
        imbalance_percent=settings.leader_imbalance_per_broker_percentage,
        imbalance_check_ms=settings.leader_imbalance_check_interval_seconds * 1000,
    )


def internal_configs(settings: Settings, name: str) -> Mapping[str, str]:
    """What an internal topic sets for itself."""
    if name == SECURITY:
        from muster.coordinator.server.security.security_store import CONFIGS

        # A copy that may lack what was taken from somebody is elected by an operator's word only.
        return {**CONFIGS, "flush.messages": "1", "unclean.leader.election.enable": "false"}
    if name in (OFFSETS, LEDGER):
        size = str(settings.offsets_topic_segment_bytes)
        # A turn's batch is as large as it is; only a segment bounds it.
        return {"cleanup.policy": "compact", "segment.bytes": size, "max.message.bytes": size}
    return {"retention.ms": str(ELECTIONS_RETENTION_MS)} if name == ELECTIONS else {}


# The number of shards (CL-C12)
# -----------------------------

RETRY_S: Final = 0.1

log = structlog.get_logger("muster.cluster")


class ShardCount:
    """setting: `offsets.topic.num.partitions`, which counts until somebody has made the topic (CL-C12)."""

    def __init__(self, session: ZooKeeperSession, setting: int, failed: TaskFailed) -> None:
        self._session = session
        self._failed = failed
        self._tasks = SupervisedTasks(failed)
        self.count = setting

    async def read_count(self) -> int:
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
            log.warning("the number of the cluster's shards cannot be read", why=str(error))
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
                log.debug("the number of the cluster's shards is requested again", why=str(error))
                await asyncio.sleep(RETRY_S)

    async def _made(self) -> int:
        return await read_partition_count(self._session, OFFSETS)


async def read_partition_count(session: ZooKeeperSession, topic: str) -> int:
    """As ZooKeeper has it; 0 where there is no such topic. Raises ZooKeeper's weather, and MalformedZnode."""
    path = paths.topic_path(topic)
    found = await session.get(path)
    return 0 if found is None else len(cluster_layout.read_topic(path, found.data, needs_id=False).partitions)
