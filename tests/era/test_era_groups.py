"""Consumers of five old releases and ours in one group of the ZooKeeper era: who owns what, and each record once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from muster.client import Admin
from tests.era.mixed_group import MixedGroup, RecordStream
from tests.era.releases import SCALA
from tests.support.node import NodeProcess, running_node
from tests.support.zookeeper.consumers import create, plain

pytestmark = pytest.mark.integration


@pytest.fixture
def node(tmp_path: Path, zookeeper: str) -> Iterator[NodeProcess]:
    settings = {"kafka.listeners": "127.0.0.1:0", "zookeeper.connect": zookeeper}
    with running_node(tmp_path / "node", settings) as node:
        yield node


@pytest.fixture
def client(zookeeper: str, node: NodeProcess) -> Iterator[KazooClient]:
    with plain(zookeeper) as client:
        yield client


@pytest.mark.parametrize("release", SCALA)
def test_members_come_and_go_and_every_record_is_read_once(
    node: NodeProcess, zookeeper: str, client: KazooClient, tmp_path: Path, release: str
) -> None:
    """Range. Ours sorts before, between and behind the old ones; the topic grows in between."""
    create(node, t=6)
    with MixedGroup(tmp_path, zookeeper, client) as group:
        group.begin_at("t", 8)
        stream = RecordStream(node, t=6)
        try:
            group.start_old(release, "m", "--topic", "t")
            assert set(group.settle(6)) == {"g_m-0"}
            group.start_own("a", "t")
            assert group.settle(6) == ["g_a-0"] * 3 + ["g_m-0"] * 3
            group.start_old(release, "x", "--topic", "t")
            group.settle(6)
            with Admin({"bootstrap.servers": node.address}) as admin:
                admin.create_partitions("t", 8)
            group.settle(8)
            stream.spread(t=8)
            group.close_own("a")
            group.settle(8)
            group.start_own("z", "t")
            group.settle(8)
            group.stop_old("m")
            assert group.settle(8) == ["g_x-0"] * 4 + ["g_z-0"] * 4
        finally:
            stream.stop()
        assert group.drain(stream.sent) == [], "read more than once"
        group.close_own("z")
        group.stop_old("x")
        assert sum(group.positions().values()) == stream.sent
