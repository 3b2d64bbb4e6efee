"""Leases over a Kafka count by a clock that goes on while the machine sleeps; the engine's own stands still (KB-F7)."""

import asyncio
from typing import Any

from muster.coordinator.kafka_backend.shard_owner import OwnerClocks, ShardOwner
from muster.coordinator.kafka_backend.shard_ownership.events_and_effects import ShardsAssigned, Synced
from muster.coordinator.kafka_backend.shard_ownership.lease import OwnershipSettings
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import AssignedNode, ShardAssignment
from muster.coordinator.kafka_backend.state_log import StateLog
from muster.coordinator.runtime.shards import ShardStatus

SESSION_MS, SLEPT_MS = 10_000, 3_600_000


class Engine:
    """Notes by which clock it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def status(self, shard: int) -> ShardStatus:
        return ShardStatus.ACTIVE

    def committed(self, shard: int, position: int, now_ms: int) -> None:
        self.told.append(("committed", now_ms))

    def moved(self, shard: int, gap_ms: int, now_ms: int) -> None:
        self.told.append(("moved", now_ms))

    def opened(self, shard: int, now_ms: int) -> bool:
        self.told.append(("opened", now_ms))
        return True


def test_a_lease_does_not_outlast_the_machines_sleep_and_the_engine_hears_of_its_own_time() -> None:
    async def story() -> None:
        moments = {"lease": 5_000_000, "engine": 1_000}
        engine: Any = Engine()
        upstream: Any = None
        owning = ShardOwner(
            upstream,
            StateLog(1_000),
            "muster.state",
            "muster",
            OwnershipSettings(1, "one", session_timeout_ms=SESSION_MS),
            OwnerClocks(now_ms=lambda: moments["lease"], wall_ms=lambda: 0, engine_ms=lambda: moments["engine"]),
        )
        owning.start(engine, lambda: None, lambda: None)
        owning.step(ShardsAssigned(frozenset(), ShardAssignment(1, {1: AssignedNode(1, "one", {}, ())})))
        owning.step(Synced(moments["lease"]))
        assert owning.shards.has_lease(owning.now_ms())
        moments["lease"] += SLEPT_MS
        assert not owning.shards.has_lease(owning.now_ms())
        owning._committed(0, 1)
        owning._opened(0, 500)
        await asyncio.sleep(0)
        assert engine.told == [("committed", 1_000), ("moved", 1_000), ("opened", 1_000)]
        await owning.stop()

    asyncio.run(story())
