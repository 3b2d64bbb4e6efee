"""What both doors ask of the catalog: whether partitions exist. A catalog has the number of partitions by topic."""

from collections.abc import Mapping
from typing import TypeAlias

Catalog: TypeAlias = Mapping[str, int]


def all_exist(catalog: Catalog, topic: str, lowest: int, highest: int) -> bool:
    """Whether every partition from `lowest` to `highest` does; none at all is no objection.

    >>> all_exist({"t": 2}, "t", 0, 1), all_exist({"t": 2}, "t", 0, 2), all_exist({}, "t", 0, -1)
    (True, False, True)
    """
    return lowest >= 0 and highest < catalog.get(topic, 0)


def exists(catalog: Catalog, topic: str, partition: int) -> bool:
    """
    >>> exists({"t": 2}, "t", 1), exists({"t": 2}, "t", 2), exists({"t": 2}, "t", -1), exists({"t": 2}, "u", 0)
    (True, False, False, False)
    """
    return 0 <= partition < catalog.get(topic, 0)


def why_not(catalog: Catalog, topic: str, partition: int) -> str:
    """The words of a partition that does not exist.

    >>> why_not({"t": 2}, "t", 2)
    "t-2 does not exist; the partitions of 't' are 0 to 1"
    >>> why_not({}, "t", 0)
    "t-0: there is no topic 't'; create it first"
    """
    count = catalog.get(topic, 0)
    if not count:
        return f"{topic}-{partition}: there is no topic {topic!r}; create it first"
    return f"{topic}-{partition} does not exist; the partitions of {topic!r} are 0 to {count - 1}"
