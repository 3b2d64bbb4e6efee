"""What operators and clients ask of a cluster while ZooKeeper is away is answered in time, and not done later."""

import asyncio
from typing import Any, cast

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.admin import cluster_admin
from muster.coordinator.replication.io.admin.cluster_admin import ClusterAdmin, ImageWaits
from muster.coordinator.replication.io.admin.topic_admin import ClusterTopics, TopicPlanner
from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterImage,
    NodeView,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.zookeeper.session import ZooKeeperSession
from muster.storage.broker.requests import NewTopic
from muster.storage.config import LogSettings
from muster.storage.errors import RequestTimedOut

UNIT = TopicPartition("t", 0)
LATE = ErrorCode.REQUEST_TIMED_OUT


class OutOfTouch:
    """Takes what it is asked, and answers when ZooKeeper is back."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def connected(self) -> None:
        await asyncio.Event().wait()

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: object) -> None:
            self.asked.append(name)
            await asyncio.Event().wait()

        return call


def showing() -> ImageWaits:
    image = ClusterImage()
    image.nodes = {node: NodeView(node, 1) for node in (1, 2)}
    image.topics["t"] = TopicView(bytes(16), "t", {}, {0: PartitionView(2, 1, 1, (1, 2), (), (1, 2))})
    return ImageWaits(image, lambda listener: None)


def test_every_request_has_its_end_and_leaves_nothing_to_be_done_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_admin, "PATIENCE_MS", 10)

    async def story() -> None:
        session = OutOfTouch()
        admin = ClusterAdmin(cast(ZooKeeperSession, session), showing())
        assert await admin.elect([UNIT], timeout_ms=10) == {UNIT: LATE}
        assert await admin.reassign({UNIT: (2, 1)}, timeout_ms=10) == {UNIT: LATE}
        assert await admin.drain(1) is LATE
        for asked in (admin.node_configs(1), admin.set_node_configs(1, lambda given: {})):
            with pytest.raises(RequestTimedOut, match="ZooKeeper did not answer: it is out of reach"):
                await asked
        planning = TopicPlanner(ClusterImage(), LogSettings(), 1)
        planning._image.nodes[1] = NodeView(1, 1)
        topics = ClusterTopics(cast(ZooKeeperSession, session), showing(), planning, lambda: bytes(16), timeout_ms=10)
        [made] = await topics.create([NewTopic("new", 1)])
        assert isinstance(made, RequestTimedOut)
        assert "ZooKeeper did not answer: it is out of reach" in str(made)
        assert session.asked == []

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(bounded())
