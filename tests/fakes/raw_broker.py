"""A broker on loopback of which a test has every byte in its hands: what it is asked, and when it answers what."""

import asyncio
from typing import Any, NamedTuple

from muster.coordinator.config import Address
from muster.coordinator.kafka.codec.codec import decode, encode, is_flexible, struct
from tests.support.pace import pace

PATIENCE_S = 20.0


class Request(NamedTuple):
    key: int
    version: int
    correlation: int
    body: bytes
    """With what the header has behind the correlation id."""


class RawConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> Request:
        """The next one, whole."""
        async with asyncio.timeout(PATIENCE_S * pace()):
            frame = await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        return Request(key, version, int.from_bytes(frame[4:8], "big"), frame[8:])

    def answer(self, request: Request, body: bytes) -> None:
        self.writer.write((4 + len(body)).to_bytes(4, "big") + request.correlation.to_bytes(4, "big") + body)

    def answer_with(self, request: Request, name: str, **fields: Any) -> None:
        """A message of the schema, with its header."""
        tags = b"\0" if is_flexible(f"{name}Response", request.version) and name != "ApiVersions" else b""
        made = struct(f"{name}Response")(**fields)
        self.answer(request, tags + b"".join(encode(f"{name}Response", request.version, made)))


class RawBroker:
    """`async with`; `connected` gives the connections in the order in which they came."""

    def __init__(self) -> None:
        self._came: asyncio.Queue[RawConnection] = asyncio.Queue()
        self._all: list[RawConnection] = []
        self.address = Address("", 0)

    async def __aenter__(self) -> "RawBroker":
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for each in self._all:
            each.writer.transport.abort()

    async def connected(self) -> RawConnection:
        async with asyncio.timeout(PATIENCE_S * pace()):
            return await self._came.get()

    @property
    def waiting(self) -> int:
        """Connections that nobody has asked for."""
        return self._came.qsize()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made = RawConnection(reader, writer)
        self._all.append(made)
        await self._came.put(made)


def request_of(name: str, request: Request) -> Any:
    """A request as a message."""
    at = 2 + max(int.from_bytes(request.body[:2], "big", signed=True), 0)
    at += is_flexible(f"{name}Request", request.version)
    return decode(f"{name}Request", request.version, request.body, at)[0]
