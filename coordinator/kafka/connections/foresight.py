"""Of a large request, what its first bytes say: one that lists more than is taken is refused before the rest has come.

Nothing is kept of the rest, and nothing copied, so that such a request costs what it takes to read it off its socket.
"""

from dataclasses import dataclass

from muster.coordinator.edge.limits import LARGE_BYTES
from muster.coordinator.kafka.codec.codec import MalformedFrame, decoder_of
from muster.coordinator.kafka.codec.decoding import RequestTooLong
from muster.coordinator.kafka.connections.frames import HEAD, FrameBuffer
from muster.coordinator.kafka.dispatch import Dispatcher, ServedVersion

INSPECTED_BYTES = 1 << 14
"""Bytes of a large frame that are looked at. They hold most requests' first lists, and no more than some 10,000 entries
are made of them."""


@dataclass(frozen=True, slots=True)
class EarlyRefusal:
    """A request of which nothing is kept."""

    form: ServedVersion
    correlation: int
    why: str


def refuse_early(dispatch: Dispatcher, frames: FrameBuffer) -> EarlyRefusal | None:
    """The refusal of the frame that is coming in, which is given up then. None: its first bytes do not decide.

    Each frame is looked at once.
    """
    part, size = frames.unfinished
    if frames.looked or len(part) < INSPECTED_BYTES or size <= LARGE_BYTES:
        return None
    frames.looked = True
    refused = early_refusal(dispatch, bytes(part[:INSPECTED_BYTES]), size)
    if refused is not None:
        frames.give_up()
    return refused


def early_refusal(dispatch: Dispatcher, begin: bytes, size: int) -> EarlyRefusal | None:
    """Of the frame of `size` bytes that begins so."""
    key, version, correlation = HEAD.unpack_from(begin)
    form = dispatch.form(key, version)
    if form is None:
        return None
    try:
        _, position = form.read_header(begin, 0)
        decoder_of(f"{form.api.name}Request", version)(begin, position, size)
    except RequestTooLong as excess:
        return EarlyRefusal(form, correlation, str(excess))
    except MalformedFrame:
        return None
    return None
