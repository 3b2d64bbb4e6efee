"""Reading topics as a table: where to begin and end is settled once, when the query is planned."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from muster.spark.kafka_options import warn_of_ignored
from muster.spark.lookup import NodeLookup
from muster.spark.planning import OffsetRange
from muster.spark.pushdown import PushedFilters, narrow_ranges, push_filters
from muster.spark.reading_options import ReadOptions
from muster.spark.schema import read_columns
from muster.spark.slots import plan_slots, read_slot


class MusterBatchReader(DataSourceReader):
    """One batch query. Spark asks it for `partitions` on the driver and lets tasks `read` them."""

    def __init__(self, options: ReadOptions, schema: Any, cores: int | None) -> None:
        self._options = options
        self._columns = read_columns(schema)
        self._cores = cores
        self._pushed = PushedFilters()

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
