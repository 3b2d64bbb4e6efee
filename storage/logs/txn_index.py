"""Which transactions of a segment were aborted: Kafka's `.txnindex`. Pure."""

import struct
from collections.abc import Iterable
from typing import NamedTuple

# version 0; producer id, first offset, last offset (the marker's), last stable offset when it ended
_ENTRY = struct.Struct(">hqqqq")


class AbortedEntry(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def pack_aborted(entries: Iterable[AbortedEntry]) -> bytes:
    return b"".join(_ENTRY.pack(0, *entry) for entry in entries)


def unpack_aborted(data: bytes) -> list[AbortedEntry]:
    whole = len(data) - len(data) % _ENTRY.size
    return [AbortedEntry(*fields[1:]) for fields in _ENTRY.iter_unpack(data[:whole])]


def overlapping_aborted(entries: Iterable[AbortedEntry], start: int, until: int) -> list[AbortedEntry]:
    """The aborted transactions with data in [start, until), of entries in the order of their markers."""
    found = []
    for entry in entries:
        if entry.last_offset >= start and entry.first_offset < until:
            found.append(entry)
        # Everything that ended later began at or past this one's last stable offset.
        if entry.last_stable_offset >= until:
            break
    return found
