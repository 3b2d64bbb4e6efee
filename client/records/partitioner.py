"""Which partition a keyed record goes to: Kafka's default, so that producers in any language agree."""

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2, 32 bits, with Kafka's seed; unsigned.

    >>> murmur2(b"21") == (-973932308) % 2**32
    True
    """
    length = len(data)
    hashed = SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        hashed = hashed * MULTIPLIER & MASK ^ word
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * MULTIPLIER & MASK
    hashed = (hashed ^ hashed >> 13) * MULTIPLIER & MASK
    return hashed ^ hashed >> 15


def choose_partition(key: bytes, partitions: int) -> int:
    """Kafka's toPositive(murmur2(key)) % partitions.

    >>> choose_partition(b"21", 1000)
    340
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions
