"""Cases of `muster bench spark` that need no broker: reading a table, a skewed backlog, and micro-batches.

All cases share a node, topics filled with known records, and a small Spark session in a JVM of its own. Reading a
million records of 100 bytes is held against Parquet, against the same reader without Arrow, and against what Spark
leaves for any source in Python to reach. The skewed backlog measures the slowest task when each record costs the
same time; a seed draws which partitions are heavy, another one in each turn, because in the order of their weight
the four heaviest would all fall to the first slot of `range`. Micro-batches: what their number of tasks costs, and
what the source adds to Spark's own fixed cost.
"""

import contextlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from muster.client import Admin
from muster.client.calls.methods import PRODUCE
from muster.client.types import TopicPartition
from muster.spark.fetch import TYPES, build_arrow_schema
from muster.spark.options import check_write_options
from muster.spark.read_options import COLUMNS
from muster.spark.row_encoding import EncodedRows, encode_columns
from muster.spark.session import session
from muster.spark.source import MusterDataSource
from muster.spark.write_calls import SinkNode
from muster.spark.write_calls import fill_request as fill_in
from muster.storage.rpc.v1.broker_service_pb2 import ProduceRequest
from muster.workshop.bench.processes import ServerProcess, stop_process
from muster.workshop.bench.report import BenchRow

# Rows of turns
# -------------

BENCH = "spark"


def faster_row(case: str, ours_s: Sequence[float], peer: str, theirs_s: Sequence[float], goal: float) -> BenchRow:
    """Seconds of turns that alternated: the ratio is the median of the peer's over ours, turn by turn.

    >>> faster_row("x", [2.0, 4.0], "y", [6.0, 6.0], 1.5)[2:8]
    (3.0, 's', 'y', 6.0, 2.25, 1.5)
    """
    ratio = statistics.median(his / mine for mine, his in zip(ours_s, theirs_s, strict=True))
    mine, his = statistics.median(ours_s), statistics.median(theirs_s)
    return BenchRow(BENCH, case, round(mine, 3), "s", peer, round(his, 3), round(ratio, 3), goal, ratio >= goal)


def take_turns(turns: int, *works: Callable[[], float]) -> list[list[float]]:
    """What each of the works came to, in each of the turns; whoever begins changes from turn to turn."""
    results: list[list[float]] = [[] for _ in works]
    for turn in range(turns):
        for place in range(len(works)):
            chosen = (place + turn) % len(works)
            results[chosen].append(works[chosen]())
    return results


# Node, topics and session
# ------------------------

VALUE_BYTES = 100
RECORDS_OF_A_BATCH = 150
"""What fits into a producer's default batch of 16 KB."""

REQUEST_BATCHES = 100
HEAP = "1g"
JVM_ENDS_S = 60.0


@contextlib.contextmanager
def run_spark_node(home: str) -> Iterator[str]:
    """The address of a node with its data below `home`; the system decides on which cores it runs."""
    with run_timed_node(home) as node:
        yield node.address


@contextlib.contextmanager
def run_timed_node(home: str) -> Iterator[ServerProcess]:
    """The same, with what its processor time is."""
    command = ["-m", "muster.cli", "serve", "--announce", "--until-eof", "--listen", "127.0.0.1:0"]
    command += ["--http", ""]
    process = subprocess.Popen(
        [sys.executable, *command, "--data", f"{home}/node"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield ServerProcess(process)
    finally:
        stop_process(process)


@contextlib.contextmanager
def open_session(cores: int, more: Mapping[str, str] | None = None) -> Iterator[Any]:
    """A session of its own on so many task slots, with `more` settings, in a JVM of its own.

    Jars and memory are told to a JVM when it starts: one that an earlier case left would know nothing of them.
    """
    # Light but for the compiler: long reads are compiled to the end, as they would be in earnest.
    config = {"spark.driver.memory": HEAP, "spark.driver.extraJavaOptions": "-XX:+UseSerialGC", **(more or {})}
    started = session("muster bench", master=f"local[{cores}]", light=True, config=config)
    started.sparkContext.setLogLevel("ERROR")
    try:
        yield started
    finally:
        started.stop()
        end_jvm()


def end_jvm() -> None:
    """End the JVM that pyspark started, which it else keeps for the next session. It goes when its input ends."""
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(JVM_ENDS_S)


def fill_topic(address: str, topic: str, counts: Sequence[int], batches: Sequence[bytes] | None = None) -> None:
    """Make a topic with so many records of 100 bytes, no two alike, in each of its partitions.

    With `batches` each partition gets those, which hold so many.
    """
    with Admin({"bootstrap.servers": address}) as admin:
        admin.create_topic(topic, len(counts))
    node = SinkNode(check_write_options({"bootstrap.servers": address}, streaming=False))
    for partition, count in enumerate(counts):
        tp = TopicPartition(topic, partition)
        sizes = batch_sizes(count)
        for start in range(0, len(sizes), REQUEST_BATCHES):
            places = range(start, min(start + REQUEST_BATCHES, len(sizes)))
            data = [
                EncodedRows(tp, batches[at] if batches else encode_batch_of_values(sizes[at]), sizes[at])
                for at in places
            ]
            request = ProduceRequest(acks=-1)
            fill_in(request.topic_data, data)
            node.run(node.transport.call(PRODUCE, request, doing="filling a topic"))


def batch_sizes(count: int) -> list[int]:
    return [min(RECORDS_OF_A_BATCH, count - start) for start in range(0, count, RECORDS_OF_A_BATCH)]


def record_batches(count: int) -> Iterator[bytes]:
    """So many records in batches as a producer makes them, for whoever is to have the same bytes as somebody else."""
    return (encode_batch_of_values(size) for size in batch_sizes(count))


def encode_batch_of_values(count: int) -> bytes:
    """A batch of values that no dictionary or compression makes smaller."""
    ends = pa.array(range(0, (count + 1) * VALUE_BYTES, VALUE_BYTES), pa.int32())
    values = pa.Array.from_buffers(
        pa.binary(), count, [None, ends.buffers()[1], pa.py_buffer(os.urandom(count * VALUE_BYTES))]
    )
    return encode_columns(None, values, None, time.time_ns() // 1_000_000, "none")


def time_work(work: Callable[[], object]) -> float:
    """Wall seconds."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def seconds_to_read(table: Callable[[], Any]) -> float:
    """Wall seconds from opening a table to its last row, the whole statement as somebody would write it.

    Spark looks into Parquet's files before there is a DataFrame, and plans a source in Python only after: to start the
    clock in between would leave out a good part of the one and nothing of the other.
    """
    return time_work(lambda: table().write.format("noop").mode("overwrite").save())


# Reading a table
# ---------------

READ_RECORDS = 1_000_000
READ_PARTITIONS = 4
CORES = 2
ROWS = 25_000
WARM_UP = 12
"""Turns before the first that counts: Java's compiler takes its time with reads of this length."""

READ_TURNS, TURNS_OF_TUPLES = 15, 3
GOAL_PARQUET = 0.6
GOAL_READY = 0.6
GOAL_TUPLES = 3.0


class TupleSource(MusterDataSource):
    """The same rows as tuples: what a data source yields that knows nothing of Arrow."""

    @classmethod
    def name(cls) -> str:
        return "muster_tuples"

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(super().reader(schema))


class WrappedReader(DataSourceReader):
    """The partitions of another reader, to be read in a different way."""

    def __init__(self, inner: DataSourceReader) -> None:
        self._inner = inner

    def partitions(self) -> Any:
        return self._inner.partitions()


class TupleReader(WrappedReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        batches: Iterator[Any] = self._inner.read(partition)
        for batch in batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class ReadySource(MusterDataSource):
    """As many rows of the same columns, from nowhere: what is left is Spark's own cost of a source in Python."""

    @classmethod
    def name(cls) -> str:
        return "ready_batches"

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyBatchReader()


class ReadyBatchReader(DataSourceReader):
    def partitions(self) -> Any:
        return [InputPartition(number) for number in range(CORES)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        now = datetime.now(UTC)
        values = {
            "key": pa.nulls(ROWS, TYPES["key"]),
            "value": pa.array([os.urandom(VALUE_BYTES) for _ in range(ROWS)], TYPES["value"]),
            "offset": pa.array(range(ROWS), TYPES["offset"]),
        }
        same = {"topic": "records", "partition": partition.value, "timestamp": now, "timestampType": 0}
        values |= {name: pa.repeat(pa.scalar(value, TYPES[name]), ROWS) for name, value in same.items()}
        batch = pa.RecordBatch.from_arrays([values[name] for name in COLUMNS], schema=build_arrow_schema(COLUMNS))
        for _ in range(READ_RECORDS // CORES // ROWS):
            yield batch


def measure_table_reads(name: str, home: str) -> Iterator[BenchRow]:
    with run_spark_node(home) as address, open_session(CORES) as spark:
        fill_topic(address, "records", [READ_RECORDS // READ_PARTITIONS] * READ_PARTITIONS)
        spark.dataSource.register(TupleSource)
        spark.dataSource.register(ReadySource)

        def table(source: str) -> Any:
            return spark.read.format(source).options(**{"bootstrap.servers": address, "subscribe": "records"}).load()

        files = f"{home}/parquet"
        table("muster").repartition(READ_PARTITIONS).write.option("compression", "none").parquet(files)

        def read(source: str) -> float:
            return seconds_to_read(lambda: table(source))

        ours, ready = partial(read, "muster"), partial(read, "ready_batches")
        works = (ours, lambda: seconds_to_read(lambda: spark.read.parquet(files)), ready)
        take_turns(WARM_UP, *works)
        ours_s, parquet_s, ready_s = take_turns(READ_TURNS, *works)
        beside_tuples_s, tuples_s = take_turns(TURNS_OF_TUPLES, ours, partial(read, "muster_tuples"))
    case, nowhere = f"{name}, 1 M of 100 bytes", "batches that lie ready in the task"
    yield faster_row(case, ours_s, "uncompressed Parquet", parquet_s, GOAL_PARQUET)
    yield faster_row(case, ours_s, nowhere, ready_s, GOAL_READY)
    yield faster_row(f"{name}, {nowhere}", ready_s, "uncompressed Parquet", parquet_s, GOAL_PARQUET)
    yield faster_row(case, beside_tuples_s, "the same reader yielding tuples", tuples_s, GOAL_TUPLES)


# A skewed backlog
# ----------------

SKEWED_RECORDS = 300_000
SKEWED_PARTITIONS = 16
EXPONENT = 1.5
SLOTS = 4
COST_S = 40e-6
"""What a record costs, as a call to another service would: time in which the processor is free."""

SEEDS = (1, 2, 3)
GOAL_RANGE = 1.7
GOAL_ONE_TO_ONE = 1.4


class CostlySource(MusterDataSource):
    """Rows that cost time as they are read."""

    @classmethod
    def name(cls) -> str:
        return "muster_costly"

    def reader(self, schema: StructType) -> DataSourceReader:
        return CostlyReader(super().reader(schema))


class CostlyReader(WrappedReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        batches: Iterator[Any] = self._inner.read(partition)
        for batch in batches:
            time.sleep(batch.num_rows * COST_S)
            yield batch


def zipf(records: int, partitions: int, exponent: float) -> list[int]:
    """Records of each partition, the heaviest first.

    >>> zipf(110, 3, 1.0)
    [60, 30, 20]
    """
    weights = [1 / rank**exponent for rank in range(1, partitions + 1)]
    return [round(records * weight / sum(weights)) for weight in weights]


def shuffle_counts(seed: int) -> list[int]:
    """The counts in an order of the seed's."""
    counts = zipf(SKEWED_RECORDS, SKEWED_PARTITIONS, EXPONENT)
    random.Random(seed).shuffle(counts)
    return counts


def measure_skew(name: str, home: str) -> Iterator[BenchRow]:
    with run_spark_node(home) as address, open_session(SLOTS) as spark:
        for seed in SEEDS:
            fill_topic(address, f"skewed-{seed}", shuffle_counts(seed))
        spark.dataSource.register(CostlySource)

        def read(assignor: str, seeds: Iterator[int]) -> float:
            options = {"bootstrap.servers": address, "subscribe": f"skewed-{next(seeds)}", "assignor": assignor}
            if assignor != "one-to-one":
                options["tasks"] = str(SLOTS)
            return seconds_to_read(spark.read.format("muster_costly").options(**options).load)

        read("split", iter(SEEDS))
        ways = {assignor: iter(SEEDS) for assignor in ("split", "range", "one-to-one")}
        works = [partial(read, assignor, seeds) for assignor, seeds in ways.items()]
        split, by_range, one_to_one = take_turns(len(SEEDS), *works)
    case = f"{name}: zipf 1.5 over 16 shuffled partitions, 4 slots"
    yield faster_row(case, split, "range", by_range, GOAL_RANGE)
    yield faster_row(case, split, "one-to-one", one_to_one, GOAL_ONE_TO_ONE)


# Micro-batches
# -------------

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
