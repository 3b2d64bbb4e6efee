"""Message sets of magic 0 and 1 (before Kafka 0.11): read, never written.

A compressed message set is one wrapper message whose value holds the inner messages. Inner offsets are
absolute in magic 0 and relative in magic 1, where the wrapper's offset is that of the last inner message.
"""

import struct
import zlib

from muster.storage.compression import CODECS, decompress
from muster.storage.errors import CorruptMessage
from muster.storage.types import Record

# offset, size; then crc, magic, attributes
_HEAD = struct.Struct(">qiIbb")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_LOG_APPEND_TIME = 0x08
_CODEC_MASK = 0x07

Message = tuple[int, int, int, int, int, bytes | None, bytes | None]
"""offset, end, magic, attributes, timestamp_ms, key, value"""


def legacy_records(view: memoryview, at: int) -> tuple[list[Record], int]:
    """The records of the message at `at` and where the next one starts; none at a partial last message."""
    message = read_message(view, at)
    if message is None:
        return [], len(view)
    return unwrap_message(message), message[1]


def read_message(view: memoryview, at: int) -> Message | None:
    """One message with its checksum checked; None when `view` ends before it does."""
    if len(view) - at < _HEAD.size:
        return None
    offset, size, crc, magic, attributes = _HEAD.unpack_from(view, at)
    smallest = 22 if magic == 1 else 14
    if size < smallest or magic not in (0, 1):
        raise CorruptMessage(
            f"The message at byte {at} has size {size} and magic {magic}, expected {smallest} or more and 0 or 1."
        )
    end = at + 12 + size
    if end > len(view):
        return None
    if zlib.crc32(view[at + 16 : end]) != crc:
        raise CorruptMessage(f"The message at byte {at} (offset {offset}) has a wrong checksum {crc}.")
    timestamp = -1
    place = at + _HEAD.size
    if magic == 1:
        (timestamp,) = _INT64.unpack_from(view, place)
        place += 8
    key, place = _nullable(view, place, end)
    value, place = _nullable(view, place, end)
    if place != end:
        raise CorruptMessage(f"The message at byte {at} (offset {offset}) has {end - place} bytes too many.")
    return offset, end, magic, attributes, timestamp, key, value


def unwrap_message(message: Message) -> list[Record]:
    """The records in a message: itself, or those inside a compressed wrapper."""
    offset, _, magic, attributes, timestamp, key, value = message
    codec = attributes & _CODEC_MASK
    if codec == 0:
        return [Record(offset, timestamp, key, value)]
    if codec >= len(CODECS) - 1:
        raise CorruptMessage(f"The message at offset {offset} has codec {codec}, which magic {magic} does not know.")
    if value is None:
        raise CorruptMessage(f"The compressed message at offset {offset} has no value.")
    inner = _inner(memoryview(decompress(CODECS[codec], value)), offset)
    # KIP-31: relative offsets, counted back from the wrapper's.
    shift = offset - inner[-1].offset if magic == 1 else 0
    stamped = magic == 1 and attributes & _LOG_APPEND_TIME
    return [
        record._replace(
            offset=record.offset + shift,
            timestamp_ms=timestamp if stamped else record.timestamp_ms,
        )
        for record in inner
    ]


def _inner(view: memoryview, offset: int) -> list[Record]:
    records: list[Record] = []
    at = 0
    while at < len(view):
        message = read_message(view, at)
        if message is None or message[3] & _CODEC_MASK:
            raise CorruptMessage(f"The compressed message at offset {offset} holds no whole messages.")
        records += unwrap_message(message)
        at = message[1]
    if not records:
        raise CorruptMessage(f"The compressed message at offset {offset} is empty.")
    return records


def _nullable(view: memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    if end - at < 4:
        raise CorruptMessage(f"A message ends at byte {end} before the length of its key or value.")
    (size,) = _INT32.unpack_from(view, at)
    at += 4
    if size == -1:
        return None, at
    if not 0 <= size <= end - at:
        raise CorruptMessage(f"A message's key or value claims {size} bytes where {end - at} are left.")
    return bytes(view[at : at + size]), at + size
