"""What comes on a connection: frames, each request in flight, each kind of request its client sends, and their limits.

`FrameBuffer` cuts a stream of bytes into frames (four bytes of length, then that many) and keeps only what has arrived.

A heartbeat is the same request again and again, but for its correlation id: `RepeatedRequest` recognizes it by its
bytes, and it is not decoded again. TCP keepalive, which finds peers that have vanished, is set here, too.
"""

import asyncio
import socket
from dataclasses import dataclass
from struct import Struct
from typing import Protocol, runtime_checkable

from muster.coordinator.kafka.codec.codec import Buffer, Decoder, Frame, MalformedFrame
from muster.coordinator.kafka.dispatch import DeferredAnswer, KafkaCall, ServedVersion

HEAD = Struct(">hhi")
"""How every request begins: API key, version, correlation id."""

LENGTH_BYTES = 4
SHORTEST = 8
"""API key, version and correlation id; the client id is left out by the oldest clients only."""

ANSWER = Struct(">ii")
"""How every answer begins: its length, the correlation id."""

KIND_BYTES = 4
"""API key and version, before the correlation id."""

TAGGED_ANSWER = Struct(">iib")
"""The same in flexible versions: no tagged fields."""


# Frames
# ------


class FrameBuffer:
    """The frames of one connection. A frame that comes in pieces is copied once."""

    __slots__ = ("limit", "looked", "need", "part", "shortest", "unwanted")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.shortest = SHORTEST
        """What holds for frames that have not begun to arrive."""
        self.part = bytearray()
        """What has come of an unfinished frame."""
        self.need = 0
        """How long that will be; 0 while it is not known, or there is none."""
        self.unwanted = 0
        """Bytes to come that nobody wants."""
        self.looked = False
        """Whether somebody looked at the unfinished frame: for whoever looks."""

    @property
    def missing(self) -> int:
        """Bytes that will come before the unfinished frame is at its end, wanted or not."""
        return self.need - len(self.part) + self.unwanted if self.need else self.unwanted

    @property
    def unfinished(self) -> tuple[bytearray, int]:
        """What arrived of a frame that has not come whole, and how long it will be; 0 while that is not known."""
        return self.part, self.need

    def give_up(self) -> None:
        """Keep nothing of the unfinished frame, and pass over the rest of it."""
        self.unwanted, self.need, self.part = self.need - len(self.part), 0, bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes. Raises MalformedFrame for a length that no frame has."""
        found: list[Frame] = []
        position = 0
        if self.unwanted:
            position = min(self.unwanted, len(data))
            self.unwanted -= position
        elif self.part or self.need:
            position = self._finish(data, found)
        while len(data) - position >= LENGTH_BYTES:
            size = int.from_bytes(data[position : position + LENGTH_BYTES], "big", signed=True)
            if not self.shortest <= size <= self.limit:
                raise self._no_frame(size)
            begin, end = position + LENGTH_BYTES, position + LENGTH_BYTES + size
            if end > len(data):
                self.need, self.part, self.looked = size, bytearray(memoryview(data)[begin:]), False
                return found
            found.append(data[begin:end])
            position = end
        if position < len(data):
            self.part = bytearray(data[position:])
        return found

    def _finish(self, data: bytes, found: list[Frame]) -> int:
        """Go on with what began in earlier pieces; return how much of `data` that took."""
        position = 0
        if not self.need:
            position = min(LENGTH_BYTES - len(self.part), len(data))
            self.part += data[:position]
            if len(self.part) < LENGTH_BYTES:
                return position
            size = int.from_bytes(self.part, "big", signed=True)
            if not self.shortest <= size <= self.limit:
                raise self._no_frame(size)
            self.need, self.part, self.looked = size, bytearray(), False
        end = position + self.need - len(self.part)
        self.part += memoryview(data)[position:end]
        if len(self.part) == self.need:
            found.append(self.part)
            self.need, self.part = 0, bytearray()
        return min(end, len(data))

    def _no_frame(self, size: int) -> MalformedFrame:
        return MalformedFrame(f"a frame of {size} bytes; expected {self.shortest} to {self.limit}")


# Requests
# --------


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one connection may take. Sizes in bytes, times in milliseconds."""

    max_frame: int
    max_in_flight: int
    """Requests taken in and not answered."""
    max_in_flight_bytes: int
    """Their bytes; one frame of any allowed size is always let in."""
    max_unsent_bytes: int
    """Above this many bytes of answers that have not left, none of its requests is begun."""
    max_idle_ms: int


class RequestInspector(Protocol):
    """Who looks at what comes on a connection before it is served, where somebody does."""

    def heard(self, size: int) -> None:
        """So many bytes have come. Raises HangUp."""

    def takes(self, frame: Frame) -> bool:
        """Whether a frame was none of the requests that are served, and has been seen to. Raises HangUp."""


class RequestSlot:
    """A request's place in the order of answers."""

    __slots__ = (
        "answer",
        "began_s",
        "call",
        "code",
        "correlation",
        "done",
        "form",
        "size",
        "spent_s",
        "task",
        "wait_s",
    )

    def __init__(self, size: int, correlation: int, form: ServedVersion, began_s: float) -> None:
        self.began_s = began_s
        """When it was begun, where that is measured."""
        self.code = 0
        self.call: KafkaCall | None = None
        self.spent_s = self.wait_s = 0.0
        """Who asked, what was done for it so far, and how long it has to wait: where quotas are charged."""
        self.size = size
        self.correlation = correlation
        self.form = form
        self.done = False
        self.answer: list[Buffer] = []
        self.task: asyncio.Task[None] | DeferredAnswer | None = None


@runtime_checkable
class LargeRequestDecoder(Protocol):
    """A decoder that can tell of a large request, before it is decoded, whether it lists little."""

    def brief(self, frame: Frame, position: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class DecodedHeader:
    """What a request's header said behind the correlation id, and what it means to a handler."""

    header: bytes
    call: KafkaCall
    read: Decoder

    def brief(self, frame: Frame, position: int) -> bool:
        """Whether a large request from this position on is known to list little: such are large for their records."""
        return isinstance(self.read, LargeRequestDecoder) and self.read.brief(frame, position)


class RepeatedRequest:
    """A request that comes again and again, each time as the last time but for its correlation id: a heartbeat.

    It is told by its bytes, and what they say is not read again.
    """

    __slots__ = ("caller", "form", "kind", "request", "said", "size")

    def __init__(self, frame: Frame, form: ServedVersion, caller: DecodedHeader, request: object) -> None:
        self.size = len(frame)
        self.kind = bytes(frame[:KIND_BYTES])
        self.said = bytes(frame[HEAD.size :])
        self.form = form
        self.caller = caller
        self.request = request


# TCP keepalive
# -------------

KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A peer whose machine is gone is noticed after a minute and a half, though no byte of its connection is due."""


def keep_alive(sock: socket.socket | None) -> None:
    """Let the kernel find out about peers that are gone without a word."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
