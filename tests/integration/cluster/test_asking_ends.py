"""Where logs begin and end, asked at the gRPC door of a real node as another node of its cluster asks."""

import asyncio
from pathlib import Path

from muster.coordinator.cluster.facts import Endpoint
from muster.coordinator.cluster.image import NodeView
from muster.coordinator.replication.ends import EARLIEST, LATEST
from muster.coordinator.server.clustered.asking import AsksByGrpc, Channels
from muster.storage.broker.requests import wall_clock_ms
from tests.support.cluster_image import ThreeNodes, node
from tests.support.grpc_node import serving
from tests.unit.storage.logs import batch


def at_port(node_id: int, port: int) -> NodeView:
    return NodeView(node_id, 200 + node_id, endpoints=(Endpoint("GRPC", "127.0.0.1", port),))


def test_a_leader_says_where_its_logs_begin_and_end_and_one_that_is_away_says_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        cluster = ThreeNodes()
        channels = Channels(cluster.view)
        asks = AsksByGrpc(channels)
        places = [("t", 0), ("t", 1), ("none", 0)]
        async with serving(tmp_path) as leader:
            leader.broker.create_topic("t", 2)
            leader.broker.append("t", 0, batch(b"a", b"b"), wall_clock_ms())
            leader.broker.flush()
            leader.broker.delete_records("t", 0, 1)
            cluster.nodes(at_port(8, leader.bound.port))
            assert await asks(8, places, LATEST) == {("t", 0): 2, ("t", 1): 0}
            assert await asks(8, places, EARLIEST) == {("t", 0): 1, ("t", 1): 0}
        assert await asks(8, places, LATEST) == {}, "it was stopped"
        cluster.nodes(node(8, gone=True))
        assert await asks(8, places, LATEST) == {}
        async with serving(tmp_path) as leader:
            cluster.nodes(at_port(8, leader.bound.port))
            assert await asks(8, places, LATEST) == {("t", 0): 2, ("t", 1): 0}, "it is back, elsewhere"
        await channels.close()

    asyncio.run(story())
