"""Reading topics as a stream. On the driver Spark runs this in a process of its own, on whose main thread it calls.

Spark also makes a reader only to send it to the tasks, so making one does nothing: no call, no thread, no membership.
Nor does it load what only the driver needs: that is where a query's start would go.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from muster.spark.admission import default_limit
from muster.spark.reading_options import ReadOptions
from muster.spark.schema import read_columns
from muster.spark.slots import plan_slots, read_slot

if TYPE_CHECKING:
    from muster.spark.stream_driver import StreamDriver


class MusterStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming query's source."""

    def __init__(self, options: ReadOptions, schema: Any, cores: int | None) -> None:
        self._options = options
        self._columns = read_columns(schema)
        self._cores = cores
        self._made: StreamDriver | None = None

    @property
    def _driver(self) -> "StreamDriver":
        if self._made is None:
            from muster.spark.stream_driver import StreamDriver

            self._made = StreamDriver(self._options)
        return self._made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:
        self._driver.drain()

    def initialOffset(self) -> dict[str, Any]:
        return self._driver.initial()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._driver.latest(start, limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._driver.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The end alone says what to read, so that a batch that is repeated reads the same."""
        from muster.spark.offsets import parse_offset

        return plan_slots(parse_offset(end).ranges(), self._options, self._columns, self._cores)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_slot(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._driver.finished(end)

    def stop(self) -> None:
        if self._made is not None:
            self._made.close()
            self._made = None


class RefusedStreamReader(DataSourceStreamReader):
    """Stands for a reader whose options are wrong: the first question gets the error."""

    def __init__(self, error: ValueError) -> None:
        self._error = error

    def getDefaultReadLimit(self) -> ReadLimit:
        raise self._error

    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._error
