"""How requests begin: what is read of one that passes, and which group one names. Pure."""

from struct import Struct, error
from typing import Final

from muster.coordinator.kafka.codec.codec import is_flexible
from muster.coordinator.kafka.codec.decoding import DecodeFailure, read_uvarint, skip_tags
from muster.coordinator.kafka.codec.emitter import Frame, MalformedFrame
from muster.coordinator.kafka.connections.frames import HEAD

START: Final = Struct(">ihhi")
"""Length, API key, version, correlation id."""

SHORT: Final = Struct(">h")
MOST_TAGS: Final = 100
LONGEST: Final = 1 << 17
"""Bytes within which a request's first strings have ended: each has at most 32,767."""

BEHIND_TRANSACTION: Final = {"AddOffsetsToTxn": 10, "TxnOffsetCommit": 0}
"""Requests that begin with a transactional id -> bytes between that and the group."""


class HeaderCut(Exception):
    """The bytes end before what is looked for."""


def acks_of(version: int, data: Frame, at: int) -> int | None:
    """What the Produce request whose length is at `at` says of its answer (0: none comes); None: more bytes are
    needed. Raises MalformedFrame."""
    flexible = is_flexible("ProduceRequest", max(version, 3))
    try:
        position = behind_header(data, at + START.size, flexible)
        if version >= 3:
            _, position = string_at(data, position, flexible)
        if position + SHORT.size > len(data):
            raise HeaderCut
        return int(SHORT.unpack_from(data, position)[0])
    except HeaderCut:
        if len(data) - at > LONGEST:
            raise MalformedFrame(f"Produce {version} does not tell its acks in its first {LONGEST} bytes") from None
        return None


def group_of(name: str, version: int, frame: Frame) -> tuple[str, int]:
    """The group that a whole request is about, and where its name ends. Raises MalformedFrame."""
    flexible = is_flexible(f"{name}Request", version)
    try:
        position = behind_header(frame, HEAD.size, flexible)
        if name in BEHIND_TRANSACTION:
            _, position = string_at(frame, position, flexible)
            position += BEHIND_TRANSACTION[name]
        raw, position = string_at(frame, position, flexible)
        return ("" if raw is None else raw.decode()), position
    except (HeaderCut, UnicodeDecodeError):
        raise MalformedFrame(f"{name} {version} does not name its group") from None


def behind_header(data: Frame, position: int, flexible: bool) -> int:
    """Where the body begins, behind client id and tagged fields. Raises Cut, MalformedFrame."""
    _, position = string_at(data, position, False)
    if not flexible:
        return position
    try:
        return skip_tags(data, position, len(data), MOST_TAGS)[0]
    except IndexError:
        raise HeaderCut from None
    except DecodeFailure as broken:
        if "ends within" in str(broken):
            raise HeaderCut from None
        raise MalformedFrame(f"a request's header: {broken}") from None


def string_at(data: Frame, position: int, compact: bool) -> tuple[bytes | None, int]:
    """A string, or null, and where it ends. Raises Cut, MalformedFrame."""
    try:
        if compact:
            size, position = read_uvarint(data, position)
            size -= 1
        else:
            (size,) = SHORT.unpack_from(data, position)
            position += SHORT.size
    except (IndexError, error):
        raise HeaderCut from None
    except DecodeFailure as broken:
        raise MalformedFrame(f"a string's length: {broken}") from None
    if size < 0:
        return None, position
    if position + size > len(data):
        raise HeaderCut
    return bytes(data[position : position + size]), position + size
