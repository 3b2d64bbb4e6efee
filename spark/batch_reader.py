"""Reads topics as a table: start and end are fixed once, when the query is planned.

Filters on topic, partition and offset can be pushed down. They are applied exactly, so Spark need not check the rows
again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import datasource as ds
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from muster.spark.kafka_options import warn_of_ignored
from muster.spark.lookup import NodeLookup
from muster.spark.planning import OffsetRange
from muster.spark.read_options import ReadOptions, raise_without_frames, read_columns
from muster.spark.stream_reader import plan_slots, read_slot

# Filters
# -------


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


# The reader
# ----------


class MusterBatchReader(DataSourceReader):
    """One batch query. Spark asks it for `partitions` on the driver and lets tasks `read` them."""

    def __init__(self, options: ReadOptions, schema: Any, cores: int | None) -> None:
        self._options = options
        self._columns = read_columns(schema)
        self._cores = cores
        self._pushed = PushedFilters()

    @raise_without_frames
    def partitions(self) -> list[InputPartition]:
        warn_of_ignored(self._options.ignored)
        lookup = NodeLookup(self._options)
        try:
            ranges = lookup.run(settle_ranges(lookup, self._pushed))
        finally:
            lookup.close()
        return list(plan_slots(ranges, self._options, self._columns, self._cores))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_slot(partition)


class FilteringBatchReader(MusterBatchReader):
    """A reader that takes filters over. Spark refuses any reader that could, unless its pushdown setting is on."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        self._pushed, left = push_filters(filters)
        yield from left


def make_batch_reader(options: ReadOptions, schema: Any, cores: int | None) -> MusterBatchReader:
    kind = FilteringBatchReader if options.pushdown else MusterBatchReader
    return kind(options, schema, cores)


async def settle_ranges(lookup: NodeLookup, pushed: PushedFilters) -> list[OffsetRange]:
    """What the query reads, as of now."""
    starts, ends = await lookup.span()
    return narrow_ranges([OffsetRange(*tp, start, ends[tp]) for tp, start in sorted(starts.items())], pushed)
