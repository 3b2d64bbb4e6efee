"""Which shard a group belongs to: Kafka's rule, so that tools and clients that know it agree with us."""

from functools import lru_cache

REMEMBERED_GROUPS = 16_384
"""How many answers are kept: heartbeats ask for the same few thousand groups again and again."""


@lru_cache(maxsize=REMEMBERED_GROUPS)
def partition_for(group_id: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that keeps the group. Raises ValueError without partitions.

    >>> partition_for("group-id", 50), partition_for("consumers-of-orders", 1)
    (13, 0)
    """
    if partitions < 1:
        raise ValueError(f"cannot route group {group_id!r} over {partitions} partitions; at least 1 is needed")
    code = java_hash(group_id)
    # Kafka's Utils.abs: the smallest integer has no positive twin and counts as 0.
    return 0 if code == -(2**31) else abs(code) % partitions


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: h = 31 * h + unit over the UTF-16 code units, in 32 bits with sign.

    >>> java_hash("polygenelubricants")
    -2147483648
    """
    # A lone surrogate is one unit in Java too, so it passes here.
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return code - 2**32 if code >= 2**31 else code
