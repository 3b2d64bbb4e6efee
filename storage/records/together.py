"""Many records looked into together: one short loop finds where each begins, arrays check all that lies between.

It knows the shapes that nearly all batches have: lengths of one or two bytes, no headers, keys for all or for none.
Whatever else there is, sound or not, is left to the walk from record to record.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from muster.storage.records.bounds import Numbers

MOST_RECORDS = 1 << 14
"""So many are looked into together: tables are kept of what their offset deltas look like."""


class WalkedRecords(NamedTuple):
    """What there is to know of a batch's records besides that they can be read."""

    farthest: int
    """A zigzag number that no timestamp's exceeds: none lies further than half of it from the base timestamp."""
    keyless: int
    """The place of the first record without a key; -1 when all have one."""


# Added to a place it leads out of every batch, so that the next access is an IndexError.
_NOWHERE = 1 << 40

# The bytes from a record's length to the next record, by the first byte of the length and by the second if it has one.
_BY_FIRST = [(byte >> 1) + 1 if byte < 0x80 else (byte - 0x80 >> 1) + 2 for byte in range(256)]
_BY_SECOND = [byte << 6 if byte < 0x80 else _NOWHERE for byte in range(256)]

_firsts = np.arange(256)
# From a record's length to its timestamp, by the first byte of the length. Odd lengths are negative.
_TO_STAMP = np.where(_firsts & 1, _NOWHERE, np.where(_firsts < 0x80, 2, 3))


def _by_pair() -> tuple[Numbers, Numbers, Numbers]:
    """By two bytes, the first one the lower, of the varint that they begin, if it has no more than two of them:

    its bits; its bytes; its bytes with those whose number it says, as before keys and values. Odd ones say of these
    that there are none.
    """
    pair = np.arange(1 << 16)
    two = pair & 0x80 != 0
    short = ~two | (pair & 0x8000 == 0)
    zigzag = pair & 0x7F | np.where(two, pair >> 8 << 7, 0)
    wide = 1 + two
    field = np.where(short & (zigzag & 1 == 0), wide + (zigzag >> 1), _NOWHERE)
    return wide << 3, np.where(short, wide, _NOWHERE), field


_STAMP_BITS, _STAMP_BYTES, _FIELD_BYTES = _by_pair()

_FARTHEST = (1 << 14) - 1
_PADDING = bytes(16)
_WORD = np.dtype("<i8")
# As arrays, which numpy takes in half the time that it takes plain numbers in.
_ONE = np.array(1)
_PAIR = np.array(0xFFFF)


class _Deltas(NamedTuple):
    """The offset deltas of records 0, 1, 2 and so on, as they stand in a word of 64 bits."""

    word: Numbers
    mask: Numbers
    bits: Numbers
    bytes: Numbers

    @classmethod
    def alone(cls) -> "_Deltas":
        zigzag = np.arange(MOST_RECORDS) << 1
        two, three = zigzag >= 0x80, zigzag >= 0x4000
        word = zigzag & 0x7F | two << 7 | (zigzag >> 7 & 0x7F | three << 7) << 8 | zigzag >> 14 << 16
        wide = 1 + two + three
        return cls(word, (1 << 8 * wide) - 1, 8 * wide, wide)

    def without_key(self) -> "_Deltas":
        """With the byte behind them that says that there is no key."""
        return _Deltas(self.word | 1 << self.bits, self.mask << 8 | 0xFF, self.bits + 8, self.bytes + 1)


_BEFORE_KEY = _Deltas.alone()
_NO_KEY = _BEFORE_KEY.without_key()


def check_records_together(body: bytes, count: int) -> WalkedRecords | None:
    """Whether `body` is `count` records, up to MOST_RECORDS; None for whatever takes a closer look."""
    # With headers the last byte is hardly ever 0: that is seen before all is walked for nothing.
    heads = None if body[-1] else _heads(body, count)
    if heads is None:
        return None
    padded = b"".join((body, _PADDING))
    raw = np.frombuffer(padded, np.uint8)
    words: npt.NDArray[np.int64] = np.ndarray((len(body) + 8,), _WORD, padded, 0, (1,))
    bounds = np.fromiter(heads, np.int64, count + 1)
    try:
        # Each record's place that is looked at next: it begins with the timestamps, and ends with the header counts.
        at = bounds[:-1] + _TO_STAMP[raw[bounds[:-1]]]
        word = words[at]
        stamp = word & _PAIR
        word >>= _STAMP_BITS[stamp]
        at += _STAMP_BYTES[stamp]
        keyless = int(word[0]) & 0xFFFF == _NO_KEY.word[0]
        deltas = _NO_KEY if keyless else _BEFORE_KEY
        wrong = (word ^ deltas.word[:count]) & deltas.mask[:count]
        word >>= deltas.bits[:count]
        at += deltas.bytes[:count]
        if not keyless:
            at += _FIELD_BYTES[word & _PAIR]
            word = words[at]
        at += _FIELD_BYTES[word & _PAIR]
        wrong |= raw[at]
    except IndexError:
        return None
    at += _ONE
    wrong |= at ^ bounds[1:]
    return None if np.count_nonzero(wrong) else WalkedRecords(_FARTHEST, 0 if keyless else -1)


def _heads(body: bytes, count: int) -> list[int] | None:
    """Where each record's length lies, and the end; None where they do not end with the body."""
    at = 0
    heads: list[int] = []
    add = heads.append
    try:
        for _ in range(count):
            add(at)
            first = body[at]
            at += _BY_FIRST[first] if first < 0x80 else _BY_FIRST[first] + _BY_SECOND[body[at + 1]]
    except IndexError:
        return None
    add(at)
    return heads if at == len(body) else None
