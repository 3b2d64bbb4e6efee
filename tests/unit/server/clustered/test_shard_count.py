"""A node that was started with another number of shards than its cluster has hears of it, be ZooKeeper away then."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.coordinator.replication.protocol.cluster_metadata import (
    OFFSETS,
    ClusterImage,
    ClusterTopic,
    ImageChanges,
    ReplicaAssignment,
    TopicView,
)
from muster.coordinator.runtime.group_log import PartitionCountConflict
from muster.coordinator.server.cluster_backend import cluster_settings
from muster.coordinator.server.cluster_backend.cluster_settings import ShardCount
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.errors import ConnectionLost


class Session:
    """Loses its connection so many times, and then tells of ten shards."""

    def __init__(self, lost: int) -> None:
        self.lost = lost

    async def connected(self) -> None: ...

    async def get(self, path: str) -> Any:
        if self.lost:
            self.lost -= 1
            raise ConnectionLost(path)
        topic = ClusterTopic(OFFSETS, b"o" * 16, (ReplicaAssignment((1,)),) * 10)
        return SimpleNamespace(data=cluster_layout.topic_json(topic))


@pytest.mark.parametrize("made_before", [False, True], ids=["told", "made while it was asked for"])
@pytest.mark.parametrize("setting", [10, 50])
def test_what_zookeeper_does_not_say_at_once_is_asked_until_it_does(
    setting: int, made_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_settings, "RETRY_S", 0)

    async def story() -> None:
        failures: list[BaseException] = []
        count = ShardCount(cast(Any, Session(lost=3)), setting, failures.append)
        image = ClusterImage()
        if made_before:
            image.topics[OFFSETS] = TopicView(b"o" * 16, OFFSETS)
        told = [] if made_before else [OFFSETS]
        count.watch(
            cast(Any, SimpleNamespace(image=image, on_learned=lambda listen: listen(ImageChanges(configs=told))))
        )
        async with asyncio.timeout(60):
            await count._tasks.ended()
        assert [type(each) for each in failures] == ([] if setting == 10 else [PartitionCountConflict])

    asyncio.run(story())
