"""Filters that a read can do itself, exactly: those on topic, partition and offset.

What is taken over is kept from Spark, which need not look at those rows again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import datasource as ds

from muster.spark.planning import OffsetRange


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """What filters leave; None means that they say nothing."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    from_offset: int = 0
    to_offset: int | None = None

    def takes(self, tp: tuple[str, int]) -> bool:
        topic, partition = tp
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


def push_filters(filters: Sequence[ds.Filter]) -> tuple[PushedFilters, list[ds.Filter]]:
    """What can be taken over, and the filters that Spark has to apply itself."""
    pushed, left = PushedFilters(), []
    for each in filters:
        taken = push_filter(pushed, each)
        if taken is None:
            left.append(each)
        else:
            pushed = taken
    return pushed, left


def push_filter(pushed: PushedFilters, each: ds.Filter) -> PushedFilters | None:
    """`pushed` with one more filter; None when it is not for us."""
    name = ".".join(getattr(each, "attribute", ()))
    match each:
        case ds.EqualTo() | ds.EqualNullSafe():
            return push_equal(pushed, name, (each.value,))
        case ds.In():
            return push_equal(pushed, name, each.value)
        case ds.GreaterThanOrEqual() | ds.GreaterThan() if name == "offset":
            lowest = int(each.value) + isinstance(each, ds.GreaterThan)
            return replace(pushed, from_offset=max(pushed.from_offset, lowest))
        case ds.LessThan() | ds.LessThanOrEqual() if name == "offset":
            behind = int(each.value) + isinstance(each, ds.LessThanOrEqual)
            return replace(pushed, to_offset=choose_lower(pushed.to_offset, behind))
        case ds.IsNotNull() if name in ("topic", "partition", "offset"):
            return pushed  # These are never null.
        case _:
            return None


def push_equal(pushed: PushedFilters, name: str, values: Iterable[Any]) -> PushedFilters | None:
    known = frozenset(value for value in values if value is not None)
    match name:
        case "topic":
            return replace(pushed, topics=known if pushed.topics is None else pushed.topics & known)
        case "partition":
            return replace(pushed, partitions=known if pushed.partitions is None else pushed.partitions & known)
        case "offset" if len(known) == 1:
            (value,) = known
            low, high = max(pushed.from_offset, value), choose_lower(pushed.to_offset, value + 1)
            return replace(pushed, from_offset=low, to_offset=high)
        case _:
            return None


def choose_lower(known: int | None, other: int) -> int:
    return other if known is None else min(known, other)


def narrow_ranges(ranges: Iterable[OffsetRange], pushed: PushedFilters) -> list[OffsetRange]:
    """The ranges, cut to what filters leave."""
    found = []
    for wanted in ranges:
        if not pushed.takes(wanted.tp):
            continue
        start = max(wanted.start, pushed.from_offset)
        end = wanted.end if pushed.to_offset is None else min(wanted.end, pushed.to_offset)
        if start < end:
            found.append(wanted._replace(start=start, end=end))
    return found
