"""Of a large request, what its first bytes say: one that lists more than is taken is refused before the rest has come.

Nothing is kept of the rest, and nothing copied, so that such a request costs what it takes to read it off its socket.
"""

from dataclasses import dataclass

from muster.coordinator.edge.limits import LARGE_BYTES
from muster.coordinator.kafka.codec.codec import MalformedFrame, decoder_of
from muster.coordinator.kafka.codec.decoding import TooMany
from muster.coordinator.kafka.connections.frames import HEAD, Frames
from muster.coordinator.kafka.dispatch import Dispatch, Form

LOOK = 1 << 14
"""Bytes of a large frame that are looked at. They hold most requests' first lists, and no more than some 10,000 entries
are made of them."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A request of which nothing is kept."""

    form: Form
    correlation: int
    why: str


def foreseen(dispatch: Dispatch, frames: Frames) -> Refused | None:
    """The refusal of the frame that is coming in, which is given up then. None: its first bytes do not decide.

    Each frame is looked at once.
    """
    part, size = frames.unfinished
    if frames.looked or len(part) < LOOK or size <= LARGE_BYTES:
        return None
    frames.looked = True
    refused = refusal(dispatch, bytes(part[:LOOK]), size)
    if refused is not None:
        frames.give_up()
    return refused


def refusal(dispatch: Dispatch, begin: bytes, size: int) -> Refused | None:
    """Of the frame of `size` bytes that begins so."""
    key, version, correlation = HEAD.unpack_from(begin)
    form = dispatch.form(key, version)
    if form is None:
        return None
    try:
        _, position = form.read_header(begin, 0)
        decoder_of(f"{form.api.name}Request", version)(begin, position, size)
    except TooMany as excess:
        return Refused(form, correlation, str(excess))
    except MalformedFrame:
        return None
    return None
