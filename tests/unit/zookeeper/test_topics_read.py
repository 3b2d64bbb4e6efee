"""A topic of thousands of partitions is read beside the loop, and as any other."""

import asyncio
from typing import Any, cast

import pytest

from muster.coordinator.replication.protocol.cluster_metadata import ClusterTopic, ReplicaAssignment
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.cluster.cluster_watches import ClusterTopicsWatch
from muster.coordinator.zookeeper.session import Znode


class Session:
    """One topic, without settings."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def children(self, path: str, watch: Any = None) -> list[str]:
        return ["orders"]

    async def get(self, path: str, watch: Any = None) -> Znode | None:
        return Znode(self._data, 4, 0, 0, 0) if path == paths.topic_path("orders") else None


def topic(partitions: int) -> ClusterTopic:
    return ClusterTopic("orders", b"i" * 16, (ReplicaAssignment((1, 2, 3)),) * partitions, version=4)


def read(monkeypatch: pytest.MonkeyPatch, data: bytes, told: list[str]) -> tuple[tuple[ClusterTopic, ...], int]:
    """What is read of it, and how often a thread was asked to."""
    asked: list[object] = []
    to_thread = asyncio.to_thread

    async def counted(*call: Any) -> Any:
        asked.append(call)
        return await to_thread(*call)

    monkeypatch.setattr(asyncio, "to_thread", counted)
    topics = ClusterTopicsWatch(cast(Any, Session(data)), lambda: None, told.append)
    return asyncio.run(topics.read()).topics, len(asked)


@pytest.mark.parametrize(("partitions", "beside"), [(100, 0), (5_000, 1)])
def test_a_large_topic_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch, partitions: int, beside: int) -> None:
    told: list[str] = []
    assert read(monkeypatch, cluster_layout.topic_json(topic(partitions)), told) == ((topic(partitions),), beside)
    assert told == []


def test_one_that_cannot_be_read_is_told_of_wherever_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    assert read(monkeypatch, cluster_layout.topic_json(topic(5_000))[:-1], told) == ((), 1)
    assert [line.startswith("a topic is left out: ") for line in told] == [True]
