"""What the two ends say to each other: a header in JSON and a body of bytes, over a pair of Unix sockets.

A frame is uint32 length of the header, uint64 length of the body, uint8 where the body is (0: it follows the header;
1: in shared memory, whose descriptor comes along). Neither end believes the other's lengths beyond its limits.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

HEAD = struct.Struct("!IQB")
INLINE, SHARED = 0, 1
MAX_HEADER_BYTES = 16 << 20
MAX_BODY_BYTES = 4 << 30
SHARED_FROM_BYTES = 1 << 20
"""A body of this size or more is handed over as shared memory where the system has it; a smaller one is copied."""
CHUNK_BYTES = 1 << 20


class ChannelClosed(Exception):
    """The other end is gone."""


class GarbledFrame(Exception):
    """The other end sent what is no frame."""


class Channel:
    """One end. `deadline_s` is a reading of `time.monotonic`; None waits for ever. Raises TimeoutError past it."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def send(self, header: dict[str, Any], body: bytes = b"", deadline_s: float | None = None) -> None:
        text = json.dumps(header, separators=(",", ":")).encode("utf-8", "surrogatepass")
        if len(body) >= SHARED_FROM_BYTES and hasattr(os, "memfd_create"):
            self._send_shared(text, body, deadline_s)
        else:
            self._send_all(HEAD.pack(len(text), len(body), INLINE) + text + body, deadline_s)

    def receive(self, deadline_s: float | None = None) -> tuple[dict[str, Any], bytes | mmap.mmap]:
        """One frame. A body in shared memory is mapped for reading, not copied."""
        first, descriptors = self._wait(lambda: socket.recv_fds(self._socket, HEAD.size, 1)[:2], deadline_s)
        try:
            head = first + self._receive(HEAD.size - len(first), deadline_s) if first else b""
            if not head:
                raise ChannelClosed
            header_size, body_size, where = HEAD.unpack(head)
            if header_size > MAX_HEADER_BYTES or body_size > MAX_BODY_BYTES:
                raise GarbledFrame(f"a header of {header_size} bytes, a body of {body_size}")
            text = self._receive(header_size, deadline_s)
            body = (
                map_shared_memory(descriptors, body_size) if where == SHARED else self._receive(body_size, deadline_s)
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        try:
            header = json.loads(text.decode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError) as error:
            raise GarbledFrame(str(error)) from None
        if not isinstance(header, dict):
            raise GarbledFrame("the header is no object")
        return header, body

    def close(self) -> None:
        self._socket.close()

    def _send_shared(self, text: bytes, body: bytes, deadline_s: float | None) -> None:
        descriptor = os.memfd_create("muster-snapshot")
        try:
            view = memoryview(body)
            while view:
                view = view[os.write(descriptor, view) :]
            head = HEAD.pack(len(text), len(body), SHARED)
            sent = self._wait(lambda: socket.send_fds(self._socket, [head], [descriptor]), deadline_s)
        finally:
            os.close(descriptor)
        self._send_all(head[sent:] + text, deadline_s)

    def _send_all(self, data: bytes, deadline_s: float | None) -> None:
        view = memoryview(data)
        while view:
            view = view[self._wait(lambda left=view: self._socket.send(left), deadline_s) :]  # type: ignore[misc]

    def _receive(self, size: int, deadline_s: float | None) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            wanted = min(size - len(parts), CHUNK_BYTES)
            part = self._wait(lambda size=wanted: self._socket.recv(size), deadline_s)  # type: ignore[misc]
            if not part:
                raise ChannelClosed
            parts += part
        return bytes(parts)

    def _wait(self, call: Callable[[], Any], deadline_s: float | None) -> Any:
        if deadline_s is not None:
            left = deadline_s - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._socket.settimeout(left)
        else:
            self._socket.settimeout(None)
        try:
            return call()
        except (BrokenPipeError, ConnectionResetError):
            raise ChannelClosed from None


def map_shared_memory(descriptors: list[int], size: int) -> bytes | mmap.mmap:
    if not descriptors or os.fstat(descriptors[0]).st_size < size:
        raise GarbledFrame(f"no shared memory of {size} bytes came along")
    return mmap.mmap(descriptors[0], size, prot=mmap.PROT_READ) if size else b""
