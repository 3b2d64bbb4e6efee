"""Reads of a stream of requests: one that nobody waits for any more still comes to its end."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from google.protobuf.message import Message

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.grpc.adapter import READING, stream_reader


async def parse(data: bytes) -> Message:
    return pb.SessionRequest.FromString(data)


class Stream:
    """One message, and then a read that ends when it is told to."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()
        self.ends = asyncio.Event()
        self.ended = False
        self._reads = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        self._reads += 1
        if self._reads == 1:
            return pb.SessionRequest(request_number=7).SerializeToString()
        self.waits.set()
        await self.ends.wait()
        self.ended = True
        raise StopAsyncIteration


async def numbers(stream: Stream) -> list[int]:
    return [request.request_number async for request in stream_reader(parse)(stream)]  # type: ignore[attr-defined]


def test_a_read_outlives_whoever_waits_for_it() -> None:
    async def story() -> None:
        stream = Stream()
        handler = asyncio.create_task(numbers(stream))
        await stream.waits.wait()
        handler.cancel()
        with pytest.raises(asyncio.CancelledError):
            await handler
        assert len(READING) == 1
        stream.ends.set()
        await asyncio.gather(*READING)
        assert stream.ended
        assert not READING

    asyncio.run(story())


def test_a_stream_is_read_to_its_end() -> None:
    async def story() -> None:
        stream = Stream()
        stream.ends.set()
        assert await numbers(stream) == [7]

    asyncio.run(story())
