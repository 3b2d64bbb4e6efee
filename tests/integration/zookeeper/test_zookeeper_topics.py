"""Topics that tools of the ZooKeeper era create, grow, delete and configure at nodes that make no cluster.

Written with plain kazoo as `kafka-topics --zookeeper` writes; the tools themselves are in tests/era.
"""

import json
from pathlib import Path

from kazoo.client import KazooClient

from muster.coordinator.server.node.node import CoordinatorNode
from tests.integration.conftest import Run
from tests.integration.zookeeper.test_zookeeper_registry import body, is_there, node_at, plain, until
from tests.support.grpc_node import connected, create_topic, settings


def put(client: KazooClient, path: str, found: object) -> None:
    data = json.dumps(found).encode()
    if client.exists(path):
        client.set(path, data)
    else:
        client.create(path, data, makepath=True)


def create_by_tool(client: KazooClient, name: str, partitions: dict[str, list[int]], **configs: str) -> None:
    """The settings come first, as in every version."""
    put(
        client, f"/config/topics/{name}", {"version": 1, "config": {k.replace("_", "."): v for k, v in configs.items()}}
    )
    put(client, f"/brokers/topics/{name}", {"version": 1, "partitions": partitions})


def counts(node: CoordinatorNode) -> dict[str, int]:
    return {name: topic.partitions for name, topic in node.broker.topics().items() if not topic.internal}


def test_what_a_tool_writes_takes_effect(zookeeper: str, tmp_path: Path, run: Run) -> None:
    """The node removed what was created, wrote the old count over what had grown, and left markers lying."""

    async def story() -> None:
        async with node_at(tmp_path / "d", zookeeper) as node:
            with plain(zookeeper) as zk:
                create_by_tool(zk, "made", {"0": [1], "1": [1]}, retention_ms="60000")
                await until(lambda: counts(node) == {"made": 2})
                assert node.broker.topic("made").configs == {"retention.ms": "60000"}
                await until(lambda: "muster" in body(zk, "/brokers/topics/made"))
                await until(is_there(zk, "/brokers/topics/made/partitions/1/state"))

                put(zk, "/brokers/topics/made", {"version": 1, "partitions": {"0": [1], "1": [1], "2": [1]}})
                await until(lambda: counts(node) == {"made": 3})
                await until(is_there(zk, "/brokers/topics/made/partitions/2/state"))

                put(zk, "/config/topics/made", {"version": 1, "config": {"max.message.bytes": "1000"}})
                zk.create("/config/changes/config_change_", b'"made"', sequence=True)
                await until(lambda: node.broker.topic("made").configs == {"max.message.bytes": "1000"})
                await until(lambda: zk.get_children("/config/changes") == [])

                zk.create("/admin/delete_topics/made")
                zk.create("/admin/delete_topics/unknown")
                await until(lambda: zk.get_children("/admin/delete_topics") == [])
                assert counts(node) == {}
                assert not zk.exists("/brokers/topics/made")
                assert not zk.exists("/config/topics/made")

    run(story)


def test_settings_are_published_so_that_tools_change_what_there_is(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_at(tmp_path / "d", zookeeper) as node:
            with plain(zookeeper) as zk:
                node.broker.create_topic("t", 1, {"retention.ms": "5000"})
                await until(is_there(zk, "/config/topics/t"))
                assert body(zk, "/config/topics/t") == {"version": 1, "config": {"retention.ms": "5000"}}
                put(zk, "/config/topics/t", {"version": 1, "config": {"retention.ms": "many"}})
                zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"topics/t"}', sequence=True)
                await until(lambda: body(zk, "/config/topics/t")["config"] == {"retention.ms": "5000"})
                assert node.broker.topic("t").configs == {"retention.ms": "5000"}

    run(story)


def test_what_was_asked_for_while_the_node_was_down_is_done_when_it_is_back(
    zookeeper: str, tmp_path: Path, run: Run
) -> None:
    """And what the node deleted while ZooKeeper was away does not come back with it."""

    async def story() -> None:
        async with node_at(tmp_path / "d", zookeeper) as node, connected(node) as channel:
            for name in ("stays", "goes", "asked"):
                await create_topic(channel, name, 1)
            node.broker.create_topic("set", 1, {"retention.ms": "5000"})
            with plain(zookeeper) as zk:
                for name in ("stays", "goes", "asked", "set"):
                    await until(is_there(zk, f"/brokers/topics/{name}/partitions/0/state"))
                await until(is_there(zk, "/config/topics/set"))
        with plain(zookeeper) as zk:
            create_by_tool(zk, "made", {"0": [1]})
            zk.create("/admin/delete_topics/asked")
            put(zk, "/config/topics/goes", {"version": 1, "config": {"retention.ms": "7"}})
            put(zk, "/config/topics/set", {"version": 1, "config": {"retention.ms": "6000"}})
            zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"topics/set"}', sequence=True)
            put(zk, "/brokers/topics/stays", {"version": 1, "partitions": {"0": [1], "1": [1]}})
        alone = CoordinatorNode(settings(tmp_path / "d"))
        await alone.start()
        alone.broker.delete_topic("goes")
        await alone.stop()
        async with node_at(tmp_path / "d", zookeeper) as node:
            with plain(zookeeper) as zk:
                await until(lambda: counts(node) == {"stays": 2, "made": 1, "set": 1})
                await until(lambda: node.broker.topic("set").configs == {"retention.ms": "6000"})
                await until(lambda: sorted(zk.get_children("/brokers/topics")) == ["made", "set", "stays"])

    run(story)


def test_a_topic_spread_over_nodes_that_share_no_log_is_where_its_first_partition_is(
    zookeeper: str, tmp_path: Path, run: Run
) -> None:
    """A tool deals partitions and replicas to all brokers that it sees. It took no effect, or on one of them."""

    async def story() -> None:
        async with node_at(tmp_path / "a", zookeeper, 1) as one, node_at(tmp_path / "b", zookeeper, 2) as two:
            with plain(zookeeper) as zk:
                create_by_tool(zk, "spread", {"0": [2, 1], "1": [1, 2]})
                await until(lambda: counts(two) == {"spread": 2})
                await until(lambda: body(zk, "/brokers/topics/spread")["partitions"] == {"0": [2], "1": [2]})
                state = "/brokers/topics/spread/partitions/1/state"
                await until(lambda: zk.exists(state) and body(zk, state)["leader"] == 2)
                assert counts(one) == {}
                put(zk, "/brokers/topics/spread", {"version": 1, "partitions": {"0": [2], "1": [2], "2": [1]}})
                await until(lambda: counts(two) == {"spread": 3})
                state = "/brokers/topics/spread/partitions/2/state"
                await until(lambda: zk.exists(state) and body(zk, state)["leader"] == 2)
                assert counts(one) == {}

    run(story)


def test_what_cannot_be_done_is_undone_in_zookeeper_and_logged(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with node_at(tmp_path / "d", zookeeper) as node:
            with plain(zookeeper) as zk:
                create_by_tool(zk, "bad", {"0": [1]}, retention_ms="many")
                await until(lambda: not zk.exists("/brokers/topics/bad"))
                await until(lambda: not zk.exists("/config/topics/bad"))
                put(zk, "/admin/reassign_partitions", {"version": 1, "partitions": []})
                await until(lambda: not zk.exists("/admin/reassign_partitions"))
                put(zk, "/config/clients/c", {"version": 1, "config": {"producer_byte_rate": "1"}})
                zk.create("/config/changes/config_change_", b'{"version":2,"entity_path":"clients/c"}', sequence=True)
                await until(lambda: zk.get_children("/config/changes") == [])
                assert counts(node) == {}

    run(story)
