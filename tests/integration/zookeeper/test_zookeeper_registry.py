"""What a node writes into ZooKeeper, read back with plain kazoo, and what it refuses."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.server.node.node import CoordinatorNode
from muster.coordinator.zookeeper.errors import ZooKeeperUnreachable
from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from muster.coordinator.zookeeper.node_registry import (
    ClusterForgotten,
    ClusterMismatch,
    ClusterNodesRegistered,
    NodeIdTaken,
)
from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.errors import DataDirectoryError
from muster.storage.topics.catalog import format_id
from muster.storage.types import Topic
from tests.integration.conftest import Run
from tests.integration.zookeeper.test_zookeeper_session import expire
from tests.support.grpc_node import connected, create_topic, settings
from tests.support.kafka.node import kafka
from tests.support.node import NodeProcess
from tests.support.zookeeper.consumers import wait_for

SESSION = {"zookeeper_session_timeout_ms": "1000", "zookeeper_connection_timeout_ms": "20000"}


@contextmanager
def plain(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=connect, timeout=10)
    client.start(timeout=20)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@asynccontextmanager
async def node_at(data: Path, connect: str, number: int = 1, **more: str) -> AsyncIterator[CoordinatorNode]:
    node = CoordinatorNode(settings(data, node_id=str(number), zookeeper_connect=connect, **SESSION, **more))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


async def until(true: Callable[[], object]) -> None:
    """Poll in a thread, so that the node's loop goes on, until it is so."""

    def poll() -> bool:
        return bool(true())

    async with asyncio.timeout(30):
        while not await asyncio.to_thread(poll):
            pass


def body(client: KazooClient, path: str) -> Any:
    return json.loads(client.get(path)[0])


def is_there(client: KazooClient, path: str) -> Callable[[], object]:
    return lambda: client.exists(path)


def test_the_layout_of_a_node_path_by_path(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_at(tmp_path / "d", zookeeper) as node, connected(node) as channel:
            await create_topic(channel, "orders", 2)
            with plain(zookeeper) as zk:
                last = "/brokers/topics/orders/partitions/1/state"
                await until(is_there(zk, last))
                port = node.bound.port
                registration = body(zk, "/brokers/ids/1")
                timestamp = registration.pop("timestamp")
                assert timestamp.isdigit()
                assert registration == {
                    "listener_security_protocol_map": {},
                    "endpoints": [],
                    "jmx_port": -1,
                    "host": None,
                    "port": -1,
                    "version": 4,
                    "muster": {"endpoints": [f"GRPC://127.0.0.1:{port}"]},
                }
                assert zk.exists("/brokers/ids/1").ephemeralOwner != 0
                topic_id = format_id(node.broker.topic("orders").id)
                assert body(zk, "/brokers/topics/orders") == {
                    "version": 1,
                    "partitions": {"0": [1], "1": [1]},
                    "muster": {"topic_id": topic_id},
                }
                assert zk.exists("/brokers/topics/orders").ephemeralOwner == 0
                assert sorted(zk.get_children("/brokers/topics/orders/partitions")) == ["0", "1"]
                assert body(zk, last) == {
                    "controller_epoch": 1,
                    "leader": 1,
                    "version": 1,
                    "leader_epoch": 0,
                    "isr": [1],
                }
                assert body(zk, "/controller")["brokerid"] == 1
                assert zk.exists("/controller").ephemeralOwner == zk.exists("/brokers/ids/1").ephemeralOwner
                assert zk.get("/controller_epoch")[0] == b"1"
                assert body(zk, "/cluster/id") == {"version": "1", "id": node.broker.cluster_id}
                roots = {"admin", "brokers", "cluster", "config", "consumers", "controller", "controller_epoch"}
                assert roots <= set(zk.get_children("/"))
        with plain(zookeeper) as zk:
            assert zk.get_children("/brokers/ids") == []
            assert not zk.exists("/controller")
            assert zk.get_children("/brokers/topics") == ["orders"]

    run(story)


def test_topics_grow_and_go_in_zookeeper_too(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_at(tmp_path / "d", zookeeper) as node, connected(node) as channel:
            await create_topic(channel, "t", 1)
            with plain(zookeeper) as zk:
                await until(is_there(zk, "/brokers/topics/t/partitions/0/state"))
                node.broker.add_partitions("t", 3)
                await until(is_there(zk, "/brokers/topics/t/partitions/2/state"))
                assert body(zk, "/brokers/topics/t")["partitions"] == {"0": [1], "1": [1], "2": [1]}
                node.broker.delete_topic("t")
                await until(lambda: not zk.exists("/brokers/topics/t"))
                # Made anew, even between two looks, it has its states again.
                for _ in range(3):
                    node.broker.create_topic("t", 1)
                    await until(is_there(zk, "/brokers/topics/t/partitions/0/state"))
                    node.broker.delete_topic("t")
                node.broker.create_topic("t", 1)
                await until(is_there(zk, "/brokers/topics/t/partitions/0/state"))
                zk.set("/brokers/topics/t/partitions/0/state", b"rubbish")
                zk.set("/brokers/topics/t", b"rubbish")
                await until(lambda: zk.get("/brokers/topics/t")[0] != b"rubbish")

    run(story)


def test_what_changed_while_zookeeper_was_not_looked_at_is_made_good(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_at(tmp_path / "d", zookeeper) as node, connected(node) as channel:
            await create_topic(channel, "stays", 1)
            await create_topic(channel, "goes", 1)
            with plain(zookeeper) as zk:
                await until(is_there(zk, "/brokers/topics/goes/partitions/0/state"))
        with plain(zookeeper) as zk:
            zk.create("/brokers/topics/foreign", b'{"version":1,"partitions":{"0":[7]}}')
        alone = CoordinatorNode(settings(tmp_path / "d"))
        await alone.start()
        alone.broker.delete_topic("goes")
        await alone.stop()
        async with node_at(tmp_path / "d", zookeeper):
            with plain(zookeeper) as zk:
                await until(lambda: sorted(zk.get_children("/brokers/topics")) == ["foreign", "stays"])
                await until(is_there(zk, "/brokers/topics/foreign/partitions/0/state"))
                assert body(zk, "/brokers/topics/foreign/partitions/0/state")["leader"] == -1

    run(story)


def test_a_client_that_asks_for_another_brokers_topic_does_not_make_its_twin(
    zookeeper: str, tmp_path: Path, run: Run
) -> None:
    """By /brokers/topics, as the node found it when it started and as it changes: consumers of that era ask anybody."""

    async def story() -> None:
        async with (
            node_at(tmp_path / "a", zookeeper, 1) as theirs,
            node_at(tmp_path / "b", zookeeper, 2, kafka_listeners="127.0.0.1:0") as asked,
            connected(theirs) as channel,
            kafka(asked) as client,
        ):
            await create_topic(channel, "theirs", 3)

            async def error_of(name: str) -> int:
                (topic,) = (
                    await client.ask("Metadata", 0, topics=[struct("MetadataRequest.topics")(name=name)])
                ).topics
                return int(topic.error_code)

            side = asked._backend.zookeeper
            assert side is not None
            await until(lambda: side.has_elsewhere("theirs") and not side.has_elsewhere("new"))
            assert (await error_of("theirs"), await error_of("new")) == (3, 0)
            assert "theirs" not in asked.broker.topics()

    run(story)


def test_an_id_in_use_is_refused_with_its_holder(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_at(tmp_path / "one", zookeeper) as first:
            second = CoordinatorNode(settings(tmp_path / "two", zookeeper_connect=zookeeper, **SESSION))
            with pytest.raises(
                NodeIdTaken, match=rf"broker id 1 is registered by the node at 127\.0\.0\.1:{first.bound.port}"
            ):
                await second.start()
            assert not (tmp_path / "two").exists()
            async with node_at(tmp_path / "three", zookeeper, number=3) as third:
                assert third.broker.cluster_id == first.broker.cluster_id

    run(story)


def test_a_node_on_its_own_leaves_a_cluster_alone(zookeeper: str, tmp_path: Path, run: Run) -> None:
    """CL-M1, of nodes of a cluster: their controller and topics are no business of it, be one of them up or
    not."""
    told = {"host": "h", "port": 9092, "endpoints": [], "version": 4, "muster": {"directory": "a" * 22, "features": 1}}

    async def story(why: str) -> None:
        node = CoordinatorNode(settings(tmp_path / "one", zookeeper_connect=zookeeper, **SESSION))
        with pytest.raises(ClusterNodesRegistered, match=why):
            await node.start()
        assert not (tmp_path / "one").exists()

    with plain(zookeeper) as client:
        client.create("/muster/cluster/version", b"{}", makepath=True)
        run(lambda: story("a cluster's, of which no node is up now"))
        client.create("/brokers/ids/7", json.dumps(told).encode(), makepath=True)
        run(lambda: story("nodes that make a cluster: 7 at h:9092; this one has no inter.broker.listeners"))
        assert client.exists("/brokers/ids/1") is None
        assert client.exists("/controller") is None


def test_a_node_that_may_not_have_its_directory_leaves_nothing_in_zookeeper(
    zookeeper: str, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letter.txt").write_text("dear")

    async def story() -> None:
        async with node_at(tmp_path / "one", f"{zookeeper}/a"):
            for name, why in (("one", "is in use by process"), ("foreign", "is no Muster data directory")):
                node = CoordinatorNode(settings(tmp_path / name, zookeeper_connect=f"{zookeeper}/other", **SESSION))
                with pytest.raises(DataDirectoryError, match=why):
                    await node.start()
            with plain(zookeeper) as zk:
                assert zk.exists("/a/cluster/id")
                assert not zk.exists("/other")

    run(story)


def test_the_node_of_another_cluster_is_refused(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_at(tmp_path / "one", f"{zookeeper}/a"):
            pass
        async with node_at(tmp_path / "two", f"{zookeeper}/b"):
            pass
        stranger = CoordinatorNode(settings(tmp_path / "one", zookeeper_connect=f"{zookeeper}/b", **SESSION))
        with pytest.raises(ClusterMismatch, match="the data directory belongs to cluster"):
            await stranger.start()
        async with node_at(tmp_path / "one", f"{zookeeper}/c") as moved:
            with plain(f"{zookeeper}/c") as zk:
                assert body(zk, "/cluster/id")["id"] == moved.broker.cluster_id

    run(story)


def test_a_cluster_s_node_begins_no_cluster_in_a_zookeeper_that_lost_its_data(
    zookeeper: str, tmp_path: Path, run: Run
) -> None:
    """It named the empty ensemble by its old id, made new internal topics, and the groups' logs became strays."""
    broker = Broker(tmp_path, LogSettings(), node_id=1, cluster_id="c9vPX0gkTYG0pVvlwLZ_sQ")
    broker.host([Topic("orders", b"o" * 16, 1, {}, held=(0,))])
    broker.close()

    async def story() -> None:
        node = CoordinatorNode(
            settings(tmp_path, zookeeper_connect=zookeeper, inter_broker_listeners="127.0.0.1:0", **SESSION)
        )
        with pytest.raises(ClusterForgotten, match=r"copies of topics of cluster c9v.*sQ \(orders\): .* restore ZooK"):
            await node.start()
        with plain(zookeeper) as zk:
            assert not zk.exists("/cluster/id")
            assert not zk.exists("/brokers/ids")

    run(story)


def test_of_a_race_for_the_clusters_name_one_wins(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        nodes = [
            CoordinatorNode(settings(tmp_path / str(n), node_id=str(n), zookeeper_connect=zookeeper, **SESSION))
            for n in (1, 2, 3)
        ]
        await asyncio.gather(*(node.start() for node in nodes))
        try:
            assert len({node.broker.cluster_id for node in nodes}) == 1
        finally:
            await asyncio.gather(*(node.stop() for node in nodes))

    run(story)


def test_a_dead_brokers_partitions_have_no_leader_until_it_returns(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_at(tmp_path / "one", zookeeper):
            with plain(zookeeper) as zk:
                state = "/brokers/topics/t/partitions/0/state"
                async with node_at(tmp_path / "two", zookeeper, number=2) as two, connected(two) as channel:
                    await create_topic(channel, "t", 1)
                    await until(is_there(zk, state))
                    assert body(zk, state)["leader"] == 2
                await until(lambda: body(zk, state)["leader"] == -1)
                assert (body(zk, state)["isr"], body(zk, state)["leader_epoch"]) == ([2], 1)
                async with node_at(tmp_path / "two", zookeeper, number=2):
                    await until(lambda: body(zk, state)["leader"] == 2)
                    assert body(zk, state)["leader_epoch"] == 2

    run(story)


def test_a_node_whose_session_expired_registers_again(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_at(tmp_path / "d", zookeeper) as node, connected(node) as channel:
            side = node._backend.zookeeper
            assert side is not None
            with plain(zookeeper) as zk:
                before = zk.exists("/brokers/ids/1").ephemeralOwner
                await until(is_there(zk, "/controller"))
                await asyncio.to_thread(expire, side.session)
                await until(lambda: (found := zk.exists("/brokers/ids/1")) and found.ephemeralOwner != before)
                await until(is_there(zk, "/controller"))
                assert zk.get("/controller_epoch")[0] == b"2"
                zk.delete("/brokers/ids/1")  # by hand
                await until(is_there(zk, "/brokers/ids/1"))
                await create_topic(channel, "t", 1)
                await until(is_there(zk, "/brokers/topics/t/partitions/0/state"))
                assert body(zk, "/brokers/topics/t/partitions/0/state")["controller_epoch"] == 2

    run(story)


def test_without_a_quorum_the_node_goes_on_serving(zookeeper_ensemble: LocalEnsemble, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_at(tmp_path / "d", f"{zookeeper_ensemble.connect}/serving") as node, connected(node) as channel:
            side = node._backend.zookeeper
            assert side is not None
            for number in (1, 2):
                await asyncio.to_thread(zookeeper_ensemble.kill, number)
            await create_topic(channel, "made-meanwhile", 1)
            await asyncio.to_thread(zookeeper_ensemble.start)
            with plain(f"{zookeeper_ensemble.connect}/serving") as zk:
                await until(is_there(zk, "/brokers/topics/made-meanwhile/partitions/0/state"))
                await until(is_there(zk, "/brokers/ids/1"))

    run(story)


def test_a_killed_node_waits_for_its_own_earlier_session(zookeeper: str, tmp_path: Path) -> None:
    given = {
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": "1000",
        "zookeeper.connection.timeout.ms": "20000",
    }
    node = NodeProcess(tmp_path / "d", given)
    node.start()
    try:
        with plain(zookeeper) as zk, ThreadPoolExecutor(1) as aside:
            written = zk.get("/brokers/ids/1")[0]
            node.kill()
            wait_for(lambda: zk.exists("/brokers/ids/1") is None, "the session of the killed node ends")
            # Another session stands for one that would have lasted longer.
            zk.create("/brokers/ids/1", written, ephemeral=True)
            started = aside.submit(node.start)
            waits = "waiting for an earlier session of this node to end"
            wait_for(lambda: waits in node.log_tail(), "the node says that it waits")
            assert not started.done()
            zk.delete("/brokers/ids/1")
            started.result(60)
            assert zk.exists("/brokers/ids/1").ephemeralOwner != zk.client_id[0]
    finally:
        node.stop()


def test_a_node_that_slept_through_its_session_registers_again_on_waking(zookeeper: str, tmp_path: Path) -> None:
    node = NodeProcess(
        tmp_path / "d",
        {
            "zookeeper.connect": zookeeper,
            "zookeeper.session.timeout.ms": "1000",
            "zookeeper.connection.timeout.ms": "20000",
        },
    )
    node.start()
    try:
        with plain(zookeeper) as zk:
            first = zk.exists("/brokers/ids/1").ephemeralOwner
            wait_for(is_there(zk, "/controller"), "it is the controller")
            assert node._process is not None
            node._process.send_signal(signal.SIGSTOP)
            wait_for(lambda: not zk.exists("/brokers/ids/1"), "its session ends")
            assert not zk.exists("/controller")
            node._process.send_signal(signal.SIGCONT)
            wait_for(is_there(zk, "/brokers/ids/1"), "it registers again")
            assert zk.exists("/brokers/ids/1").ephemeralOwner != first
            wait_for(is_there(zk, "/controller"), "it stands again")
            assert zk.get("/controller_epoch")[0] == b"2"
    finally:
        node.stop()


def test_no_zookeeper_no_start(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        node = CoordinatorNode(
            settings(tmp_path / "d", zookeeper_connect="127.0.0.1:1", zookeeper_connection_timeout_ms="300")
        )
        with pytest.raises(ZooKeeperUnreachable, match="muster zookeeper start"):
            await node.start()
        assert not (tmp_path / "d").exists()

    run(story)
