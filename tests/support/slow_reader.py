"""A gRPC client that asks and never makes room for the answer: as little of HTTP/2 as that takes, on a bare socket."""

import asyncio
from typing import Self

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
NO_WINDOW = (4).to_bytes(2, "big") + (0).to_bytes(4, "big")
"""SETTINGS_INITIAL_WINDOW_SIZE 0: no byte of an answer may be sent before a WINDOW_UPDATE."""


class SlowReader:
    """One connection. Use it in an `async with`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stream = -1
        self.statuses: dict[int, bytes] = {}
        """Stream -> the headers that ended it, as they came (HPACK)."""

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(PREFACE + framed(SETTINGS, 0, 0, NO_WINDOW))
        self._hearing = asyncio.create_task(self._hear())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._hearing.cancel()
        self._writer.close()
        await asyncio.gather(self._hearing, return_exceptions=True)

    def ask(self, method: str, request: bytes) -> int:
        """Send a call and return its stream."""
        self._stream += 2
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": method,
            ":authority": "localhost",
            "te": "trailers",
            "content-type": "application/grpc",
        }
        message = b"\0" + len(request).to_bytes(4, "big") + request
        head = b"".join(b"\0" + text(name) + text(value) for name, value in headers.items())
        self._writer.write(framed(HEADERS, END_HEADERS, self._stream, head))
        self._writer.write(framed(DATA, END_STREAM, self._stream, message))
        return self._stream

    @property
    def gone(self) -> bool:
        """Whether the node has ended the connection."""
        return self._hearing.done()

    def make_room(self, stream: int, size: int) -> None:
        """Let so many bytes of the stream's answer come, and as many on the connection."""
        for each in (0, stream):
            self._writer.write(framed(WINDOW_UPDATE, 0, each, size.to_bytes(4, "big")))

    async def _hear(self) -> None:
        while True:
            head = await self._reader.readexactly(9)
            content = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
            kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
            if kind in (SETTINGS, PING) and not flags & ACK:
                self._writer.write(framed(kind, ACK, 0, content if kind == PING else b""))
            if kind == HEADERS and flags & END_STREAM:
                self.statuses[stream] = content


def framed(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + content


def text(value: str) -> bytes:
    """A short string as HPACK has it."""
    return bytes((len(value),)) + value.encode()
