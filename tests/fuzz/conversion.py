"""Message sets of producers from before Kafka 0.11, as a node converts them, and what must hold for each.

The bytes describe a set: its messages, their magic, attributes, times and texts, and wrappers around some of them, with
right checksums, for random bytes hardly ever have one. Then some bytes may be changed, cut off or added.
"""

import struct
import zlib
from typing import Final

from muster.storage.compression import CODECS, compress
from muster.storage.errors import StorageError
from muster.storage.records.batch import decode_records, read_batches
from muster.storage.records.message_conversion import convert_down, convert_up, is_message_set
from tests.fuzz.targets import Bytes

MOST_BYTES: Final = 20_000
"""What a set may unpack to: so little that some are refused for it."""
MOST_MESSAGES: Final = 5
WRAPPERS: Final = 2
"""Within one another: the second is one too many."""


def conversion(data: bytes) -> None:
    """A set becomes one batch that holds as many bytes as may be, or is refused by one error."""
    given = Bytes(data)
    said = message_set(given, given.number() % 2, WRAPPERS)
    if given.number() % 4 == 0:
        said = damaged(said, given)
    if not is_message_set(said):
        return
    try:
        batch, taken = convert_up(said, MOST_BYTES)
    except StorageError:
        return
    assert taken <= MOST_BYTES, f"{said.hex()} takes {taken} bytes in memory"
    (only,) = read_batches(batch)
    assert only.crc_ok, f"{said.hex()} becomes a batch with another checksum"
    records = list(decode_records(batch))
    assert [record.offset for record in records] == list(range(len(records)))
    # A reader of those days gets what its producer said, and what it got could be sent again.
    for magic in (0, 1):
        down, behind = convert_down(batch, magic, 0, 1 << 20)
        assert behind == len(records)
        again = list(decode_records(convert_up(down)[0]))
        assert [(one.key, one.value) for one in again] == [(one.key, one.value) for one in records]
        assert all(
            one.timestamp_ms == (old.timestamp_ms if magic else -1) for one, old in zip(again, records, strict=True)
        )


def message_set(given: Bytes, magic: int, wrappers: int) -> bytes:
    said = b""
    for offset in range(1 + given.number() % MOST_MESSAGES):
        how = given.number()
        if how % 8 == 0:
            magic = given.number() % 3
        codec = given.number() % len(CODECS) if wrappers and how % 3 == 0 else 0
        if codec:
            inner = compress(CODECS[codec], message_set(given, magic, wrappers - 1))
            said += message(magic, codec, given.number(2), given.number(4), None, inner)
        else:
            texts = [None if (size := given.number()) > 200 else given.piece(size % 32) for _ in range(2)]
            attributes = 8 if how % 16 == 1 else 0
            said += message(magic, attributes, offset, given.number(4), *texts)
    return said


def message(magic: int, attributes: int, offset: int, time_ms: int, key: bytes | None, value: bytes | None) -> bytes:
    body = bytes([magic, attributes]) + (struct.pack(">q", time_ms) if magic else b"")
    for text in (key, value):
        body += struct.pack(">i", -1) if text is None else struct.pack(">i", len(text)) + text
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def damaged(said: bytes, given: Bytes) -> bytes:
    where, how = given.number(2) % len(said), given.number()
    if how % 3 == 0:
        return said[:where]
    if how % 3 == 1:
        return said + given.rest()
    return said[:where] + bytes([given.number()]) + said[where + 1 :]


TARGETS: Final = {"conversion": conversion}
"""Beside those of `targets`."""
