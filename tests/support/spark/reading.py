"""A streaming query over topics whose rows are kept, and that is started again from its checkpoint."""

from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

from tests.support.node import NodeProcess
from tests.support.topics import eventually

Row = tuple[str, int, int]
"""Topic, partition, offset."""

LATE = "Python worker failed to connect back"
"""What Spark says when the process that drives a query is not there after 10 seconds, which no setting changes.

Nothing has begun then, and the query may be started again, as docs/spark.md says.
"""

STARTS = 5


class Reading:
    """Keeps (topic, partition, offset) of every row of every finished batch, and how often each batch ran."""

    def __init__(self, spark: Any, node: NodeProcess, folder: Path, **options: str) -> None:
        self._spark = spark
        self._checkpoint = folder / "checkpoint"
        self.options = {"bootstrap.servers": node.address, "default.api.timeout.ms": "60000"} | options
        self.batches: dict[int, list[Row]] = {}
        self.runs: Counter[int] = Counter()
        self.query: Any = None
        self._starts_left = STARTS
        self._trigger: dict[str, Any] = {}
        self.fails_once: set[int] = set()
        """Batches that fail the first time, after their rows were read."""

    def start(self, **trigger: Any) -> "Reading":
        self._trigger = trigger
        stream = self._spark.readStream.format("muster").options(**self.options).load()
        writer = stream.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(self._checkpoint))
        self.query = writer.trigger(**trigger or {"processingTime": "0 seconds"}).start()
        return self

    def drain(self) -> "Reading":
        """All there is now, then the end; raises what the query failed with."""
        self.start(availableNow=True)
        while not self._ended():
            self._again()
        return self

    def _ended(self) -> bool:
        """False when it has to be started again."""
        try:
            self.query.awaitTermination()
        except StreamingQueryException as error:
            if not self._was_late(error):
                raise
            return False
        return True

    def _was_late(self, error: Exception) -> bool:
        return LATE in str(error) and self._starts_left > 0

    def _again(self) -> None:
        self._starts_left -= 1
        self.start(**self._trigger)

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()

    def until(self, count: int) -> None:
        """Wait for so many rows; raises what the query failed with."""

        def enough() -> bool:
            if (error := self.query.exception()) is not None:
                if not self._was_late(error):
                    raise error
                self._again()
            return len(self.rows) >= count

        eventually(enough, f"{count} rows of {self.options}")

    @property
    def rows(self) -> list[Row]:
        """Of all batches together; a batch that ran twice counts as it was the last time."""
        return sorted(row for batch in self.batches.values() for row in batch)

    def exactly(self, **counts: int) -> bool:
        """Whether the rows are those of `topic=records`, dealt round over its partitions or not, each once."""
        if len(set(self.rows)) != len(self.rows):
            return False
        per_topic = Counter(topic for topic, _, _ in self.rows)
        return per_topic == Counter(counts) and self._without_gaps()

    def _without_gaps(self) -> bool:
        by_partition: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in self.rows:
            by_partition.setdefault((topic, partition), []).append(offset)
        return all(offsets == list(range(len(offsets))) for offsets in by_partition.values())

    def _keep(self, frame: Any, batch: int) -> None:
        rows = [
            (row.topic, row.partition, row.offset) for row in frame.select("topic", "partition", "offset").collect()
        ]
        self.runs[batch] += 1
        if batch in self.fails_once:
            self.fails_once.remove(batch)
            self.batches[batch] = rows
            raise RuntimeError(f"batch {batch} fails once")
        assert self.batches.get(batch, rows) is rows or sorted(self.batches[batch]) == sorted(rows), "a replay is exact"
        self.batches[batch] = rows
