"""ZooKeeper loses its data while nodes run: they say so, lose nothing, and heal or wait for an operator."""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, NotEmptyError

from muster.client import Admin, Consumer, Producer
from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from tests.support.client_stories import read
from tests.support.cluster_nodes import running_cluster
from tests.support.node import NodeProcess, running_node
from tests.support.pace import until
from tests.support.zookeeper.servers import running

pytestmark = pytest.mark.integration

LOST = "zookeeper-lost-data"


@pytest.fixture
def ensemble() -> Iterator[LocalEnsemble]:
    """One server that a test may empty."""
    with running(1) as ensemble:
        yield ensemble


def empty_disk(ensemble: LocalEnsemble) -> None:
    """As by an operator who thinks that it is a cache: every transaction of before is forgotten."""
    ensemble.kill(1)
    shutil.rmtree(ensemble.server(1).folder / "data")
    ensemble.start()


def delete_znodes(ensemble: LocalEnsemble) -> None:
    """By hand, while nodes have their sessions and write."""
    client = KazooClient(ensemble.connect)
    client.start()
    left = True
    while left:
        left = False
        for name in set(client.get_children("/")) - {"zookeeper"}:
            try:
                client.delete(f"/{name}", recursive=True)
            except (NotEmptyError, NoNodeError):
                left = True
    client.stop()
    client.close()


def of(node: NodeProcess) -> dict[str, str]:
    """What the node says of its health."""
    with Admin(bootstrap_servers=node.address) as admin:
        return {each.name: each.sentence for each in admin.conditions()}


def says_so(node: NodeProcess) -> bool:
    return LOST in of(node)


def has(ensemble: LocalEnsemble, *paths: str) -> bool:
    client = KazooClient(ensemble.connect)
    client.start()
    try:
        return all(client.exists(path) for path in paths)
    finally:
        client.stop()
        client.close()


def write_and_commit(address: str, topic: str) -> None:
    with Producer(bootstrap_servers=address) as producer:
        for number in range(10):
            producer.produce(topic, b"x", partition=number % 2)
        producer.flush()
    with Consumer(bootstrap_servers=address, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(topic)
        read(consumer, 10)
        consumer.commit()


def committed(address: str) -> dict[int, int | None]:
    with Admin(bootstrap_servers=address) as admin:
        return {each.partition.partition: each.committed for each in admin.group_lag("g")}


@pytest.mark.parametrize("lose", [empty_disk, delete_znodes])
def test_a_node_on_its_own_writes_again_what_it_keeps_there(
    tmp_path: Path, ensemble: LocalEnsemble, lose: Callable[[LocalEnsemble], None]
) -> None:
    """It could never connect to an emptied ZooKeeper, and said no more than that it was out of reach."""
    told = {"zookeeper.connect": f"{ensemble.connect}/dev", "zookeeper.session.timeout.ms": "1000"}
    with running_node(tmp_path / "d", told) as node:
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic("t", 2)
        write_and_commit(node.address, "t")
        wanted = (
            *("/dev/cluster/id", "/dev/brokers/ids/1", "/dev/brokers/topics/t/partitions/1/state"),
            *("/dev/controller", "/dev/config/changes", "/dev/admin/delete_topics", "/dev/consumers"),
        )
        until(lambda: has(ensemble, *wanted), node.log_tail)
        lose(ensemble)
        until(partial(says_so, node), node.log_tail)
        assert "it has lost its data; this node writes its registration and topics there again" in of(node)[LOST]
        until(lambda: has(ensemble, *wanted), lambda: str([each for each in wanted if not has(ensemble, each)]))
        assert committed(node.address) == {0: 5, 1: 5}


def test_nodes_of_a_cluster_say_so_and_go_on_with_what_is_in_sync(tmp_path: Path, ensemble: LocalEnsemble) -> None:
    with running_cluster(tmp_path, ensemble.connect) as cluster:
        with Admin(bootstrap_servers=cluster.address) as admin:
            admin.create_topic("t", 2, replication_factor=3)
        write_and_commit(cluster.address, "t")
        empty_disk(ensemble)
        for node in cluster.nodes.values():
            until(partial(says_so, node), cluster.log_tail)
            assert "knows no cluster (/cluster/id): it has lost its data; what is in sync is served" in of(node)[LOST]
        assert committed(cluster.address) == {0: 5, 1: 5}
        write_and_commit(cluster.address, "t")
        assert committed(cluster.address) == {0: 10, 1: 10}
        assert not has(ensemble, "/cluster/id")
