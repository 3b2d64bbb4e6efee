"""Somebody's broker as far as a proxy sees it: what comes as frames, and answers as a test writes them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Self, cast

from muster.coordinator.config import Address
from muster.coordinator.kafka.connections.received_requests import HEAD


class Asked(NamedTuple):
    key: int
    version: int
    correlation: int
    frame: bytes
    writer: asyncio.StreamWriter


class ScriptedBroker:
    """Use it in an `async with`. `answer` writes what it likes for each request. `reads`: whether it reads from those
    who connect from now on; `read_on` has it do so."""

    def __init__(self, answer: Callable[[Asked], Awaitable[None]]) -> None:
        self._answer = answer
        self._may_read = asyncio.Event()
        self.reads = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def read_on(self) -> None:
        self.reads = True
        self._may_read.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        if not self.reads:
            transport = cast(asyncio.ReadTransport, writer.transport)
            transport.pause_reading()
            await self._may_read.wait()
            transport.resume_reading()
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                await self._answer(Asked(*HEAD.unpack_from(frame), frame, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def answered(correlation: int, body: bytes) -> bytes:
    """A frame, with its length; no tagged fields in its header."""
    return (4 + len(body)).to_bytes(4, "big") + correlation.to_bytes(4, "big") + body
