"""Reads on an event loop: of what lies in memory, and of that not too much."""

from typing import Protocol

from muster.storage.files import File, NotAtHand

WALK_BYTES = 64 << 10
"""So many bytes more may be read on the way to a batch: a thousand headers of the smallest batches there are."""


class SegmentBytes(Protocol):
    """Where a segment's bytes come from: its file, or what of it is at hand."""

    def read(self, size: int, at: int) -> bytes | memoryview:
        """`size` bytes from position `at`; from a file fewer where it ends."""
        ...


class CachedSegmentBytes:
    """A file that ends at `end`, of which at most `most` bytes are read, and those on the way to them.

    NotAtHand for all else.
    """

    __slots__ = ("_end", "_file", "_left")

    def __init__(self, file: File, end: int, most: int) -> None:
        self._file = file
        self._end = end
        self._left = most + WALK_BYTES

    def read(self, size: int, at: int) -> bytes | memoryview:
        size = min(size, self._end - at)
        self._left -= size
        if self._left < 0:
            raise NotAtHand
        return self._file.read_at_hand(size, at)
