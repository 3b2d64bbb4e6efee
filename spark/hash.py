"""Which partition each of many keys goes to, without a Python object per key: Kafka's murmur2 over columns."""

import numpy as np
import numpy.typing as npt

from muster.client.records.partitioner import MULTIPLIER, SEED, murmur2

Hashes = npt.NDArray[np.uint32]
Numbers = npt.NDArray[np.int64]

LONG = 1024
"""Keys of more bytes are hashed one by one: a step over all keys costs more than a long key by itself."""

_M = np.uint32(MULTIPLIER)


def hash_keys(data: npt.NDArray[np.uint8], starts: Numbers, lengths: Numbers) -> Hashes:
    """The hash of each key that lies in `data`; see `muster.client.records.partitioner.murmur2`.

    >>> hash_keys(np.frombuffer(b"21abc", np.uint8), np.array([0]), np.array([2])).astype(np.int32).tolist()
    [-973932308]
    """
    hashed = np.uint32(SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    going = np.flatnonzero((words > 0) & (lengths <= LONG))
    step = 0
    while going.size:
        word = _word(data, starts[going] + 4 * step) * _M
        word = (word ^ word >> np.uint32(24)) * _M
        hashed[going] = hashed[going] * _M ^ word
        step += 1
        going = going[words[going] > step]
    _add_rest(hashed, data, starts + 4 * words, lengths & 3)
    hashed = (hashed ^ hashed >> np.uint32(13)) * _M
    hashed ^= hashed >> np.uint32(15)
    for place in np.flatnonzero(lengths > LONG).tolist():
        start = int(starts[place])
        hashed[place] = murmur2(data[start : start + int(lengths[place])].tobytes())
    return hashed


def choose_partitions(data: npt.NDArray[np.uint8], starts: Numbers, lengths: Numbers, partitions: int) -> Numbers:
    """Kafka's toPositive(murmur2(key)) % partitions, for each key."""
    return (hash_keys(data, starts, lengths) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions


def _word(data: npt.NDArray[np.uint8], at: Numbers) -> Hashes:
    word = data[at].astype(np.uint32)
    for byte in range(1, 4):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _add_rest(hashed: Hashes, data: npt.NDArray[np.uint8], at: Numbers, rest: Numbers) -> None:
    """The one to three bytes behind the last whole word."""
    some = np.flatnonzero(rest > 0)
    if not some.size:
        return
    left = np.zeros(some.size, np.uint32)
    for byte in range(3):
        there = rest[some] > byte
        left[there] |= data[at[some][there] + byte].astype(np.uint32) << np.uint32(8 * byte)
    hashed[some] = (hashed[some] ^ left) * _M
