"""Record batches <-> bytes. Pure: no I/O, no clock, no numpy.

Layout of magic 2 after KIP-98 and KIP-32: 61 bytes of header, big-endian, then records with zigzag varint lengths
(int32 up to 5 bytes, int64 up to 10) and headers (KIP-82). The CRC-32C covers everything from `attributes` on; base
offset, length, leader epoch and magic lie outside. Encoding and decoding records are the innermost loops of the log.

Message sets of magic 0 and 1 (before Kafka 0.11) are read and never written. A compressed message set is one wrapper
message whose value holds the inner messages. Inner offsets are absolute in magic 0 and relative in magic 1, where the
wrapper's offset is that of the last inner message.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count
from typing import NamedTuple

from crc32c import crc32c

from muster.storage.compression import (
    CODECS,
    MAX_DECOMPRESSED_BYTES,
    codec_name,
    codec_number,
    compress,
    decompress,
)
from muster.storage.errors import CorruptMessage, InvalidRecord
from muster.storage.types import Record

# Zigzag varints
# --------------

# The varints of -8192 to 8191 by their zigzag number.
SMALL = tuple(
    bytes((zigzag,)) if zigzag < 0x80 else bytes((zigzag & 0x7F | 0x80, zigzag >> 7)) for zigzag in range(1 << 14)
)
_NATURALS = SMALL[::2]


def varint(value: int) -> bytes:
    """
    >>> varint(-1), varint(63), varint(64)
    (b'\\x01', b'~', b'\\x80\\x01')
    """
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    if zigzag < 1 << 14:
        return SMALL[zigzag]
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def natural_varints() -> Iterator[bytes]:
    """The varints of 0, 1, 2 and so on.

    >>> [number for _, number in zip(range(3), natural_varints())]
    [b'\\x00', b'\\x02', b'\\x04']
    """
    return chain(_NATURALS, map(varint, count(len(_NATURALS))))


_FEW = len(_NATURALS)


def read_varint(data: bytes | memoryview, at: int, longest: int = 5) -> tuple[int, int]:
    """The value at `at` and where the next byte lies; CorruptMessage past `longest` bytes.

    Running off the end of `data` is an IndexError.
    """
    zigzag, at = read_unsigned(data, at, longest)
    return (zigzag >> 1) ^ -(zigzag & 1), at


def read_unsigned(data: bytes | memoryview, at: int, longest: int = 5) -> tuple[int, int]:
    """Like `read_varint`, but the zigzag number as it is: odd ones stand for negatives."""
    zigzag = shift = 0
    for place in range(at, at + longest):
        byte = data[place]
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return zigzag, place + 1
        shift += 7
    raise CorruptMessage(f"A varint at byte {at} is longer than {longest} bytes.")


# Record headers (KIP-82)
# -----------------------


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        raw = name.encode()
        parts += (varint(len(raw)), raw)
        parts += (b"\x01",) if value is None else (varint(len(value)), value)
    return b"".join(parts)


def decode_headers(data: bytes, at: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """The headers at `at` of a record that ends at `end`, and where they end."""
    count, at = read_varint(data, at)
    # Each header takes two bytes at least, so a larger count is a lie.
    if not 0 <= count <= end - at:
        raise CorruptMessage(f"A record claims {count} headers in {end - at} bytes.")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = read_varint(data, at)
        if not 0 <= size <= end - at:
            raise CorruptMessage(f"A header's name claims {size} bytes where {end - at} are left.")
        name = data[at : at + size].decode(errors="replace")
        at += size
        size, at = read_varint(data, at)
        if size > end - at:
            raise CorruptMessage(f"A header's value claims {size} bytes where {end - at} are left.")
        headers.append((name, data[at : at + size] if size >= 0 else None))
        at += max(size, 0)
    return tuple(headers), at


# The records inside a batch
# --------------------------

# timestamp_ms, key, value, headers
NewRecord = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


def encode_body(records: Sequence[NewRecord], deltas: Sequence[int], base_timestamp: int) -> bytes:
    """The bytes of records that get these offset deltas, in a batch with this base time."""
    parts: list[bytes] = []
    add = parts.append
    small, limit = SMALL, len(SMALL) // 2
    for delta, (timestamp, key, value, headers) in zip(deltas, records, strict=True):
        # SMALL holds the varints of 0 to limit-1 at even places: no call for what is nearly always small.
        stamp = timestamp - base_timestamp
        head = small[stamp << 1] if 0 <= stamp < limit else varint(stamp)
        head += small[delta << 1] if 0 <= delta < limit else varint(delta)
        if key is None:
            head += b"\x01"
        else:
            size = len(key)
            head += (small[size << 1] if size < limit else varint(size)) + key
        tail = encode_headers(headers) if headers else b"\x00"
        if value is None:
            head += b"\x01"
            length = len(head) + len(tail) + 1
        else:
            size = len(value)
            head += small[size << 1] if size < limit else varint(size)
            length = len(head) + len(tail) + 1 + size
        add(small[length << 1] if length < limit else varint(length))
        add(b"\x00")
        add(head)
        if value:
            add(value)
        add(tail)
    return b"".join(parts)


def describe_place(position: int, base_offset: int) -> str:
    """A batch as errors name it: where it lies in its file, and the offset it begins with."""
    return f"The batch at byte {position} (base offset {base_offset})"


# One flat loop: a call per field would double the time that a record takes.
def decode_body(  # noqa: PLR0912, PLR0915
    data: bytes, count: int, base_offset: int, base_timestamp: int, stamp: int | None, position: int
) -> tuple[list[Record], int]:
    """The records in uncompressed bytes, and where the last one ends. With a `stamp` that is the time of each.

    Raises CorruptMessage, or IndexError when the bytes end in the middle of a record. Varints of one and two bytes are
    taken in line, longer ones by call.
    """
    new, kind, none = tuple.__new__, Record, ()
    out: list[Record] = []
    add = out.append
    total = len(data)
    at = 0
    for _ in range(count):
        size = data[at]
        at += 1
        if size >= 0x80:
            byte = data[at]
            if byte < 0x80:
                size = size & 0x7F | byte << 7
                at += 1
            else:
                size, at = read_unsigned(data, at - 1)
        end = at + (size >> 1)
        if size & 1 or end > total:
            raise CorruptMessage(
                f"{describe_place(position, base_offset)} has a record longer than the "
                f"{total - at} bytes that are left."
            )
        at += 2  # attributes, which are unused, and the first byte of the timestamp
        delta = data[at - 1]
        if delta >= 0x80:
            byte = data[at]
            if byte < 0x80:
                delta = delta & 0x7F | byte << 7
                at += 1
            else:
                delta, at = read_unsigned(data, at - 1, 10)
        timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1)) if stamp is None else stamp
        delta = data[at]
        at += 1
        if delta >= 0x80:
            byte = data[at]
            if byte < 0x80:
                delta = delta & 0x7F | byte << 7
                at += 1
            else:
                delta, at = read_unsigned(data, at - 1)
        size = data[at]
        at += 1
        if size >= 0x80:
            size, at = read_unsigned(data, at - 1)
        if size & 1:
            key = None
        else:
            start = at
            at += size >> 1
            key = data[start:at]
        size = data[at]
        at += 1
        if size >= 0x80:
            byte = data[at]
            if byte < 0x80:
                size = size & 0x7F | byte << 7
                at += 1
            else:
                size, at = read_unsigned(data, at - 1)
        if size & 1:
            value = None
        else:
            start = at
            at += size >> 1
            value = data[start:at]
        if data[at]:
            headers, at = decode_headers(data, at, end)
        else:
            headers = none
            at += 1
        if at != end:
            raise CorruptMessage(
                f"{describe_place(position, base_offset)} has a record whose length is off by {end - at} bytes."
            )
        add(new(kind, (base_offset + ((delta >> 1) ^ -(delta & 1)), timestamp, key, value, headers)))
    return out, at


# Message sets of magic 0 and 1
# -----------------------------

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


def unwrap_message(message: Message, most: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """The records in a message: itself, or those inside a compressed wrapper, which unpacks to `most` bytes at most."""
    offset, _, magic, attributes, timestamp, key, value = message
    codec = attributes & _CODEC_MASK
    if codec == 0:
        return [Record(offset, timestamp, key, value)]
    if codec >= len(CODECS) - 1:
        raise CorruptMessage(f"The message at offset {offset} has codec {codec}, which magic {magic} does not know.")
    if value is None:
        raise CorruptMessage(f"The compressed message at offset {offset} has no value.")
    inner = _inner(memoryview(decompress(CODECS[codec], value, most)), offset)
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


# Batches of magic 2
# ------------------

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
# base offset (8) and length (4): what `length` itself does not count.
LENGTH_OVERHEAD = 12
MAGIC = 2
# Its length, attributes, time stamp, offset, no key, no value and no headers: a byte each.
SMALLEST_RECORD = 7

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

MAX_SEQUENCE = 2**31 - 1

# The third is no business of a batch that is being made.
KeyAndValue = tuple[bytes, bytes | None, object]

_PREFIX = struct.Struct(">qi")


class BatchView(NamedTuple):
    """The header of a batch and a view of its bytes; nothing behind the header has been looked at."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # the wire's word; nobody counts a header
    position: int
    data: memoryview

    @property
    def size(self) -> int:
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> str:
        return codec_name(self.attributes & CODEC_MASK)

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def lost(self) -> bool:
        """Whether it stands for records that could not be read any more and were given up (`lost_records`)."""
        return not self.count and self.base_timestamp == _LOST_TIMESTAMP

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, wrapping from 2147483647 to 0; -1 without a producer."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & MAX_SEQUENCE

    @property
    def crc_ok(self) -> bool:
        return crc32c(self.data[ATTRIBUTES_AT:]) == self.crc

    def records(self) -> list[Record]:
        """Decode all records; CorruptMessage when the content does not add up."""
        return decode_batch(self)


def encode_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    codec: str = "none",
    level: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
) -> bytes:
    """One batch with its checksum.

    Offsets rise by one from `base_offset`, unless `offset_deltas` gives gaps (as compaction leaves them).
    Without records the result is a bare header that keeps `last_offset_delta` and the sequence.
    """
    deltas = range(len(records)) if offset_deltas is None else offset_deltas
    if len(deltas) != len(records):
        raise InvalidRecord(f"{len(records)} records came with {len(deltas)} offset deltas; expected one each.")
    last_delta = (deltas[-1] if records else 0) if last_offset_delta is None else last_offset_delta
    attributes = codec_number(codec) if records else 0
    attributes |= TRANSACTIONAL_BIT * transactional | CONTROL_BIT * control
    base_timestamp = records[0][0] if records else -1
    max_timestamp = max((record[0] for record in records), default=-1)
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
        attributes |= DELETE_HORIZON_BIT
    if log_append_time_ms is not None:
        max_timestamp = log_append_time_ms
        attributes |= LOG_APPEND_TIME_BIT
    body = compress(codec, encode_body(records, deltas, base_timestamp), level) if records else b""
    return seal_batch(
        (base_offset, leader_epoch, attributes, last_delta, base_timestamp, max_timestamp),
        (producer_id, producer_epoch, base_sequence),
        len(records),
        body,
    )


def encode_turn(records: Sequence[KeyAndValue], timestamp_ms: int) -> bytes:
    """What `encode_batch` makes of records of one time that have a key and no headers, such as committed offsets."""
    body = b"".join(frame_records(records, _NATURALS if len(records) <= _FEW else natural_varints()))
    # Most are small, and there are many: a call more would be felt.
    stamp = (0, -1, 0, max(len(records) - 1, 0), timestamp_ms, timestamp_ms)
    return seal_batch(stamp, (-1, -1, -1), len(records), body)


def encode_written(
    records: Sequence[KeyAndValue],
    timestamp_ms: int,
    *,
    producer: tuple[int, int, int],
    codec: str = "none",
    transactional: bool = False,
) -> bytes:
    """The same of a producer: its id, its epoch, and the sequence of the first record."""
    body = b"".join(frame_records(records, natural_varints()))
    attributes = codec_number(codec) | TRANSACTIONAL_BIT * transactional
    stamp = (0, -1, attributes, max(len(records) - 1, 0), timestamp_ms, timestamp_ms)
    return seal_batch(stamp, producer, len(records), compress(codec, body))


class TurnBody:
    """A turn's made in pieces: a batch of very many records takes its time, and others may have turns in between."""

    def __init__(self) -> None:
        self._deltas = natural_varints()
        self._pieces: list[bytes] = []
        self._count = 0

    def add(self, records: Sequence[KeyAndValue]) -> None:
        """These come behind the others."""
        self._pieces.append(b"".join(frame_records(records, self._deltas)))
        self._count += len(records)

    def sealed(self, timestamp_ms: int, transaction: tuple[int, int] | None = None) -> bytes:
        """The batch of all that was added; of the transaction of this producer (id, epoch), without sequences."""
        attributes, producer = (0, (-1, -1)) if transaction is None else (TRANSACTIONAL_BIT, transaction)
        stamp = (0, -1, attributes, max(self._count - 1, 0), timestamp_ms, timestamp_ms)
        return seal_pieces(stamp, (*producer, -1), self._count, self._pieces)


def frame_records(records: Sequence[KeyAndValue], deltas: Iterable[bytes]) -> list[bytes]:
    """The bytes of a batch's records, in many parts; each record takes the next of the offset deltas."""
    parts: list[bytes] = []
    key_size = value_size = delta_size = -1
    head = before_key = before_value = b""
    for (key, value, _), delta in zip(records, deltas, strict=False):
        size = -1 if value is None else len(value)
        if size != value_size or len(key) != key_size or len(delta) != delta_size:
            # It mostly is as it was with the record before.
            key_size, value_size, delta_size = len(key), size, len(delta)
            before_key = _NATURALS[key_size] if key_size < _FEW else varint(key_size)
            before_value = _NATURALS[size] if 0 <= size < _FEW else varint(size)
            length = 3 + delta_size + len(before_key) + key_size + len(before_value) + max(size, 0)
            head = (_NATURALS[length] if length < _FEW else varint(length)) + b"\x00\x00"
        parts += (head, delta, before_key, key, before_value, value or b"", b"\x00")
    return parts


def seal_batch(
    stamp: tuple[int, int, int, int, int, int], producer: tuple[int, int, int], count: int, body: bytes
) -> bytes:
    """Put a header with length and checksum before the (compressed) records.

    `stamp` is base offset, leader epoch, attributes, last offset delta, base and max timestamp;
    `producer` is id, epoch and base sequence.
    """
    base_offset, leader_epoch, *middle = stamp
    covered = _COVERED.pack(*middle, *producer, count)
    crc = crc32c(body, crc32c(covered))
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(body)
    return b"".join((_UNCOVERED.pack(base_offset, length, leader_epoch, MAGIC, crc), covered, body))


def seal_pieces(
    stamp: tuple[int, int, int, int, int, int], producer: tuple[int, int, int], count: int, pieces: Sequence[bytes]
) -> bytes:
    """As `seal_batch`, of a body in pieces: megabytes are copied once."""
    base_offset, leader_epoch, *middle = stamp
    covered = _COVERED.pack(*middle, *producer, count)
    crc, length = crc32c(covered), HEADER_SIZE - LENGTH_OVERHEAD
    for piece in pieces:
        crc = crc32c(piece, crc)
        length += len(piece)
    return b"".join((_UNCOVERED.pack(base_offset, length, leader_epoch, MAGIC, crc), covered, *pieces))


def lost_records(first_offset: int, next_offset: int, leader_epoch: int) -> bytes:
    """A batch without records in the place of those from `first_offset` to `next_offset` (exclusive)."""
    delta = next_offset - first_offset - 1
    return seal_batch((first_offset, leader_epoch, 0, delta, _LOST_TIMESTAMP, -1), (-1, -1, -1), 0, b"")


# A base timestamp that no producer gives: -1 says that a batch has none.
_LOST_TIMESTAMP = -2
_UNCOVERED = struct.Struct(">qiibI")
_COVERED = struct.Struct(">hiqqqhii")


def view_at(data: memoryview, at: int, position: int = 0) -> BatchView | None:
    """The batch that starts at `at`, or None when `data` ends before the batch does.

    CorruptMessage when the length or magic cannot be a batch's.
    """
    left = len(data) - at
    if left < HEADER_SIZE:
        check_prefix(data, at, position)
        return None
    fields = HEADER.unpack_from(data, at)
    length = fields[1]
    if length < HEADER_SIZE - LENGTH_OVERHEAD or fields[3] != MAGIC:
        check_prefix(data, at, position)
    if left < length + LENGTH_OVERHEAD:
        return None
    return BatchView._make((*fields, position, data[at : at + length + LENGTH_OVERHEAD]))


def check_prefix(data: memoryview, at: int, position: int) -> None:
    """Refuse a start that no batch of magic 2 has, as far as its bytes are there."""
    left = len(data) - at
    if left < LENGTH_OVERHEAD:
        return
    _, length = _PREFIX.unpack_from(data, at)
    if length < HEADER_SIZE - LENGTH_OVERHEAD:
        raise CorruptMessage(f"The batch at byte {position} has length {length}, expected at least 49.")
    if left > MAGIC_AT and data[at + MAGIC_AT] != MAGIC:
        magic = data[at + MAGIC_AT]
        raise CorruptMessage(f"The batch at byte {position} has magic {magic}, expected {MAGIC}.")


def read_batches(data: bytes | memoryview, position: int = 0) -> Iterator[BatchView]:
    """The batches in `data`, headers only and without copying; a partial last batch is left out.

    `position` is where `data` lies in its file. Checksums are not looked at (see `BatchView.crc_ok`).
    """
    view = memoryview(data)
    at = 0
    while batch := view_at(view, at, position + at):
        yield batch
        at += batch.length + LENGTH_OVERHEAD


def decode_records(
    data: bytes | memoryview, from_offset: int = 0, drops: Callable[[BatchView], bool] | None = None
) -> Iterator[Record]:
    """The data records from `from_offset` on; control batches are skipped, a partial last batch too.

    Reads magic 0, 1 and 2. A batch with a wrong checksum raises CorruptMessage. Batches that `drops` answers with True
    are skipped without being decoded; it is asked about each batch of magic 2, in order.
    """
    view = memoryview(data)
    at = 0
    while at + MAGIC_AT < len(view):
        if view[at + MAGIC_AT] < MAGIC:
            records, at = legacy_records(view, at)
        else:
            batch = view_at(view, at, at)
            if batch is None:
                return
            at += batch.size
            if drops is not None and drops(batch):
                continue
            if batch.last_offset < from_offset or batch.control:
                continue
            if not batch.crc_ok:
                raise checksum_error(batch)
            records = decode_batch(batch)
            if batch.base_offset >= from_offset:
                yield from records
                continue
        for record in records:
            if record[0] >= from_offset:
                yield record


def checksum_error(batch: BatchView) -> CorruptMessage:
    return CorruptMessage(
        f"The batch at byte {batch.position} (offsets {batch.base_offset} to {batch.last_offset}) carries checksum "
        f"{batch.crc}, but its bytes give {crc32c(batch.data[ATTRIBUTES_AT:])}. Send or copy it again."
    )


def decode_batch(batch: BatchView) -> list[Record]:
    """All records of a batch; CorruptMessage when count, lengths or codec do not add up."""
    if batch.count < 0:
        raise CorruptMessage(f"{_where(batch)} claims {batch.count} records, expected zero or more.")
    if batch.count == 0:
        return []
    data = record_bytes(batch)
    try:
        stamp = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_BIT else None
        records, at = decode_body(data, batch.count, batch.base_offset, batch.base_timestamp, stamp, batch.position)
    except IndexError:
        raise CorruptMessage(f"{_where(batch)} ends in the middle of a record.") from None
    if at != len(data):
        raise CorruptMessage(f"{_where(batch)} has {len(data) - at} bytes behind its {batch.count} records.")
    return records


def record_bytes(batch: BatchView) -> bytes:
    """What lies behind the header, decompressed."""
    codec = batch.codec
    body = batch.data[HEADER_SIZE:]
    return bytes(body) if codec == "none" else decompress(codec, body)


def _where(batch: BatchView) -> str:
    return describe_place(batch.position, batch.base_offset)
