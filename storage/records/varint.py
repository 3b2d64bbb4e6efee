"""Zigzag varints, as Kafka's records use them (int32 up to 5 bytes, int64 up to 10)."""

from collections.abc import Iterator
from itertools import chain, count

from muster.storage.errors import CorruptMessage

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
