"""Transactions by Kafka's own producer, at level 2 (KIP-890) and at the one before."""

from pathlib import Path

import pytest

from tests.interop.peers import java_story
from tests.support.cluster_nodes import running_cluster
from tests.support.node import running_node
from tests.support.zookeeper.servers import zookeeper, zookeeper_server

__all__ = ["zookeeper", "zookeeper_server"]


def told_at(level: int) -> list[str]:
    """What the story prints."""
    return [
        f"level {level}" if level == 2 else "level none",
        "first ProducerFencedException",
        "slow InvalidProducerEpochException",
        "slow is alive" if level == 2 else "slow ProducerFencedException",
        "committed 0 102 committed, of the second",
        "committed 1 82 committed too, alive" if level == 2 else "committed 1 81 committed too, round 197",
    ]


@pytest.mark.parametrize("level", [2, 1])
def test_kafkas_own_producer_commits_aborts_and_is_fenced(tmp_path: Path, level: int) -> None:
    more = {"kafka.listeners": "127.0.0.1:0", "transaction.version": str(level)}
    with running_node(tmp_path / "data", more) as node:
        told = java_story("TransactionStory", node.kafka_address, "orders")
    assert told == told_at(level)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("level", [2, 1])
def test_over_three_nodes_it_is_the_same(zookeeper: str, tmp_path: Path, level: int) -> None:
    with running_cluster(tmp_path, zookeeper, settings={"transaction.version": str(level)}) as cluster:
        told = java_story("TransactionStory", cluster.kafka_address, "orders")
        assert told == told_at(level), cluster.log_tail()
