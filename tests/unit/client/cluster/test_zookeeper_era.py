"""Consumers of the ZooKeeper era at nodes that share a cluster: topics may be led by several of them."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from muster.client.membership.zookeeper_membership import TopicLeaderSearch, TopicsLedApart
from muster.coordinator.zookeeper.layout import BrokerZnode

ENDPOINTS = ("GRPC://n{0}:9290", "PLAINTEXT://n{0}:9092")
CLUSTERED = (*ENDPOINTS, "REPLICATION://n{0}:9291")


class Registry:
    """What a consumer reads in ZooKeeper: registrations of nodes 1 to 3."""

    connect = "zk:2181"

    def __init__(self, endpoints: tuple[str, ...]) -> None:
        self._endpoints = endpoints

    async def children(self, path: str) -> list[str]:
        return ["1", "2", "3"]

    async def get(self, path: str) -> Any:
        number = path.rpartition("/")[2]
        endpoints = tuple(each.format(number) for each in self._endpoints)
        return SimpleNamespace(data=BrokerZnode(f"n{number}", 9092, endpoints, 5).to_json())


def spoken_to(endpoints: tuple[str, ...], topics: dict[str, int]) -> list[str]:
    """The nodes that a consumer begins with whose topics are led by these."""
    used: list[str] = []

    def use(nodes: Any) -> None:
        used[:] = nodes

    async def story() -> None:
        registry: Any = Registry(endpoints)
        view: Any = SimpleNamespace(brokers=(1, 2, 3), partitions=topics)
        mine: Any = SimpleNamespace(subscription=(), pattern="white_list")
        await TopicLeaderSearch(registry, use, ()).find_leaders(view, mine, topics)

    asyncio.run(story())
    return used


def test_topics_led_by_several_nodes_of_a_cluster_are_one_consumer_s() -> None:
    assert spoken_to(CLUSTERED, {"a": 1, "b": 2}) == ["n1:9290", "n2:9290", "n3:9290"]


def test_topics_led_by_nodes_beside_each_other_are_not() -> None:
    assert spoken_to(ENDPOINTS, {"a": 2, "b": 2}) == ["n2:9290"]
    with pytest.raises(TopicsLedApart, match="a by node 1, b by node 2"):
        spoken_to(ENDPOINTS, {"a": 1, "b": 2})
