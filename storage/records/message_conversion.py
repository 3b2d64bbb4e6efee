"""Converts between batches of magic 2 and message sets of magic 0 and 1, for clients from before Kafka 0.11.

Down, for readers: messages come uncompressed, each with its own offset; headers, for which those formats have no place,
are left out.

Up, for producers, as Kafka did until 3.9 (KIP-98): all messages of a set become one batch, compressed as the last
compressed message was; messages of magic 0 have no time, so their records have timestamp -1. What is left of a message
at the end, which those producers may send, is not looked at.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from muster.storage.compression import CODECS
from muster.storage.errors import CorruptMessage, InvalidRecord, InvalidTimestamp
from muster.storage.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_AT,
    BatchView,
    checksum_error,
    encode_batch,
    legacy_records,
    read_message,
    read_varint,
    record_bytes,
    unwrap_message,
    view_at,
)
from muster.storage.types import Record

_ENTRY = struct.Struct(">qiI")
_INT64, _INT32 = struct.Struct(">q"), struct.Struct(">i")
_HEADS: Final = {0: b"\0\0", 1: b"\1\0"}
"""Magic and attributes of an uncompressed message that has its producer's timestamp."""
_APPEND_TIME: Final = b"\1\x08"
_NULL: Final = _INT32.pack(-1)


# Down
# ----


def convert_down(data: bytes | memoryview, magic: int, from_offset: int, most: int) -> tuple[bytes, int]:
    """The messages from `from_offset` on in magic 0 or 1, and the offset behind them.

    At most `most` bytes, but one message at least, if `data` has one; without any the offset lies behind what was read.
    No more than one batch is unpacked at a time. Raises CorruptMessage.
    """
    out: list[bytes] = []
    room, reached = most, from_offset
    for stamped, record, behind in _found(memoryview(data), from_offset):
        if record is None:
            reached = max(reached, behind)
            continue
        entry = encode_message(record, magic, stamped=stamped)
        if out and len(entry) > room:
            break
        out.append(entry)
        room -= len(entry)
        reached = record.offset + 1
        if room <= 0:
            break
    return b"".join(out), reached


def encode_message(record: Record, magic: int, *, stamped: bool) -> bytes:
    """One message; `stamped` by the log, rather than by its producer (magic 1 only)."""
    head = _APPEND_TIME if stamped and magic else _HEADS[magic]
    body = b"".join(
        [
            head,
            _INT64.pack(record.timestamp_ms) if magic else b"",
            *(_NULL if text is None else _INT32.pack(len(text)) + text for text in (record.key, record.value)),
        ]
    )
    return _ENTRY.pack(record.offset, len(body) + 4, zlib.crc32(body)) + body


def _found(view: memoryview, from_offset: int) -> Iterator[tuple[bool, Record | None, int]]:
    """(stamped by the log, record, 0), and (False, None, the offset behind it) at the end of each batch."""
    at = 0
    while at + MAGIC_AT < len(view):
        if view[at + MAGIC_AT] < MAGIC:
            records, at = legacy_records(view, at)
            for record in records:
                if record.offset >= from_offset:
                    yield False, record, 0
            continue
        batch = view_at(view, at, at)
        if batch is None:
            return
        at += batch.size
        if batch.last_offset >= from_offset and not batch.control:
            if not batch.crc_ok:
                raise checksum_error(batch)
            stamped = bool(batch.attributes & LOG_APPEND_TIME_BIT)
            for record in _one_by_one(batch):
                if record.offset >= from_offset:
                    yield stamped, record, 0
        yield False, None, batch.next_offset


def _one_by_one(batch: BatchView) -> Iterator[Record]:
    """The records of a batch, none before it is asked for: of a large batch a few may be wanted."""
    data, at = record_bytes(batch) if batch.count else b"", 0
    try:
        for _ in range(batch.count):
            size, at = read_varint(data, at)
            end = at + size
            delta_ms, at = read_varint(data, at + 1, 10)
            delta, at = read_varint(data, at)
            key, at = _text(data, at)
            value, _ = _text(data, at)
            if size < 0 or end > len(data):
                raise IndexError
            stamp = batch.max_timestamp if batch.log_append_time else batch.base_timestamp + delta_ms
            yield Record(batch.base_offset + delta, stamp, key, value)
            at = end
    except IndexError:
        raise CorruptMessage(f"The batch at offset {batch.base_offset} ends in the middle of a record.") from None


def _text(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(data, at)
    if size < 0:
        return None, at
    if size > len(data) - at:
        raise IndexError
    return data[at : at + size], at + size


# Up
# --

MAX_UNPACKED_BYTES: Final = 64 << 20
"""What the messages of one set may come to once they are unpacked, with what each takes beside its key and value."""
MESSAGE_BYTES: Final = 200
"""What a record takes in memory beside its key and value."""


def is_message_set(records: bytes | memoryview) -> bool:
    """Whether it begins with a message of magic 0 or 1."""
    return len(records) > MAGIC_AT and records[MAGIC_AT] < MAGIC


def convert_up(records: bytes | memoryview, most: int = MAX_UNPACKED_BYTES) -> tuple[bytes, int]:
    """The same as one batch of magic 2 at offset 0, and how many bytes the messages took in memory.

    Raises CorruptMessage for what is no message, and for wrappers that unpack to more than `most` bytes in all;
    InvalidRecord for messages of both magics in one set; InvalidTimestamp for those that say that a log stamped them.
    """
    view = memoryview(records)
    found: list[Record] = []
    codec, at, taken, first_magic = 0, 0, 0, view[MAGIC_AT]
    while (message := read_message(view, at)) is not None:
        offset, at, magic, attributes, *_ = message
        if magic != first_magic:
            raise InvalidRecord(
                f"The message at offset {offset} has magic {magic}, those before it have {first_magic}; a set has one."
            )
        if magic and attributes & LOG_APPEND_TIME_BIT:
            raise InvalidTimestamp(
                f"The message at offset {offset} says that a log has stamped it; a producer sends its own time."
            )
        codec = attributes & CODEC_MASK or codec
        inner = unwrap_message(message, max(most - taken, 0))
        taken += sum(MESSAGE_BYTES + len(one.key or b"") + len(one.value or b"") for one in inner)
        if taken > most:
            raise CorruptMessage(f"A set of messages takes more than the {most} bytes allowed once it is unpacked.")
        found += inner
    if not found:
        raise CorruptMessage(f"{len(view)} bytes hold no whole message.")
    rows = [(one.timestamp_ms, one.key, one.value, ()) for one in found]
    return encode_batch(rows, codec=CODECS[codec]), taken
