"""Two nodes, each a log of its own: a consumer of that era reads from the one that leads its topics, or says so."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client import Consumer
from muster.client.errors import ZookeeperRefused
from tests.support.client_stories import poll_until, read
from tests.support.node import NodeProcess, running_node
from tests.support.zookeeper.consumers import create, era_node, era_properties, fill

Nodes = tuple[NodeProcess, NodeProcess]


@pytest.fixture
def nodes(tmp_path: Path, zookeeper: str) -> Iterator[Nodes]:
    second = {"zookeeper.connect": zookeeper, "node.id": "2"}
    with era_node(tmp_path, zookeeper) as one, running_node(tmp_path / "second", second) as two:
        create(one, first=2)
        create(two, second=2)
        fill(two, "second", 2, 10)
        yield one, two


def test_a_topic_is_read_from_the_node_that_leads_it(nodes: Nodes, zookeeper: str) -> None:
    with Consumer(era_properties(zookeeper)) as consumer:
        consumer.subscribe("second")
        assert sorted(int(message.value) for message in read(consumer, 10)) == list(range(10))
    fill(nodes[0], "first", 2, 4)
    with Consumer(era_properties(zookeeper, "other")) as consumer:
        consumer.subscribe("first")
        assert len(read(consumer, 4)) == 4


def test_topics_of_different_nodes_are_refused_by_name(nodes: Nodes, zookeeper: str) -> None:
    with Consumer(era_properties(zookeeper)) as consumer:
        consumer.subscribe(["first", "second"])
        with pytest.raises(ZookeeperRefused, match=r"led by different ones: first by node 1, second by node 2"):
            poll_until(lambda: False, consumer, what="never")


def test_whoever_names_another_node_is_told_who_leads_the_topic(
    nodes: Nodes, zookeeper: str, caplog: pytest.LogCaptureFixture
) -> None:
    properties = era_properties(zookeeper, bootstrap_servers=nodes[0].address)
    with caplog.at_level(logging.WARNING, "muster.client"), Consumer(properties) as consumer:
        consumer.subscribe(["second", "nowhere"])
        poll_until(lambda: f"led by node 2 at {nodes[1].address}, which" in caplog.text, consumer, what="told")
    said = [record.getMessage() for record in caplog.records]
    assert len([line for line in said if "there is no topic 'nowhere' in /brokers/topics" in line]) == 1


def test_a_chroot_without_brokers_is_told(nodes: Nodes, zookeeper: str, caplog: pytest.LogCaptureFixture) -> None:
    properties = era_properties(f"{zookeeper}/typo", bootstrap_servers=nodes[0].address)
    with caplog.at_level(logging.WARNING, "muster.client"), Consumer(properties) as consumer:
        consumer.subscribe("first")
        poll_until(lambda: "no broker is registered in /brokers/ids" in caplog.text, consumer, what="told")
    assert "is zookeeper.connect right, and its chroot?" in caplog.text
