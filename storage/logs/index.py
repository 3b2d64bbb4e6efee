"""The two sparse indexes of a segment, in Kafka's layout on disk. Pure.

Offset index: 8-byte entries (relative offset, position), where the offset is the *last* of the batch at that
position. Time index: 12-byte entries (timestamp, relative offset): the largest timestamp so far, and the last
offset of the earliest batch that has it. Both rise strictly. Look-up gives the greatest entry not above the target.
"""

import struct
import sys
from array import array
from bisect import bisect_right

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
# Older than any timestamp.
NO_TIMESTAMP = -(1 << 63) - 1


class OffsetIndex:
    """Entries (relative last offset, position) of one segment."""

    __slots__ = ("offsets", "positions")

    def __init__(self, data: bytes = b"") -> None:
        numbers = array("i", data[: len(data) // 8 * 8])
        if sys.byteorder == "little":
            numbers.byteswap()
        self.offsets = numbers[0::2]
        self.positions = numbers[1::2]

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def data(self) -> bytes:
        """The entries as they lie on disk."""
        return b"".join(map(_OFFSET_ENTRY.pack, self.offsets, self.positions))

    def append(self, relative_offset: int, position: int) -> None:
        # Readers look the offset up first.
        self.positions.append(position)
        self.offsets.append(relative_offset)

    def floor(self, relative_offset: int) -> tuple[int, int] | None:
        """The greatest entry whose offset is not above `relative_offset`."""
        place = bisect_right(self.offsets, relative_offset) - 1
        return (self.offsets[place], self.positions[place]) if place >= 0 else None


class TimeIndex:
    """Entries (largest timestamp so far, relative last offset of its batch) of one segment."""

    __slots__ = ("latest", "offsets", "timestamps")

    def __init__(self, data: bytes = b"") -> None:
        entries = list(_TIME_ENTRY.iter_unpack(data[: len(data) // 12 * 12]))
        self.timestamps = array("q", (entry[0] for entry in entries))
        self.offsets = array("i", (entry[1] for entry in entries))
        self.latest = self.timestamps[-1] if self.timestamps else NO_TIMESTAMP

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def data(self) -> bytes:
        """The entries as they lie on disk."""
        return b"".join(map(_TIME_ENTRY.pack, self.timestamps, self.offsets))

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if the timestamp grew; an equal or older one tells nothing new."""
        if timestamp > self.latest:
            self.latest = timestamp
            # Readers look the timestamp up first.
            self.offsets.append(relative_offset)
            self.timestamps.append(timestamp)

    def floor(self, timestamp: int) -> tuple[int, int] | None:
        """The greatest entry whose timestamp is not above `timestamp`."""
        place = bisect_right(self.timestamps, timestamp) - 1
        return (self.timestamps[place], self.offsets[place]) if place >= 0 else None
