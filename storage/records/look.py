"""Look into produced batches: what enters the log can be read, record by record, by whoever comes later.

A header and a checksum say nothing of it: garbage under the flag of gzip, five records announced over two, or a few
kilobytes that unpack to gigabytes would stop every reader at that offset for ever. Compressed batches are unpacked up
to a limit; records are walked without making an object of any.
"""

import struct
import time

from muster.storage.compression import codec_name, decompress
from muster.storage.config import TopicSettings
from muster.storage.errors import CorruptMessage, InvalidRecord, InvalidTimestamp
from muster.storage.files import Buffer
from muster.storage.records.batch import CODEC_MASK, HEADER_SIZE, LENGTH_OVERHEAD, SMALLEST_RECORD, BatchView
from muster.storage.records.headers import decode_headers
from muster.storage.records.together import MOST_RECORDS, WalkedRecords, check_records_together
from muster.storage.records.validation import Fields
from muster.storage.records.varint import read_unsigned

AT_ONCE_BYTES = 64 << 10
AT_ONCE_RECORDS = 512
"""What is larger, or compressed, is looked into in a thread, where there is a loop to be held up."""

MOST_TOLD = 100
"""So many records of a batch are told of one by one when they are refused."""

# Of fewer records arrays cost more than they save.
_ARRAYS_FROM = 48

# After so many records a thread that walks lets others have their turn.
_STRETCH = 1000

# A batch may unpack to this much, or to so many times its size where that is more, and never to more than the setting.
_ALWAYS_BYTES = 16 << 20
_RATIO = 100


# Of `batch.HEADER`: length, attributes and count.
_glance = struct.Struct(">8xi9xh34xi").unpack_from


def needs_thread(batches: Buffer, settings: TopicSettings) -> bool:
    """Whether the look at an append takes so long that a loop should leave it to a thread."""
    if not validates_records(settings):
        return False
    size = len(batches)
    if size > AT_ONCE_BYTES:
        return True
    if size < HEADER_SIZE:
        return False  # Refused by its header.
    length, attributes, count = _glance(batches)
    return bool(attributes & CODEC_MASK) or count > AT_ONCE_RECORDS or length + LENGTH_OVERHEAD < size


def validates_records(settings: TopicSettings) -> bool:
    """Whether batches for the topic are looked into at all. A compacted log has to know that each record has a key."""
    return settings.validate_records == "full" or settings.compacted


def check_records(batches: list[tuple[Fields, memoryview]], settings: TopicSettings, now_ms: int) -> None:
    """InvalidRecord for a batch whose records cannot be read or lack a key they need; InvalidTimestamp."""
    for fields, data in batches:
        body = unpack_records(fields, data, settings)
        seen = check_body(body, fields[12])
        if seen.keyless >= 0 and settings.compacted:
            _refuse_keyless(fields, data)
        oldest = now_ms - settings.message_timestamp_before_max_ms
        youngest = now_ms + settings.message_timestamp_after_max_ms
        reach = (seen.farthest + 1) >> 1
        if fields[7] + reach > youngest or (oldest > 0 and fields[7] - reach < oldest):
            _check_each_timestamp(fields, data, oldest, youngest)


def unpack_records(fields: Fields, data: memoryview, settings: TopicSettings) -> bytes:
    """The records of a batch; InvalidRecord where the codec cannot make sense of them, or makes too many."""
    codec, packed = codec_name(fields[5] & CODEC_MASK), data[HEADER_SIZE:]
    if codec == "none":
        return bytes(packed)
    limit = min(settings.max_unpacked_bytes, max(_ALWAYS_BYTES, _RATIO * len(packed)))
    try:
        return decompress(codec, packed, limit)
    except CorruptMessage as error:
        raise InvalidRecord(f"The records of a batch cannot be unpacked: {error}") from None


def check_body(body: bytes, count: int) -> WalkedRecords:
    """Whether `body` is `count` records, numbered from 0, and nothing else; InvalidRecord where it is not."""
    if not 0 <= count <= len(body) // SMALLEST_RECORD:
        raise InvalidRecord(
            f"A batch claims {count} records in {len(body)} bytes; each takes {SMALLEST_RECORD} at least."
        )
    seen = check_records_together(body, count) if _ARRAYS_FROM <= count <= MOST_RECORDS else None
    return seen or check_each_record(body, count)


def check_each_record(body: bytes, count: int) -> WalkedRecords:
    """`check_body`, one record after the other: what it says of a batch is what counts."""
    at = farthest = place = 0
    keyless = -1
    try:
        while place < count:
            until = min(place + _STRETCH, count)
            at, farther, without = walk_records(body, at, place, until)
            farthest = max(farthest, farther)
            keyless = without if keyless < 0 else keyless
            place = until
            if place < count:
                time.sleep(0)
    except IndexError:
        raise InvalidRecord("A batch ends in the middle of a record.") from None
    except CorruptMessage as error:
        raise InvalidRecord(str(error)) from None
    if at != len(body):
        raise InvalidRecord(f"A batch has {len(body) - at} bytes behind its {count} records.")
    return WalkedRecords(farthest, keyless)


# One flat loop: a call per field would double the time that a record takes.
def walk_records(body: bytes, at: int, first: int, until: int) -> tuple[int, int, int]:  # noqa: PLR0912, PLR0915
    """Walk records `first` to `until`: where they end, the farthest timestamp, the first without a key (or -1)."""
    farthest, keyless = 0, -1
    total = len(body)
    for number in range(first << 1, until << 1, 2):
        size = body[at]
        at += 1
        if size >= 0x80:
            byte = body[at]
            if byte < 0x80:
                size = size & 0x7F | byte << 7
                at += 1
            else:
                size, at = read_unsigned(body, at - 1)
        end = at + (size >> 1)
        if size & 1 or end > total:
            raise CorruptMessage(
                f"Record {number >> 1} of a batch claims more bytes than the {total - at} that are left."
            )
        at += 2  # attributes, which are unused, and the first byte of the timestamp
        stamp = body[at - 1]
        if stamp >= 0x80:
            byte = body[at]
            if byte < 0x80:
                stamp = stamp & 0x7F | byte << 7
                at += 1
            else:
                stamp, at = read_unsigned(body, at - 1, 10)
        if stamp > farthest:
            farthest = stamp
        delta = body[at]
        at += 1
        if delta >= 0x80:
            byte = body[at]
            if byte < 0x80:
                delta = delta & 0x7F | byte << 7
                at += 1
            else:
                delta, at = read_unsigned(body, at - 1)
        if delta != number:
            raise _misnumbered(number >> 1, (delta >> 1) ^ -(delta & 1))
        size = body[at]
        at += 1
        if size >= 0x80:
            size, at = read_unsigned(body, at - 1)
        if not size & 1:
            at += size >> 1
        elif keyless < 0:
            keyless = number >> 1
        size = body[at]
        at += 1
        if size >= 0x80:
            byte = body[at]
            if byte < 0x80:
                size = size & 0x7F | byte << 7
                at += 1
            else:
                size, at = read_unsigned(body, at - 1)
        if not size & 1:
            at += size >> 1
        if body[at]:
            _, at = decode_headers(body, at, end)
        else:
            at += 1
        if at != end:
            raise CorruptMessage(f"Record {number >> 1} of a batch has a length that is off by {end - at} bytes.")
    return at, farthest, keyless


def _misnumbered(place: int, delta: int) -> InvalidRecord:
    why = f"Record {place} of a batch has offset delta {delta}; expected {place}."
    return InvalidRecord(why, record_errors=((place, why),))


# -- refusals in words: only what is refused is decoded ------------------------------------------------------


def _refuse_keyless(fields: Fields, data: memoryview) -> None:
    batch = BatchView._make((*fields, 0, data))
    why = "has no key; a compacted topic needs one."
    told = [
        (place, f"Record {place} of a batch {why}") for place, found in enumerate(batch.records()) if found.key is None
    ]
    raise InvalidRecord(told[0][1], record_errors=tuple(told[:MOST_TOLD]))


def _check_each_timestamp(fields: Fields, data: memoryview, oldest: int, youngest: int) -> None:
    batch = BatchView._make((*fields, 0, data))
    told = [
        (place, f"Record {place} of a batch has timestamp {found.timestamp_ms}; expected {oldest} to {youngest}.")
        for place, found in enumerate(batch.records())
        if found.timestamp_ms > youngest or 0 <= found.timestamp_ms < oldest
    ]
    if told:
        raise InvalidTimestamp(told[0][1], record_errors=tuple(told[:MOST_TOLD]))
