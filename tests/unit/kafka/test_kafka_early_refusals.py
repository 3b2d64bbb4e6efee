"""A request that lists too much is refused by its first bytes, and nothing is kept of the rest; over a real socket."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import decode_frame, struct
from muster.coordinator.kafka.connections.connection import (
    INSPECTED_BYTES,
    MAX_BYTES_PER_TURN,
    ServerConnection,
    early_refusal,
)
from muster.coordinator.kafka.connections.received_requests import FrameBuffer
from tests.fuzz.targets import Wire
from tests.fuzz.test_full_lists import LIMITS, peak_below
from tests.support.kafka.client import PATIENCE_S, KafkaClient, frame
from tests.support.kafka.listener import HeldHandlers, client, listening
from tests.support.kafka.memory_node import MemoryNode
from tests.support.pace import pace

ENTRIES = 200_000
SIZE = 4 * ENTRIES


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def too_much(correlation: int, entries: int = ENTRIES) -> bytes:
    topic = struct("OffsetFetchRequest.topics")(name="t", partition_indexes=[0] * entries)
    return frame("OffsetFetch", 5, correlation, struct("OffsetFetchRequest")(group_id="nobody", topics=[topic]))


async def answered(connection: KafkaClient) -> tuple[int, int]:
    """The correlation id and the code of the OffsetFetch that is answered next."""
    async with asyncio.timeout(PATIENCE_S * pace()):
        size = int.from_bytes(await connection.reader.readexactly(4), "big")
        answer = await connection.reader.readexactly(size)
    return int.from_bytes(answer[:4], "big"), decode_frame("OffsetFetchResponse", 5, answer, 4).error_code


def test_the_refusal_is_there_before_the_rest_of_the_request() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (_, port), client(port) as connection:
            request = too_much(7)
            connection.writer.write(request[: 2 * INSPECTED_BYTES])
            assert await answered(connection) == (7, ErrorCode.INVALID_REQUEST)
            connection.writer.write(request[2 * INSPECTED_BYTES :] + too_much(8))
            assert await answered(connection) == (8, ErrorCode.INVALID_REQUEST)
            connection.send("Heartbeat", 4, group_id="g", generation_id=1, member_id="m")
            await handlers.until_begun(1)
            assert handlers.begun[0][1].member_id == "m"

    run(story())


def test_it_waits_for_the_answers_that_are_due_before_it() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (_, port), client(port) as connection:
            connection.send("JoinGroup", 7, group_id="g", session_timeout_ms=10_000)
            await handlers.until_begun(1)
            connection.writer.write(too_much(9))
            connection.send("Heartbeat", 4, group_id="g", generation_id=1, member_id="m")
            handlers.answer(0, throttle_time_ms=5)
            assert (await connection.receive()).throttle_time_ms == 5
            assert await answered(connection) == (9, ErrorCode.INVALID_REQUEST)

    run(story())


@pytest.mark.parametrize("piece", [1_000, INSPECTED_BYTES, 100_000])
def test_nothing_is_kept_of_it_and_others_have_their_turn_after_each_piece(piece: int) -> None:
    async def story() -> None:
        request, heartbeat = too_much(7), frame("Heartbeat", 4, 8, struct("HeartbeatRequest")(group_id="g"))
        async with MemoryNode({"a": 1}) as node:
            wire = Wire()
            talk = wire.protocol = ServerConnection(node.dispatch, LIMITS, lambda one: True, lambda one: None)
            talk.connection_made(wire)  # type: ignore[arg-type]
            with peak_below(SIZE // 2):
                for at in range(0, len(request), piece):
                    talk.data_received(request[at : at + piece])
                    much_to_come = len(request) - at - piece > MAX_BYTES_PER_TURN
                    assert wire.reading is not much_to_come, "one piece of a large request in a turn"
                    await asyncio.sleep(0)
                    assert wire.reading
                    assert talk.in_flight_bytes <= INSPECTED_BYTES + piece
            talk.data_received(heartbeat)
            await node.quiet()
            wire.close()
            await asyncio.sleep(0)
        first = 4 + int.from_bytes(wire.sent[:4], "big")
        assert int.from_bytes(wire.sent[first + 4 : first + 8], "big") == 8, "the next request is found where it begins"

    run(story())


def test_what_is_taken_is_not_refused_by_how_it_begins() -> None:
    async def story() -> None:
        async with MemoryNode({"a": 1}) as node:
            body = too_much(7, entries=100_000)[4:]
            assert early_refusal(node.dispatch, body[:INSPECTED_BYTES], len(body)) is None
            assert (
                early_refusal(node.dispatch, too_much(7, entries=100_001)[4:][:INSPECTED_BYTES], len(body) + 4)
                is not None
            )

    run(story())


@pytest.mark.parametrize("piece", [1, 3, 8, 1_000])
def test_frames_that_are_given_up_end_where_they_said(piece: int) -> None:
    frames, found = FrameBuffer(limit=10_000), []
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in (b"a" * 20, b"b" * 900, b"c" * 30))
    for at in range(0, len(stream), piece):
        found += frames.feed(stream[at : at + piece])
        part, size = frames.unfinished
        if size == 900 and len(part) >= 50:
            frames.give_up()
            assert not frames.part
    assert b"".join(found) == b"a" * 20 + (b"b" * 900 if piece == 1_000 else b"") + b"c" * 30
