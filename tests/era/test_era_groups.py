"""Consumers of five old releases and ours in one group of the ZooKeeper era: who owns what, and each record once."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from muster.client import Admin
from muster.client.members.zookeeper_assignment import ZookeeperStrategy, find_era_rules
from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from tests.era.mixed_group import MixedGroup, RecordStream
from tests.era.releases import SCALA
from tests.support.cluster_nodes import running_cluster
from tests.support.node import NodeProcess, running_node
from tests.support.zookeeper.consumers import create, plain

pytestmark = pytest.mark.integration

PARTITIONS = 6
names = (f"t{number}" for number in count())


@pytest.fixture(scope="module")
def connect(zookeeper_server: LocalEnsemble) -> str:
    return f"{zookeeper_server.connect}/era-groups"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, connect: str) -> Iterator[NodeProcess]:
    settings = {"kafka.listeners": "127.0.0.1:0", "zookeeper.connect": connect}
    with running_node(tmp_path_factory.mktemp("era") / "node", settings) as node:
        yield node


@pytest.fixture
def group(tmp_path: Path, node: NodeProcess, connect: str) -> Iterator[MixedGroup]:
    with plain(connect) as client, MixedGroup(tmp_path, connect, client) as group:
        yield group


@pytest.fixture
def topic(node: NodeProcess) -> str:
    create(node, **{(name := next(names)): PARTITIONS})
    return name


@pytest.mark.parametrize("release", SCALA)
def test_members_come_and_go_and_every_record_is_read_once(
    node: NodeProcess, group: MixedGroup, topic: str, release: str
) -> None:
    """Range. Ours sorts before, between and behind the old ones; the topic grows in between."""
    group.begin_at(topic, 8)
    with RecordStream(node, **{topic: PARTITIONS}) as stream:
        group.start_old(release, "m", "--topic", topic)
        assert set(group.settle(6)) == {"m"}
        group.start_own("a", topic)
        assert group.settle(6) == ["a"] * 3 + ["m"] * 3
        group.start_old(release, "x", "--topic", topic)
        group.settle(6)
        with Admin({"bootstrap.servers": node.address}) as admin:
            admin.create_partitions(topic, 8)
        group.settle(8)
        stream.spread(**{topic: 8})
        group.close_own("a")
        group.settle(8)
        group.start_own("z", topic)
        group.settle(8)
        group.stop_old("m")
        assert group.settle(8) == ["x"] * 4 + ["z"] * 4
    assert group.drain(stream.sent) == [], "read more than once"
    group.close_own("z")
    group.stop_old("x")
    assert sum(group.positions().values()) == stream.sent


@pytest.mark.parametrize("release", SCALA)
def test_round_robin_follows_the_release_of_the_old_members(
    tmp_path: Path, node: NodeProcess, connect: str, topic: str, release: str
) -> None:
    """With the rules of another release they would claim the same partitions. One topic's order differs from 1.0 on."""
    create(node, **{(other := next(names)): 11})
    rules = find_era_rules(release)
    with plain(connect) as client:
        group = MixedGroup(tmp_path, connect, client, ZookeeperStrategy.ROUNDROBIN, rules)
        with group:
            group.begin_at(topic, PARTITIONS)
            group.begin_at(other, 11)
            with RecordStream(node, **{topic: PARTITIONS, other: 11}) as stream:
                # Console consumers read one topic, or those of a list.
                group.start_old(release, "m", "--whitelist", f"{topic}|{other}")
                group.start_own("p", f"^{topic}$", f"^{other}$", zookeeper_consumer_version=release)
                assert set(group.settle(17)) == {"m", "p"}
                group.close_own("p")
                assert set(group.settle(17)) == {"m"}
                group.start_own("b", f"^{topic}$", f"^{other}$", zookeeper_consumer_version=release)
                assert set(group.settle(17)) == {"b", "m"}
            assert group.drain(stream.sent) == []


@pytest.mark.parametrize("release", SCALA)
def test_lists_follow_new_topics(tmp_path: Path, zookeeper: str, release: str) -> None:
    """A white list of an old consumer, a black list of ours: each resolves that of the other."""
    settings = {"kafka.listeners": "127.0.0.1:0", "zookeeper.connect": zookeeper}
    with running_node(tmp_path / "node", settings) as node, plain(zookeeper) as client:
        create(node, orders=4, tmp=2)
        with MixedGroup(tmp_path, zookeeper, client, rules=find_era_rules(release)) as group:
            group.begin_at("orders", 4)
            group.begin_at("orders.eu", 2)
            with RecordStream(node, orders=4) as stream:
                group.start_old(release, "m", "--whitelist", "orders.*,bills")
                group.start_own("p", "^tmp", "^__", black_list=True, zookeeper_consumer_version=release)
                assert group.settle(4) == ["m"] * 2 + ["p"] * 2
                create(node, **{"orders.eu": 2})
                stream.spread(**{"orders": 4, "orders.eu": 2})
                assert group.settle(6) == ["m", "m", "p", "p", "m", "p"]
                group.start_old(release, "x", "--blacklist", "tmp|__.*")
                assert group.settle(6) == ["m", "m", "p", "x", "m", "p"]
                group.stop_old("m")
                assert group.settle(6) == ["p", "p", "x", "x", "p", "x"]
            assert group.drain(stream.sent) == []


@pytest.mark.parametrize("release", ["0.9.0.1"])
def test_a_broker_that_dies_and_returns_wakes_the_group_and_no_record_is_read_twice(
    tmp_path: Path, zookeeper: str, release: str
) -> None:
    """Three nodes with three copies of each partition. Both kinds of consumer watch the registrations of brokers."""
    with running_cluster(tmp_path, zookeeper) as cluster, plain(zookeeper) as client:
        admin = AdminClient({"bootstrap.servers": cluster.kafka_address, "log_level": 0})
        admin.create_topics([NewTopic("t", PARTITIONS, 3)])["t"].result(60)
        with MixedGroup(tmp_path, zookeeper, client) as group:
            group.begin_at("t", PARTITIONS)
            with RecordStream(cluster, t=PARTITIONS) as stream:
                group.start_old(release, "m", "--topic", "t")
                group.start_own("p", "t")
                assert group.settle(6) == ["m"] * 3 + ["p"] * 3
                cluster.nodes[2].kill()
                group.wait_for(lambda: client.exists("/brokers/ids/2") is None, "its session is over")
                assert group.settle(6) == ["m"] * 3 + ["p"] * 3
                seen = len(group.read)
                group.wait_for(lambda: len(group.read) > seen + 200, "both read on from the other two")
                cluster.nodes[2].start()
                group.wait_for(lambda: client.exists("/brokers/ids/2") is not None, "it registers again")
                assert group.settle(6) == ["m"] * 3 + ["p"] * 3
            assert group.drain(stream.sent) == []
