"""Batches that are framed like one before need not be walked: the same bytes between keys and values say the same.

Producers whose values have one length send batch after batch of that kind, longer and shorter ones. Of the first such
batch is kept which of its bits say where keys and values lie; whether another one has the same is one comparison.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from muster.storage.errors import CorruptMessage, InvalidRecord
from muster.storage.records.batch import HEADER_SIZE, BatchView
from muster.storage.records.bounds import Bytes, read_varints, record_bounds
from muster.storage.records.look import AT_ONCE_BYTES, check_body, walk_records

_FEWEST = 8
"""Records that are walked as quickly as they are compared."""

MOST_KNOWN = 64
MOST_KINDS = 8
"""So many sizes and kinds of batches are kept: of 64 KB at most, and once or twice that in memory."""

_MOST_MISSED = 1024
_CONTINUES = 0x80
_BYTE = np.dtype(np.uint8)
_from = np.frombuffer
_and = np.bitwise_and


class Framing(NamedTuple):
    """What the bodies of one size, with so many records, must have in common: their bits under a mask.

    All of a body goes through the mask: in one sweep that is cheaper than to pick the few bytes that count.
    """

    mask: Bytes
    expected: bytearray
    reach_ms: int
    """No timestamp written in so many bytes lies further from the base timestamp."""
    room: Bytes
    """Where the masked bytes go."""


class FramingKind(NamedTuple):
    """Bodies framed alike, from the one that was met: the bits of it that say where its records' fields lie."""

    records: int
    mask: Bytes
    expected: Bytes
    ends: Sequence[int]
    """Where each record ends."""
    reach_ms: int

    def framing(self, count: int, room: Bytes) -> Framing:
        """That of a body with the first `count` of its records."""
        size = self.ends[count - 1]
        return Framing(self.mask[:size], bytearray(self.expected[:size]), self.reach_ms, room[:size])


class Framings:
    """Those met lately, by the size of the body and the number of records. Used by the appending thread alone."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Framing] = {}
        self._kinds: list[FramingKind] = []
        self._room = np.empty(AT_ONCE_BYTES, np.uint8)
        # By size, count and the length of the first record: where values differ in length that seldom comes twice.
        self._missed: dict[tuple[int, int, bytes], int] = {}
        self.walked = 0
        """Records that had to be walked, so far."""

    def sound(self, view: memoryview, count: int, past_ms: int, future_ms: int) -> bool:
        """Whether all records of an uncompressed batch can be read and none is further than this from its base time.

        False also where only a closer look can tell.
        """
        if count < _FEWEST:
            return self._few_sound(bytes(view[HEADER_SIZE:]), count, past_ms, future_ms)
        size = len(view) - HEADER_SIZE
        known = self._known.get((size, count)) or self._begun(size, count)
        if known is not None:
            mask, expected, reach_ms, room = known
            # In this order: the comparison is the bytearray's, in one go and without another copy.
            if expected == _and(_from(view, _BYTE, -1, HEADER_SIZE), mask, room):
                return past_ms >= reach_ms <= future_ms
        body = bytes(view[HEADER_SIZE:])
        self.walked += count
        try:
            reach_ms = (check_body(body, count).farthest + 1) >> 1
        except InvalidRecord:
            return False
        if size <= AT_ONCE_BYTES:
            self._note_miss(body, count)
        return reach_ms <= past_ms and reach_ms <= future_ms

    def _few_sound(self, body: bytes, count: int, past_ms: int, future_ms: int) -> bool:
        """As `sound`, without what only pays for many records."""
        self.walked += count
        try:
            end, farthest, _ = walk_records(body, 0, 0, count)
        except (IndexError, CorruptMessage, InvalidRecord):
            return False
        return end == len(body) and past_ms >= (farthest + 1) >> 1 <= future_ms

    def _begun(self, size: int, count: int) -> Framing | None:
        for kind in self._kinds:
            if kind.records > count > 0 and kind.ends[count - 1] == size:
                return self._keep(size, count, kind)
        return None

    def _note_miss(self, body: bytes, count: int) -> None:
        """Learn a kind when it comes a second time, and more and more seldom if it turns out to be many kinds."""
        place = len(body), count, body[:2]
        if len(self._missed) >= _MOST_MISSED:
            self._missed.clear()
        misses = self._missed[place] = self._missed.get(place, 0) + 1
        if misses == 1 or misses & (misses - 1):
            return
        kind = kind_of(body, count)
        if kind is not None:
            self._keep(len(body), count, kind)
            self._kinds = [kind, *self._kinds][:MOST_KINDS]

    def _keep(self, size: int, count: int, kind: FramingKind) -> Framing:
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        framing = self._known[size, count] = kind.framing(count, self._room)
        return framing


def kind_of(body: bytes, count: int) -> FramingKind | None:
    """The kind of a sound body; None where there are headers, whose places differ in more than that."""
    raw = np.frombuffer(body, np.uint8)
    batch = BatchView(0, 0, 0, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count, 0, memoryview(b""))
    starts, ends = record_bounds(body, raw, (batch,), ((0, len(body)),))
    deltas_at = read_varints(raw, starts + 1)[1]
    key_lengths, keys_at = read_varints(raw, read_varints(raw, deltas_at)[1])
    value_lengths, values_at = read_varints(raw, keys_at + np.maximum(key_lengths, 0))
    if (values_at + np.maximum(value_lengths, 0) + 1 != ends).any():
        return None
    mask = np.full(len(body), 0xFF, np.uint8)
    mask[starts] = 0  # Attributes are unused.
    for start, end in zip((starts + 1).tolist(), deltas_at.tolist(), strict=True):
        mask[start:end] = _CONTINUES
    for at, lengths in ((keys_at, key_lengths), (values_at, value_lengths)):
        for start, length in zip(at.tolist(), lengths.tolist(), strict=True):
            mask[start : start + max(length, 0)] = 0
    widest = int((deltas_at - starts).max()) - 1
    return FramingKind(count, mask, raw & mask, ends.tolist(), 1 << (7 * widest - 1))
