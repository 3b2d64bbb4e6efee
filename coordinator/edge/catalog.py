"""What both doors ask of the catalog: whether partitions exist. A catalog has the number of partitions by topic."""

from collections.abc import Mapping
from typing import TypeAlias

PartitionCounts: TypeAlias = Mapping[str, int]


def range_exists(catalog: PartitionCounts, topic: str, lowest: int, highest: int) -> bool:
    """Whether every partition from `lowest` to `highest` does; none at all is no objection.

    >>> range_exists({"t": 2}, "t", 0, 1), range_exists({"t": 2}, "t", 0, 2), range_exists({}, "t", 0, -1)
    (True, False, True)
    """
    return lowest >= 0 and highest < catalog.get(topic, 0)


def partition_exists(catalog: PartitionCounts, topic: str, partition: int) -> bool:
    """
    >>> partition_exists({"t": 2}, "t", 1), partition_exists({"t": 2}, "t", 2), partition_exists({"t": 2}, "t", -1)
    (True, False, False)
    >>> partition_exists({"t": 2}, "u", 0)
    False
    """
    return 0 <= partition < catalog.get(topic, 0)


def describe_missing_partition(catalog: PartitionCounts, topic: str, partition: int) -> str:
    """The words of a partition that does not exist.

    >>> describe_missing_partition({"t": 2}, "t", 2)
    "t-2 does not exist; the partitions of 't' are 0 to 1"
    >>> describe_missing_partition({}, "t", 0)
    "t-0: there is no topic 't'; create it first"
    """
    count = catalog.get(topic, 0)
    if not count:
        return f"{topic}-{partition}: there is no topic {topic!r}; create it first"
    return f"{topic}-{partition} does not exist; the partitions of {topic!r} are 0 to {count - 1}"
