"""The two sparse indexes of a segment, in Kafka's layout on disk. Pure.

Offset index: 8-byte entries (relative offset, position), where the offset is the *last* of the batch at that
position. Time index: 12-byte entries (timestamp, relative offset): the largest timestamp so far, and the last
offset of the earliest batch that has it. Both rise strictly. Look-up gives the greatest entry not above the target.
"""

import struct

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class OffsetIndex:
    """Entries (relative last offset, position) of one segment."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.data = bytearray(data)

    def __len__(self) -> int:
        return len(self.data) // 8

    def append(self, relative_offset: int, position: int) -> None:
        self.data += _OFFSET_ENTRY.pack(relative_offset, position)

    def entry(self, number: int) -> tuple[int, int]:
        relative_offset, position = _OFFSET_ENTRY.unpack_from(self.data, number * 8)
        return relative_offset, position

    def floor(self, relative_offset: int) -> tuple[int, int] | None:
        """The greatest entry whose offset is not above `relative_offset`."""
        low, high = 0, len(self)
        data, unpack = self.data, _OFFSET_ENTRY.unpack_from
        while low < high:
            middle = (low + high) // 2
            if unpack(data, middle * 8)[0] <= relative_offset:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1) if low else None

    def cut(self, position: int) -> None:
        """Forget the entries of batches at or past a position."""
        count = len(self)
        while count and self.entry(count - 1)[1] >= position:
            count -= 1
        del self.data[count * 8 :]


class TimeIndex:
    """Entries (largest timestamp so far, relative last offset of its batch) of one segment."""

    __slots__ = ("data",)

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.data = bytearray(data)

    def __len__(self) -> int:
        return len(self.data) // 12

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if the timestamp grew; an equal or older one tells nothing new."""
        if not self.data or timestamp > self.entry(len(self) - 1)[0]:
            self.data += _TIME_ENTRY.pack(timestamp, relative_offset)

    def entry(self, number: int) -> tuple[int, int]:
        timestamp, relative_offset = _TIME_ENTRY.unpack_from(self.data, number * 12)
        return timestamp, relative_offset

    def floor(self, timestamp: int) -> tuple[int, int] | None:
        """The greatest entry whose timestamp is not above `timestamp`."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1) if low else None
