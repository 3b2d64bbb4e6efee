"""Nodes that join at a real ZooKeeper: one is the controller, internal topics come to be, all have copies of them."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from muster.coordinator.config import Address, load_settings
from muster.coordinator.edge.cluster_view import ClientAddresses
from muster.coordinator.replication.protocol.cluster_metadata import ELECTIONS, LEDGER, OFFSETS
from muster.coordinator.server.cluster_backend.cluster_backend import ClusterBackend
from muster.coordinator.zookeeper.node_registry import NodeIdTaken
from muster.storage.broker.broker import Broker
from tests.integration.conftest import Run

pytestmark = pytest.mark.integration

SHARDS = 4


class JoiningNode:
    """As much of a node as joins."""

    def __init__(self, node: int, connect: str, directory: Path, **settings: str) -> None:
        self.id = node
        self.settings = load_settings(
            overrides={
                "node.id": str(node),
                "log.dirs": str(directory),
                "zookeeper.connect": connect,
                "inter.broker.listeners": "127.0.0.1:0",
                "offsets.topic.num.partitions": str(SHARDS),
                **settings,
            }
        )
        self.joined = ClusterBackend(self.settings, None)

    async def start(self) -> None:
        self.joined.bind()
        cluster = await self.joined.meet(None, "c9vPX0gkTYG0pVvlwLZ_sQ", lambda event: None)
        self.broker = Broker(self.settings.data_dir, self.settings, node_id=self.id, cluster_id=cluster)
        await self.joined.enter(self.broker, ClientAddresses(Address("127.0.0.1", 9000 + self.id), None, None))

    async def stop(self) -> None:
        await self.joined.close()
        if hasattr(self, "broker"):
            self.broker.close()


def test_three_nodes_join_and_share_the_internal_topics(zookeeper: str, tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with AsyncExitStack() as stack:
            nodes = [JoiningNode(node, zookeeper, tmp_path / str(node)) for node in (1, 2, 3)]
            for node in nodes:
                stack.push_async_callback(node.stop)
                await node.start()
            assert [node.joined.is_controller for node in nodes] == [True, False, False]

            def whole() -> bool:
                views = [node.joined.view for node in nodes]
                return all(
                    len(view.nodes("GRPC")) == 3
                    and {OFFSETS, LEDGER, ELECTIONS} <= set(view.topics())
                    and all(
                        set(part.isr) == {1, 2, 3} and part.leader >= 0
                        for topic in view.topics().values()
                        for part in topic.partitions.values()
                    )
                    for view in views
                )

            changed = asyncio.Event()
            for node in nodes:
                node.joined.side.on_learned(lambda changes: changed.set())
            while not whole():
                await changed.wait()
                changed.clear()
            assert {node.joined.view.controller for node in nodes} == {1}
            leaders = {nodes[0].joined.view.coordinator(shard, "GRPC") for shard in range(SHARDS)}
            assert len({leader.node_id for leader in leaders if leader is not None}) == 3
            for node in nodes:
                assert set(node.broker.topics()[OFFSETS].here) == set(range(SHARDS))
            fourth = JoiningNode(4, zookeeper, tmp_path / "4", **{"offsets.topic.num.partitions": "9"})
            stack.push_async_callback(fourth.stop)
            await fourth.start()
            assert fourth.joined.shards == SHARDS, "the cluster's count goes before a node's own (C12)"

    run(story)


def test_a_node_id_is_one_directory_s(zookeeper: str, tmp_path: Path, run: Run) -> None:
    """CL-Z3."""

    async def story() -> None:
        async with AsyncExitStack() as stack:
            one, other = (JoiningNode(1, zookeeper, tmp_path / name) for name in ("a", "b"))
            for node in (one, other):
                stack.push_async_callback(node.stop)
            await one.start()
            with pytest.raises(NodeIdTaken, match="another data directory"):
                await other.start()

    run(story)
