"""One task's work as Spark carries it: ranges and what is needed to fetch them."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from muster.spark.planning import OffsetRange, TaskPlan, plan_tasks
from muster.spark.reading_options import ReadOptions
from muster.spark.settings import FetchSettings


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

    return read_ranges(partition.settings, partition.ranges)
