"""What a fetch costs that waits and finds nothing: as much for 2,000 partitions as for one (CL-F1)."""

import asyncio
import sys
from typing import Any

from muster.coordinator.kafka.codec.codec import decode_frame, encode
from muster.coordinator.kafka.dispatch import ClientPeer, KafkaCall
from muster.coordinator.replication.io.wire.node_api import PeerFetch
from muster.coordinator.replication.io.wire.node_codec import fetch_request, parse_fetch_response
from muster.coordinator.replication.io.wire.node_listener import NodeHandlers
from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterImage,
    ClusterState,
    NodeView,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.follower import Follower, LeaderFetcher, ReplicaCopy
from muster.coordinator.replication.protocol.lease import FetchSource
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas, ReplicaSettings
from muster.coordinator.replication.protocol.replica_fetch import FetchAnswer
from tests.sim.replication.disk import Disk
from tests.support.replication import CLUSTER, NAMES, TOPIC, HeldDesk

LEADER, FOLLOWER = 1, 2


class LedDesk(HeldDesk):
    """Answers by the machine of a node that leads all of `orders`."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        views = {number: PartitionView(LEADER, 3, 1, (1, 2), (), (1, 2)) for number in range(partitions)}
        self.replicas = NodeReplicas(LEADER, Disk("d"), ReplicaSettings(), 0)
        image = ClusterImage()
        nodes = (NodeView(LEADER, 10), NodeView(FOLLOWER, 20))
        told = ClusterState(
            epoch=1, sequence=1, full=True, nodes=nodes, topics=(TopicView(TOPIC, "orders", {}, views),)
        )
        changes = image.apply(told)
        assert changes is not None
        self.replicas.learn(image, changes, 0)

    def fetch(self, asked: PeerFetch) -> "asyncio.Future[FetchAnswer]":  # type: ignore[override]
        answer: asyncio.Future[FetchAnswer] = asyncio.get_running_loop().create_future()
        self.replicas.fetch(asked.request, answer.set_result, asked.max_wait_ms, 0)
        self.replicas.serving.wake(1_000)
        return answer


async def calls_of_a_fetch(partitions: int) -> int:
    """How many functions of Python are called, from the follower's wish to the leader's answer in bytes."""
    desk = LedDesk(partitions)
    copies: dict[TopicPartition, ReplicaCopy] = {}
    fetcher = LeaderFetcher(FOLLOWER, FetchSource(LEADER), copies, 100)
    handlers = NodeHandlers(desk, CLUSTER)
    call = KafkaCall(15, "", ClientPeer("", asyncio.get_running_loop().create_future()))
    log = Disk("e").open(TopicPartition("orders", 0), TOPIC)
    for number in range(partitions):
        place = TopicPartition("orders", number)
        copies[place] = ReplicaCopy(Follower(place, 3, LEADER, end=0, last_epoch=-1, high_watermark=0), log, TOPIC)
        fetcher.add(place)

    async def fetch() -> None:
        asked = fetcher.request(20, 0)
        assert asked is not None
        sent = fetch_request(CLUSTER, asked, max_wait_ms=500, min_bytes=1)
        request = decode_frame("FetchRequest", 15, b"".join(encode("FetchRequest", 15, sent)))
        later = handlers.fetch_now(request, call)
        await later.future
        response = later.respond()
        told = decode_frame("FetchResponse", 15, b"".join(encode("FetchResponse", 15, response)))
        fetcher.answered(asked, parse_fetch_response(told, NAMES.get), 0)

    for _ in range(3):
        await fetch()
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        await fetch()
    finally:
        sys.setprofile(None)
    return calls


def test_a_fetch_of_nothing_costs_the_same_whatever_the_session_has() -> None:
    few, many = (asyncio.run(calls_of_a_fetch(partitions)) for partitions in (1, 2_000))
    assert few == many < 100
