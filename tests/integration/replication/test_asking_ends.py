"""Where logs begin and end, asked at the doors of real nodes by another node of their cluster."""

import asyncio
from pathlib import Path

from muster.coordinator.config import Address
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.remote_log_ends import EARLIEST, LATEST, LogEndsClient
from muster.coordinator.replication.io.wire.node_api import LogEndsQuery
from muster.coordinator.replication.io.wire.node_codec import MOST_LOGS
from muster.coordinator.replication.io.wire.node_links import LinkCaller, NodeLink
from muster.coordinator.replication.protocol.cluster_metadata import ClusterTopic, ReplicaAssignment, TopicPartition
from tests.support.sides import CLUSTER, Sides

ID, OTHER_ID = b"i" * 16, b"o" * 16
PLACE = TopicPartition("orders", 0)
REPLICAS = (ReplicaAssignment((1, 2)), ReplicaAssignment((2, 1)))


def test_a_leader_says_where_its_logs_begin_and_end_and_others_say_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with Sides(tmp_path) as sides:
            sides.standing.make(ClusterTopic("orders", ID, REPLICAS, {"min.insync.replicas": "1"}))
            one, _, three = sides.nodes
            leader = await sides.leader(PLACE)
            await sides.until(lambda: three.side.image.partition(PLACE) is not None)
            assert leader is one
            assert await leader.produce(PLACE, b"a", b"b", b"c") is ErrorCode.NONE
            asks = LogEndsClient(three.side.image, three.side.calling)
            places = [PLACE, ("orders", 1), ("none", 0)]
            assert await asks(1, places, LATEST) == {PLACE: 3}, "what it leads, and that exists"
            assert await asks(1, places, EARLIEST) == {PLACE: 0}
            assert await asks(2, [PLACE], LATEST) == {}, "a follower may be behind"
            await sides.stop(one)
            assert await asks(1, places, LATEST) == {}
            asks.close()

    asyncio.run(story())


def test_a_topic_that_was_made_again_is_another_and_nobody_asks_for_everything_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with Sides(tmp_path, 1) as sides:
            sides.standing.make(ClusterTopic("orders", ID, (ReplicaAssignment((1,)),), {"min.insync.replicas": "1"}))
            leader = await sides.leader(PLACE)
            address: Address = leader.side._door.bound
            link = await NodeLink.connect(address, LinkCaller(CLUSTER, 2), timeout_s=60)
            assert len(await link.log_ends(LogEndsQuery(False, ((ID, 0), (OTHER_ID, 0))), deadline_s=60)) == 1
            many = tuple((ID, 0) for _ in range(MOST_LOGS + 1))
            assert await link.log_ends(LogEndsQuery(False, many), deadline_s=60) == []
            link.close()

    asyncio.run(story())
