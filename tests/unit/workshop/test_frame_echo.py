"""The bare echo answers whole frames only, each with its own correlation id, however the stream is cut."""

import asyncio

import pytest

from muster.workshop.bench.echo import FrameEcho

TAIL = b"\x00\x00\x00\x07tail"


class WrittenTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data


def frame(correlation: int, body: bytes) -> bytes:
    whole = b"\x00\x0c\x00\x03" + correlation.to_bytes(4, "big") + body
    return len(whole).to_bytes(4, "big") + whole


@pytest.mark.parametrize("piece", [1, 3, 7, 100])
def test_each_whole_frame_is_answered_with_its_correlation_id(piece: int) -> None:
    transport, echo = WrittenTransport(), FrameEcho(TAIL)
    echo.connection_made(transport)
    stream = frame(7, b"group") + frame(8, b"") + frame(2**31 - 1, b"x" * 40)
    for at in range(0, len(stream), piece):
        echo.data_received(stream[at : at + piece])
    echo.data_received(frame(9, b"not whole")[:-1])
    length = (4 + len(TAIL)).to_bytes(4, "big")
    expected = [length + correlation.to_bytes(4, "big") + TAIL for correlation in (7, 8, 2**31 - 1)]
    assert transport.written == b"".join(expected)
