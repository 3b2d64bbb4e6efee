"""Heartbeats that say what the last one said are told by their bytes: each reaches its handler as it was meant."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.connections.listener import ConnectionListener
from tests.support.kafka.client import KafkaClient, frame
from tests.support.kafka.listener import LIMITS, HeldHandlers, client, listening
from tests.support.kafka.memory_node import MemoryNode, until

SAID = [
    (4, "a", 1),
    (4, "a", 1),
    (4, "a", 1),
    (4, "b", 1),  # another one
    (4, "a", 1),
    (4, "a", 2),  # in another generation
    (3, "a", 2),  # the same in another version
    (3, "a", 2),
    (4, "aa", 2),
    (4, "a", 2),
    (1, "a", 2),
    (2, "a", 2),  # the same bytes as in version 1 but for that
]
REBALANCE_IN_PROGRESS = 27


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def test_each_is_what_it_says_whatever_came_before() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (_, port), client(port) as connection:
            for version, member, generation in SAID:
                connection.send("Heartbeat", version, group_id="g", generation_id=generation, member_id=member)
            await handlers.until_begun(len(SAID))
            begun = [
                (call.api_version, request.member_id, request.generation_id) for _, request, call in handlers.begun
            ]
            assert begun == SAID
            for index in range(len(SAID)):
                handlers.answer(index, error_code=index)
            answered = [(await connection.receive()).error_code for _ in SAID]
            assert answered == list(range(len(SAID))), "each under its own correlation id, which receive looks at"

    run(story())


@pytest.mark.parametrize("client_id", ["test", "another", None])
def test_another_client_id_is_another_caller(client_id: str | None) -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (_, port), client(port) as connection:
            beat = struct("HeartbeatRequest")(group_id="g", generation_id=1, member_id="a")
            for number, who in enumerate(["test", client_id, client_id], 1):
                connection.writer.write(frame("Heartbeat", 4, number, beat, who, b"\0"))
            await handlers.until_begun(3)
            assert [call.client_id for _, _, call in handlers.begun] == ["test", client_id or "", client_id or ""]

    run(story())


def test_what_comes_in_pieces_is_the_same() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (_, port), client(port) as connection:
            beat = struct("HeartbeatRequest")(group_id="g", generation_id=1, member_id="a")
            whole = b"".join(frame("Heartbeat", 4, number, beat, "test", b"\0") for number in range(3))
            third = len(whole) // 3
            for begin, end in ((0, third + 5), (third + 5, 2 * third + 3), (2 * third + 3, len(whole))):
                connection.writer.write(whole[begin:end])
                await connection.writer.drain()
                await handlers.until_begun(end // third)
            assert [request.member_id for _, request, _ in handlers.begun] == ["a"] * 3

    run(story())


def test_the_same_words_are_answered_otherwise_once_the_group_calls_its_members_back() -> None:
    async def story() -> None:
        async with MemoryNode({"t": 1}) as node:
            listener = ConnectionListener(LIMITS)
            port = listener.bind("127.0.0.1", 0)
            await listener.start(node.dispatch, None)
            async with client(port) as one, client(port) as two:
                first = await joined(one)
                beat = {"group_id": "g", "generation_id": first.generation_id, "member_id": first.member_id}
                assert [(await one.ask("Heartbeat", 4, **beat)).error_code for _ in range(3)] == [0, 0, 0]
                newcomer = await two.ask("JoinGroup", 7, **JOIN)
                two.send("JoinGroup", 7, **JOIN, member_id=newcomer.member_id)
                await until(lambda: node.driver.parked > 0)
                assert (await one.ask("Heartbeat", 4, **beat)).error_code == REBALANCE_IN_PROGRESS
            await listener.close(0.1)

    run(story())


JOIN: dict[str, Any] = {
    "group_id": "g",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "protocols": [struct("JoinGroupRequest.protocols")(name="range", metadata=b"")],
}


async def joined(connection: KafkaClient) -> Any:
    """The only member of the group, which is stable."""
    first = await connection.ask("JoinGroup", 7, **JOIN)
    answer = await connection.ask("JoinGroup", 7, **JOIN, member_id=first.member_id)
    await connection.ask(
        "SyncGroup", 3, group_id="g", generation_id=answer.generation_id, member_id=answer.member_id, assignments=[]
    )
    return answer
