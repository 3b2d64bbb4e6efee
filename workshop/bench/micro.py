"""Micro-batches: what their number of tasks costs, and what the source adds to Spark's own fixed cost."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from muster.workshop.bench.rows import BenchRow
from muster.workshop.bench.spark_rows import faster_row, take_turns
from muster.workshop.bench.stage import fill_topic, open_session, run_spark_node

MANY = 64
ROWS_OF_MANY = 6_400
BATCHES_OF_MANY = 6
GOAL_MANY = 6.0

FEW_ROWS = 100
BATCHES_OF_FEW = 25
GOAL_FEW = 0.5
MICRO_TURNS = 3
EVERY = "250 milliseconds"
"""The rate source has always more: between two triggers its query can be stopped without a batch being torn off."""

LOOK_AGAIN_S = 0.005
SKIPPED = 2
"""First batches of a query, which start Python workers."""


def measure_many(name: str, home: str) -> Iterator[BenchRow]:
    """Coalesced to the cores by the assignor, against one task for each of 64 partitions."""
    with run_spark_node(home) as address, open_session(2) as spark:
        fill_topic(address, "many", [ROWS_OF_MANY // MANY * BATCHES_OF_MANY] * MANY)

        def batches(assignor: str) -> float:
            source = {"bootstrap.servers": address, "subscribe": "many", "startingOffsets": "earliest"}
            source |= {"maxOffsetsPerTrigger": str(ROWS_OF_MANY), "assignor": assignor}
            return measure_typical_batch(
                spark.readStream.format("muster").options(**source).load(), home, BATCHES_OF_MANY
            )

        ours, theirs = take_turns(2, lambda: batches("split"), lambda: batches("one-to-one"))
    yield faster_row(f"{name}, 6,400 rows a batch", ours, "one task per partition", theirs, GOAL_MANY)


def measure_few(name: str, home: str) -> Iterator[BenchRow]:
    """100 rows with one task, against Spark's built-in rate source."""
    with run_spark_node(home) as address, open_session(2) as spark:
        fill_topic(address, "few", [FEW_ROWS * BATCHES_OF_FEW])

        def ours() -> float:
            source = {"bootstrap.servers": address, "subscribe": "few", "startingOffsets": "earliest"}
            source |= {"maxOffsetsPerTrigger": str(FEW_ROWS), "tasks": "1"}
            return measure_typical_batch(
                spark.readStream.format("muster").options(**source).load(), home, BATCHES_OF_FEW, EVERY
            )

        def rate() -> float:
            source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", FEW_ROWS)
            return measure_typical_batch(source.option("numPartitions", 1).load(), home, BATCHES_OF_FEW, EVERY)

        mine, his = take_turns(MICRO_TURNS, ours, rate)
    yield faster_row(f"{name} of 100 rows", mine, "the built-in rate source", his, GOAL_FEW)


def measure_typical_batch(frame: Any, home: str, batches: int, every: str = "0 seconds") -> float:
    """Seconds of a query's median micro-batch; the query is stopped after so many."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint(home))
    query = writer.trigger(processingTime=every).start()
    try:
        while len(stop_when_done(query)) < batches and not query.awaitTermination(0.05):
            pass
        if (error := query.exception()) is not None:
            raise error
        took: list[int] = [progress["durationMs"]["triggerExecution"] for progress in stop_when_done(query)]
        while query.isActive and query.status["isTriggerActive"]:
            # Spark reports a batch that a stop interrupts as an error of its sink.
            time.sleep(LOOK_AGAIN_S)
    finally:
        query.stop()
    return statistics.median(took[SKIPPED:]) / 1000


def stop_when_done(query: Any) -> list[Any]:
    return [progress for progress in query.recentProgress if progress["numInputRows"] > 0]


def checkpoint(home: str) -> str:
    return tempfile.mkdtemp(dir=home)
