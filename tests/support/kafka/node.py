"""A node in the test's own process with Kafka's door open, and the steps by which its groups come to life there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.server.node.node import CoordinatorNode
from tests.support.grpc_node import serving
from tests.support.kafka.client import KafkaClient

SUBSCRIPTION = encode_subscription(Subscription(version=1, topics=("t",)))


@asynccontextmanager
async def kafka_node(data: Path, **more: str) -> AsyncIterator[CoordinatorNode]:
    async with serving(data, kafka_listeners="127.0.0.1:0", **more) as node:
        yield node


def kafka(node: CoordinatorNode, client_id: str | None = "c") -> KafkaClient:
    """A client of the node; use it in an `async with`."""
    assert node.kafka_bound is not None
    return KafkaClient(*node.kafka_bound, client_id)


async def create_topic(client: KafkaClient, name: str, partitions: int) -> bytes:
    """Make a topic and return its id."""
    wanted = struct("CreateTopicsRequest.topics")(name=name, num_partitions=partitions, replication_factor=1)
    (made,) = (await client.ask("CreateTopics", 7, topics=[wanted], timeout_ms=10_000)).topics
    assert made.error_code == 0
    return bytes(made.topic_id)


def send_join(client: KafkaClient, member_id: str = "", version: int = 7, **more: object) -> None:
    protocol = struct("JoinGroupRequest.protocols")(name="range", metadata=SUBSCRIPTION)
    fields: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [protocol],
    }
    client.send("JoinGroup", version, **fields | more)


async def join(client: KafkaClient, member_id: str = "", version: int = 7, **more: object) -> Any:
    """The answer to a join, that to the second one where the first was sent back with an id."""
    send_join(client, member_id, version, **more)
    answer = await client.receive()
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        send_join(client, answer.member_id, version, **more)
        answer = await client.receive()
    return answer


async def sync(
    client: KafkaClient, joined: Any, shares: dict[str, dict[str, tuple[int, ...]]], version: int = 3
) -> Any:
    """Hand in a plan, or an empty one as a follower."""
    rows = [
        struct("SyncGroupRequest.assignments")(member_id=member, assignment=encode_assignment(share))
        for member, share in shares.items()
    ]
    return await client.ask(
        "SyncGroup",
        version,
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=rows,
    )


async def lone_member(client: KafkaClient) -> Any:
    """The answer to the join of the only member of a stable group."""
    joined = await join(client)
    assert (joined.error_code, joined.leader) == (0, joined.member_id)
    synced = await sync(client, joined, {joined.member_id: {"t": (0, 1)}})
    assert synced.error_code == 0
    return joined


def beat(joined: Any) -> dict[str, Any]:
    """The fields of this member's heartbeat."""
    return {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
