"""Settings of topics that others change, too: each change goes by what is written, and none waits in vain."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from muster.coordinator.replication.io.admin import topic_admin as module
from muster.coordinator.replication.io.admin.cluster_admin import ImageWaits
from muster.coordinator.replication.io.admin.topic_admin import ClusterTopics, TopicPlanner
from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterImage,
    ImageChanges,
    PartitionView,
    TopicView,
)
from muster.coordinator.zookeeper.cluster.cluster_writes import StoredConfigs
from muster.storage.config import LogSettings
from muster.storage.errors import RequestTimedOut, StorageError
from muster.storage.types import Topic

VIEW = PartitionView(1, 0, 0, (1,), (), (1,))
PATIENCE_MS = 300


class Cluster:
    """A topic's settings as they are written, as a server that lags has them, and as the image has them."""

    def __init__(self, written: StoredConfigs, lagging: StoredConfigs, image: Mapping[str, str]) -> None:
        self.written, self.lagging = written, lagging
        self.image = ClusterImage()
        self.listeners: list[Callable[[ImageChanges], None]] = []
        self.learn(image)
        self.puts = 0
        self.topics = ClusterTopics(
            self,  # type: ignore[arg-type]
            ImageWaits(self.image, self.listeners.append),
            TopicPlanner(self.image, LogSettings(), 1),
            bytes,
            timeout_ms=PATIENCE_MS,
        )

    def learn(self, configs: Mapping[str, str]) -> None:
        self.image.topics["t"] = TopicView(bytes(16), "t", configs, {0: VIEW})
        for listener in self.listeners:
            listener(ImageChanges())

    async def connected(self) -> None: ...

    async def sync(self, path: str) -> None:
        self.lagging = self.written

    async def read_configs(self, session: object, kind: str, name: str) -> StoredConfigs:
        return self.lagging

    async def put_configs(self, session: object, kind: str, name: str, configs: StoredConfigs) -> bool:
        self.puts += 1
        if configs.version != self.written.version:
            return False
        self.written = self.lagging = StoredConfigs(configs.values, configs.version + 1)
        asyncio.get_running_loop().call_soon(self.learn, configs.values)
        return True


def change(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, during: Callable[[], None] = lambda: None) -> Any:
    async def story() -> Any:
        monkeypatch.setattr(module.cluster_writes, "fetch_configs", cluster.read_configs)
        monkeypatch.setattr(module.cluster_writes, "put_configs", cluster.put_configs)
        asyncio.get_running_loop().call_later(0.01, during)

        def more() -> dict[str, str | None]:
            return {"flush.ms": str(int(cluster.image.topics["t"].configs["retention.ms"]) + 1)}

        (result,) = await cluster.topics.change([("t", more)])
        return result

    return asyncio.run(story())


ONE, TWO = {"retention.ms": "1"}, {"retention.ms": "2"}


def test_a_server_that_lags_behind_the_image_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The image is never again what that one says: whoever waited for that waited until he was told 7."""
    cluster = Cluster(StoredConfigs(TWO, 2), StoredConfigs(ONE, 1), TWO)
    result = change(monkeypatch, cluster)
    assert isinstance(result, Topic), result
    assert result.configs == {**TWO, "flush.ms": "3"}


def test_an_image_that_lags_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(StoredConfigs(TWO, 2), StoredConfigs(TWO, 2), ONE)
    result = change(monkeypatch, cluster, lambda: cluster.learn(TWO))
    assert isinstance(result, Topic), result
    assert (result.configs, cluster.puts) == ({**TWO, "flush.ms": "3"}, 1)


def test_who_loses_a_race_begins_with_what_the_other_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(StoredConfigs(TWO, 2), StoredConfigs(ONE, 1), ONE)
    result = change(monkeypatch, cluster, lambda: cluster.learn(TWO))
    assert isinstance(result, Topic), result
    assert (result.configs, cluster.puts) == ({**TWO, "flush.ms": "3"}, 2)


def test_who_waits_for_the_image_when_the_node_stops_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        cluster = Cluster(StoredConfigs(TWO, 2), StoredConfigs(TWO, 2), ONE)
        monkeypatch.setattr(module.cluster_writes, "fetch_configs", cluster.read_configs)
        cluster.topics._timeout_ms = 60_000
        waiting = asyncio.ensure_future(cluster.topics.change([("t", {})]))
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(cluster.topics._showing._waiting) == 1
        await cluster.topics.close()
        (told,) = await waiting
        assert isinstance(told, RequestTimedOut)
        assert "shutting down" in str(told)
        (refused,) = await cluster.topics.change([("t", {})])
        assert isinstance(refused, StorageError)

    asyncio.run(story())
