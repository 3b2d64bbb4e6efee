"""The reader of a stream, and the task slots that batch and stream reads share.

On the driver Spark runs the reader in a process of its own and calls it on the main thread. Spark also creates
readers only to send them to tasks, so creating one has no effect: no call, no thread, no membership. What only the
driver needs is loaded when the driver needs it.
"""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from muster.spark.planning import FetchSettings, OffsetRange, TaskPlan, plan_tasks
from muster.spark.read_options import ReadOptions, iterate_without_frames, raise_without_frames, read_columns
from muster.spark.stream_offsets import default_limit

if TYPE_CHECKING:
    from muster.spark.stream_driver import StreamDriver


# Task slots, of batch reads as well
# ----------------------------------


class TaskSlot(InputPartition):
    """The ranges of one task, in order."""

    def __init__(self, ranges: Sequence[OffsetRange], settings: FetchSettings) -> None:
        super().__init__([tuple(wanted) for wanted in ranges])
        self.settings = settings

    @property
    def ranges(self) -> list[OffsetRange]:
        return [OffsetRange(*wanted) for wanted in self.value]


def plan_slots(
    ranges: Sequence[OffsetRange], options: ReadOptions, columns: tuple[str, ...], cores: int | None
) -> list[TaskSlot]:
    settings = FetchSettings(
        connection=options.connection,
        columns=columns,
        rows=options.arrow_rows,
        patience_ms=options.poll_timeout_ms,
        max_bytes=options.fetch_max_bytes,
        max_partition_bytes=options.max_partition_fetch_bytes,
        committed=options.isolation_level == "read_committed",
        fail_on_data_loss=options.fail_on_data_loss,
    )
    plan = TaskPlan(
        assignor=options.assignor,
        tasks=(cores or count_usable_cores()) if options.tasks == "cores" else options.tasks,
        options=options.assignor_options,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
        deadline_ms=options.assignor_deadline_ms,
    )
    return [TaskSlot(slot, settings) for slot in plan_tasks(ranges, plan)]


def count_usable_cores() -> int:
    """The processors this process may use; on a cluster whoever registers the source knows better."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_slot(partition: InputPartition) -> Iterator[Any]:
    """What a task yields. Spark makes a partition of its own, without value, of a plan without any."""
    if not isinstance(partition, TaskSlot):
        assert partition.value is None, f"a task was given {partition!r}, which this source never planned"
        return iter(())
    from muster.spark.fetch import read_ranges

    return iterate_without_frames(read_ranges(partition.settings, partition.ranges))


# The reader
# ----------


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

    @raise_without_frames
    def prepareForTriggerAvailableNow(self) -> None:
        self._driver.drain()

    @raise_without_frames
    def initialOffset(self) -> dict[str, Any]:
        return self._driver.initial()

    @raise_without_frames
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._driver.latest(start, limit)

    @raise_without_frames
    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._driver.report()

    @raise_without_frames
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The end alone says what to read, so that a batch that is repeated reads the same."""
        from muster.spark.stream_offsets import parse_offset

        return plan_slots(parse_offset(end).ranges(), self._options, self._columns, self._cores)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_slot(partition)

    @raise_without_frames
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

    @raise_without_frames
    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    @raise_without_frames
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._error
