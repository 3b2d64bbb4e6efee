"""The records inside a batch (magic 2) <-> bytes, before compression. Pure, and the innermost loops of the log."""

from collections.abc import Sequence

from muster.storage.errors import CorruptMessage
from muster.storage.records.headers import decode_headers, encode_headers
from muster.storage.records.varint import SMALL, read_unsigned, varint
from muster.storage.types import Record

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
