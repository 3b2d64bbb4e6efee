"""Frames out of a stream of bytes, however it is cut."""

import pytest

from muster.coordinator.kafka.codec.codec import MalformedFrame
from muster.coordinator.kafka.connections.received_requests import FrameBuffer

FRAMES = [b"12345678", b"x" * 300, b"y" * 70_000, b"12345678"]
STREAM = b"".join(len(frame).to_bytes(4, "big") + frame for frame in FRAMES)


@pytest.mark.parametrize("piece", [1, 2, 3, 4, 5, 7, 64, 4_096, len(STREAM)])
def test_frames_come_out_whole_whatever_the_pieces(piece: int) -> None:
    frames = FrameBuffer(limit=100_000)
    found = [frame for at in range(0, len(STREAM), piece) for frame in frames.feed(STREAM[at : at + piece])]
    assert found == FRAMES
    assert not frames.part


def test_only_what_arrived_is_kept_of_a_frame_that_announces_much() -> None:
    frames = FrameBuffer(limit=1 << 30)
    assert frames.feed((1 << 29).to_bytes(4, "big") + b"a little") == []
    assert len(frames.part) == len(b"a little")


@pytest.mark.parametrize("size", [-1, 0, 7, 1001, 0x47455420])
def test_a_length_that_no_frame_has_is_refused(size: int) -> None:
    with pytest.raises(MalformedFrame, match="expected 8 to 1000"):
        FrameBuffer(limit=1_000).feed(size.to_bytes(4, "big", signed=True))


def test_a_length_in_two_pieces_is_checked_as_well() -> None:
    frames = FrameBuffer(limit=1_000)
    assert frames.feed(b"\x7f\xff") == []
    with pytest.raises(MalformedFrame, match="expected 8 to 1000"):
        frames.feed(b"\xff\xff")
