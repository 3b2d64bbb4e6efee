"""The headers of a record (KIP-82) <-> bytes. Pure."""

from collections.abc import Sequence

from muster.storage.errors import CorruptMessage
from muster.storage.records.varint import read_varint, varint


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
