"""Three nodes of a cluster in one process, each with an engine and a driver over what it leads."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.core.model.events import TopicsChanged
from muster.coordinator.core.model.types import Limits
from muster.coordinator.replication.io.shards.replicated_shards import ReplicatedGroupLog, WarmShards
from muster.coordinator.replication.io.shards.shard_coordination import ShardCoordination
from muster.coordinator.replication.protocol.cluster_metadata import (
    LEDGER,
    OFFSETS,
    ClusterTopic,
    ReplicaAssignment,
    TopicPartition,
)
from muster.coordinator.runtime.engine import EngineOptions
from muster.coordinator.runtime.leased import LeasedEngine
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.driver.driver import DriverCallbacks, DriverLimits, EngineDriver
from tests.support.sides import SideNode, Sides, unheard

SHARDS = 2
SESSION_MS = 3_000
SEGMENT_BYTES = 1 << 20
CONFIGS = {"cleanup.policy": "compact", "min.insync.replicas": "2", "segment.bytes": str(SEGMENT_BYTES)}
FIRST = (ReplicaAssignment((1, 2, 3)), ReplicaAssignment((2, 3, 1)))
GROUPS = ClusterTopic(OFFSETS, b"g" * 16, FIRST, CONFIGS, version=0)
DIARY = ClusterTopic(LEDGER, b"d" * 16, FIRST, CONFIGS, version=0)
SHARD = TopicPartition(OFFSETS, 0)


class ShardNode:
    """What a node has beside its side, for one life."""

    def __init__(self, node: SideNode, commit_timeout_ms: int, session_ms: int) -> None:
        self.node = node
        self.fatal: list[BaseException] = []
        self.clock = clock = NodeClock()
        # It has been there for longer than a session: whom its former life fetched from is of no concern any more.
        node.side.replicas._started_ms -= SESSION_MS
        self.coordinating = ShardCoordination(
            node.side, session_ms=session_ms, on_refusal=True, failed=unheard, now_ms=node.now_ms
        )
        group_log = ReplicatedGroupLog(node.broker, node.side, SHARDS, SEGMENT_BYTES)
        self.engine = LeasedEngine(
            group_log,
            SHARDS,
            Limits(initial_rebalance_delay_ms=0, min_session_timeout_ms=100),
            options=EngineOptions(loads_elsewhere=True),
            authority=self.coordinating,
            commit_timeout_ms=commit_timeout_ms,
        )
        self.engine.submit_all(TopicsChanged({"t": 4}, ids={"t": b"t" * 16}))
        self.driver = EngineDriver(
            self.engine,
            clock,
            DriverLimits(max_parked=1_000),
            DriverCallbacks(on_notice=self._noticed, on_fatal=self.fatal.append),
        )
        self.warming = WarmShards(group_log, SHARDS, self.engine.new_core, lambda: node.side.replicas.copies)
        self.coordinating.start(self.engine, self.driver, clock.now_ms, self.warming)

    def _noticed(self, notice: GroupChanged) -> None:
        pass

    def stands_still(self, for_ms: int) -> None:
        """It has, until now."""
        self.node.ahead_ms += for_ms
        self.clock._offset_s += for_ms / 1000

    async def stop(self) -> None:
        await self.coordinating.stop()
        with contextlib.suppress(TimeoutError):
            await self.driver.close(0.05)
        assert not self.fatal


class ShardSides(Sides):
    """`of[node id]` is there while the node is up."""

    def __init__(self, directory: Path, *, commit_timeout_ms: int = 5_000, session_ms: int = SESSION_MS) -> None:
        super().__init__(directory)
        self._commit_timeout_ms = commit_timeout_ms
        self._session_ms = session_ms
        self.of: dict[int, ShardNode] = {}

    async def start(self, node: SideNode) -> None:
        await super().start(node)
        self.of[node.id] = ShardNode(node, self._commit_timeout_ms, self._session_ms)

    async def stop(self, node: SideNode) -> None:
        await self.of.pop(node.id).stop()
        await super().stop(node)

    async def kill(self, node: SideNode) -> None:
        shard_node = self.of.pop(node.id)
        await node.side.abandon()
        await shard_node.stop()
        self.up.remove(node)
        node.broker._lock.release()
        self.standing.lost(node.id)

    async def __aexit__(self, *error: object) -> None:
        for each in self.of.values():
            await each.stop()
        await super().__aexit__(*error)

    async def coordinator(self, place: TopicPartition = SHARD) -> ShardNode:
        return self.of[(await self.leader(place)).id]


def play(directory: Path, story: Callable[[ShardSides], Awaitable[None]], **settings: int) -> None:
    async def run() -> None:
        async with ShardSides(directory, **settings) as sides:
            sides.standing.make(GROUPS, DIARY)
            await story(sides)

    asyncio.run(run())
