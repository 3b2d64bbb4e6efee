"""Between a TLS transport and what speaks on it: every byte that waits is counted, and few wait below.

asyncio's transport for TLS, and uvloop's, encrypts at once all that it is given and hands it to the socket's own
transport; what that one cannot send is told by neither. So it is given little at a time: at most twice `PIECE` is out
of sight.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, cast

PIECE: Final = 64 << 10
"""Bytes that are encrypted at once."""

Bytes = bytes | bytearray | memoryview


class TlsFlowControl(asyncio.Protocol):
    """What the TLS transport sees as its protocol; `inner` gets an `ThrottledTransport` for a transport."""

    def __init__(self, inner: asyncio.Protocol) -> None:
        self.hand_to(inner)

    def hand_to(self, inner: asyncio.Protocol) -> None:
        """What comes is this one's from now on, without a call between."""
        self.inner = inner
        self.data_received = inner.data_received  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        below = cast(asyncio.Transport, transport)
        self._outlet = ThrottledTransport(below, self)
        self.inner.connection_made(self._outlet)
        below.set_write_buffer_limits(high=1, low=0)  # It stops as soon as the socket takes no more.

    def connection_lost(self, exc: Exception | None) -> None:
        self._outlet.lost()
        self.inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._outlet.stop()

    def resume_writing(self) -> None:
        self._outlet.go_on()


class ThrottledTransport(asyncio.Transport):
    """A transport that holds back what the one below it cannot send yet."""

    def __init__(self, below: Any, paced: TlsFlowControl) -> None:
        super().__init__()
        self._below = below
        self._paced = paced
        self._held: deque[Bytes] = deque()
        self._size = 0
        self._stopped = False
        self._closing = False
        self._lost = False
        self._told = False
        self._high, self._low = PIECE, PIECE // 4

    def write(self, data: Bytes) -> None:
        if self._closing:
            return
        if not (self._stopped or self._held) and len(data) <= PIECE:
            self._below.write(data)
        else:
            self._held.append(data)
            self._size += len(data)
            self._pump()
        self._tell()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        for data in list_of_data:
            self.write(data)

    def stop(self) -> None:
        """The transport below is full."""
        self._stopped = True
        self._tell()

    def go_on(self) -> None:
        """It has room again."""
        self._stopped = False
        self._pump()
        self._tell()

    def lost(self) -> None:
        """Nobody takes anything any more."""
        self._held.clear()
        self._size = 0
        self._closing = self._lost = True

    def get_write_buffer_size(self) -> int:
        return self._size + int(self._below.get_write_buffer_size())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = PIECE if high is None else high
        self._low = self._high // 4 if low is None else low

    def close(self) -> None:
        """Once all is sent."""
        if self._held:
            self._closing = True
            self._below.pause_reading()
        else:
            self._below.close()

    def abort(self) -> None:
        self.lost()
        self._below.abort()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._paced.hand_to(cast(asyncio.Protocol, protocol))
        self._below.set_protocol(self._paced)  # It may have kept what it calls.

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._paced.inner

    def is_closing(self) -> bool:
        return self._closing or bool(self._below.is_closing())

    def pause_reading(self) -> None:
        self._below.pause_reading()

    def resume_reading(self) -> None:
        if not self._closing:
            self._below.resume_reading()

    def is_reading(self) -> bool:
        return bool(self._below.is_reading())

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)

    def _pump(self) -> None:
        """Give the transport below a piece after the other, until it says that it is full."""
        while self._held and not self._stopped:
            data = self._held.popleft()
            if len(data) > PIECE:
                whole = memoryview(data)
                data = whole[:PIECE]
                self._held.appendleft(whole[PIECE:])
            self._size -= len(data)
            self._below.write(data)
        if self._closing and not (self._held or self._lost):
            self._below.close()

    def _tell(self) -> None:
        size = self.get_write_buffer_size()
        if not self._told and size > self._high:
            self._told = True
            self._paced.inner.pause_writing()
        elif self._told and size <= self._low:
            self._told = False
            self._paced.inner.resume_writing()
