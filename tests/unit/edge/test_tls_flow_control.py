"""What stands between a TLS transport and a connection: pieces, what is held back, and who is handed what comes."""

import asyncio
from typing import Any

from muster.coordinator.edge.tls_flow_control import PIECE, TlsFlowControl


class Below:
    """A transport of TLS that is full whenever it is told so."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.calls: list[str] = []
        self.unsent = 0

    def write(self, data: Any) -> None:
        self.sent.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: self.calls.append(name)


class Spoken(asyncio.Protocol):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard.append(data)

    def pause_writing(self) -> None:
        self.heard.append("pause")

    def resume_writing(self) -> None:
        self.heard.append("resume")


def opened() -> tuple[Below, Spoken, TlsFlowControl]:
    below, spoken = Below(), Spoken()
    paced = TlsFlowControl(spoken)
    paced.connection_made(below)  # type: ignore[arg-type]
    return below, spoken, paced


def test_what_does_not_leave_is_held_back_in_order_and_counted() -> None:
    below, spoken, paced = opened()
    spoken.transport.set_write_buffer_limits(high=PIECE)
    whole = bytes(range(256)) * (3 * PIECE // 256)
    spoken.transport.write(whole)
    assert [len(piece) for piece in below.sent] == [PIECE] * 3, "as long as it takes any"
    paced.pause_writing()
    spoken.transport.writelines([whole, b"end"])
    assert len(below.sent) == 3
    assert spoken.transport.get_write_buffer_size() == len(whole) + 3
    assert spoken.heard == ["pause"]
    spoken.transport.close()
    assert "close" not in below.calls, "all that was written leaves first"
    paced.resume_writing()
    assert b"".join(below.sent) == whole * 2 + b"end"
    assert spoken.heard == ["pause", "resume"]
    assert below.calls[-1] == "close"


def test_what_is_cut_off_holds_nothing() -> None:
    below, spoken, paced = opened()
    paced.pause_writing()
    spoken.transport.write(b"x" * PIECE)
    spoken.transport.abort()
    assert spoken.transport.get_write_buffer_size() == 0
    paced.resume_writing()
    assert below.sent == []
    assert below.calls[-1] == "abort"


def test_who_takes_over_hears_what_comes() -> None:
    """A connection may put another in its place, as one does whose client has logged in."""
    below, first, paced = opened()
    paced.data_received(b"1")
    second = Spoken()
    first.transport.set_protocol(second)
    paced.data_received(b"2")
    assert (first.heard, second.heard) == ([b"1"], [b"2"])
    assert first.transport.get_protocol() is second
    assert below.calls[-1] == "set_protocol", "what it may have kept is looked up anew"
    first.transport.set_write_buffer_limits(high=0)
    paced.pause_writing()
    first.transport.write(b"x")
    assert second.heard == [b"2", "pause"]
