"""The data source against Spark's own source for Kafka, on a real broker, in the same session: rows, cost, and starts.

Both read the same record batches, byte for byte: a million records of 100 bytes in 4 partitions. Spark's source is told
not to wait for more at a partition's end (fetch.max.wait.ms), where its cached consumers lose half a second per task;
it is no slower. How a query starts is held against a source in Python that does nothing, too: what that one takes
more than Spark's source in Java is Spark's own doing. Jars come by Maven's coordinates; without Maven, or where it has
none, the case is skipped.
"""

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyspark
from pyspark import SparkContext

from muster.workshop.bench.broker import KafkaBroker, fill_broker, running_broker
from muster.workshop.bench.maven import JarsUnavailable, find_jars
from muster.workshop.bench.processes import ServerProcess
from muster.workshop.bench.rows import BenchRow
from muster.workshop.bench.spark_ready_rows import NAME as NOTHING
from muster.workshop.bench.spark_ready_rows import ROWS, ReadyRows
from muster.workshop.bench.spark_rows import BENCH, faster_row, take_turns
from muster.workshop.bench.stage import fill_topic, open_session, record_batches, run_timed_node, time_work
from muster.workshop.bench.times import process_tree_cpu_s

RECORDS, PARTITIONS, FEW = 1_000_000, 4, ROWS
CORES = 2
VERSIONS = (pyspark.__version__, "4.2.0")
"""Spark's source is released apart from the wheel: the one of the same version where there is one, else this."""

ARTIFACT = "org.apache.spark:spark-sql-kafka-0-10_2.13:{}"
NEEDED = ("spark-sql-kafka-0-10", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
"""What of it a session has not got already."""

WARM_UP, SOURCE_TURNS, STREAM_TURNS = 4, 7, 5
GOAL_ROWS, GOAL_COST = 0.9, 1 / 0.85
GOAL_STREAM = 0.7
MORE_AT_START_S = 1.5
MORE_THAN_NOTHING_S = 0.5

Costs = Mapping[str, float]


def measure_kafka_source(name: str, home: str) -> Iterator[BenchRow]:
    try:
        peer, classes = find_spark_source()
        with running_broker(home) as broker, run_timed_node(home) as node:
            yield from compare_sources(name, home, peer, classes, node, broker)
    except JarsUnavailable as missing:
        yield BenchRow(BENCH, f"{name}: skipped, {missing}", 0.0, "", "Spark's Kafka source", 0.0, 0.0, 0.0, True)


def find_spark_source() -> tuple[str, str]:
    """What it is, and its jars as Spark wants them. Raises NotFetched."""
    try:
        version, found = VERSIONS[0], find_jars(ARTIFACT.format(VERSIONS[0]))
    except JarsUnavailable:
        version, found = VERSIONS[1], find_jars(ARTIFACT.format(VERSIONS[1]))
    needed = [str(jar) for jar in found if jar.name.startswith(NEEDED)]
    return f"Spark's Kafka source {version}", ",".join(needed)


def compare_sources(
    name: str, home: str, peer: str, classes: str, node: ServerProcess, broker: KafkaBroker
) -> Iterator[BenchRow]:
    for topic, counts in (("records", [RECORDS // PARTITIONS] * PARTITIONS), ("few", [FEW])):
        batches = list(record_batches(max(counts)))
        fill_topic(node.address, topic, counts, batches)
        fill_broker(broker, topic, len(counts), batches)
    ours = {"bootstrap.servers": node.address, "startingOffsets": "earliest"}
    theirs = {"kafka.bootstrap.servers": broker.address, "startingOffsets": "earliest", "kafka.fetch.max.wait.ms": "10"}
    with open_session(CORES, {"spark.jars": classes}) as spark:
        spark.dataSource.register(ReadyRows)
        costs: dict[str, list[float]] = {"muster": [], "kafka": []}

        def read(source: str, options: Mapping[str, str], server: ServerProcess | KafkaBroker) -> float:
            before = spent_cpu_s(server)
            frame = spark.read.format(source).options(**options, subscribe="records").load()
            took = time_work(lambda: frame.write.format("noop").mode("overwrite").save())
            costs[source].append(spent_cpu_s(server) - before)
            return took

        def stream(source: str, options: Mapping[str, str], topic: str) -> float:
            return time_work(
                lambda: drain_source(spark.readStream.format(source).options(**options, subscribe=topic), home)
            )

        def nothing() -> float:
            return time_work(lambda: drain_source(spark.readStream.format(NOTHING), home))

        works = partial(read, "muster", ours, node), partial(read, "kafka", theirs, broker)
        take_turns(WARM_UP, *works)
        costs = {source: [] for source in costs}
        read_s = take_turns(SOURCE_TURNS, *works)
        drains = [
            partial(stream, source, options, "records") for source, options in (("muster", ours), ("kafka", theirs))
        ]
        starts = [partial(stream, source, options, "few") for source, options in (("muster", ours), ("kafka", theirs))]
        take_turns(1, *drains, nothing)
        drained_s = take_turns(STREAM_TURNS, *drains)
        mine_s, theirs_s, nothing_s = take_turns(STREAM_TURNS, *starts, nothing)
    with open_session(CORES, {"spark.jars": classes}) as spark:
        stream("kafka", theirs, "few")
        first_s = [stream("muster", ours, "few")], [stream("kafka", theirs, "few")]
    case = f"{name}, 1 M of 100 bytes"
    yield faster_row(case, *cost_ratio_row(read_s, peer), GOAL_ROWS)
    yield faster_row(
        f"{case}, processor time with the server's", *cost_ratio_row(list(costs.values()), peer), GOAL_COST
    )
    yield faster_row(f"{case}, Trigger.AvailableNow", *cost_ratio_row(drained_s, peer), GOAL_STREAM)
    query, in_python = f"{name}, a query of {FEW} records, start to end", "a source in Python that does nothing"
    yield latency_row(query, mine_s, peer, theirs_s)
    yield latency_row(query, mine_s, in_python, nothing_s, MORE_THAN_NOTHING_S)
    yield latency_row(f"{query}, by {in_python}", nothing_s, peer, theirs_s)
    yield latency_row(f"{name}, the first of a session", *cost_ratio_row(first_s, peer))


def spent_cpu_s(server: ServerProcess | KafkaBroker) -> float:
    """Processor seconds of Spark, with its Python processes, and of the server."""
    gateway = SparkContext._gateway
    assert gateway is not None, "the session was made here"
    return process_tree_cpu_s(gateway.proc.pid) + server.cpu_s()


def drain_source(source: Any, home: str) -> None:
    """A query from its start to its end, over all there is."""
    writer = source.load().writeStream.format("noop").option("checkpointLocation", tempfile.mkdtemp(dir=home))
    writer.trigger(availableNow=True).start().awaitTermination()


def cost_ratio_row(both_s: Sequence[Sequence[float]], peer: str) -> tuple[Sequence[float], str, Sequence[float]]:
    mine, his = both_s
    return mine, peer, his


def latency_row(
    case: str, ours_s: Sequence[float], peer: str, theirs_s: Sequence[float], most_s: float = MORE_AT_START_S
) -> BenchRow:
    """Seconds; the goal is to take at most `most_s` more than the peer: the ratio is that over what it is.

    >>> latency_row("x", [2.0, 2.2, 9.0], "y", [1.0, 1.2, 1.5])[2:]
    (2.2, 's', 'y', 1.2, 1.5, 1.0, True)
    """
    more = statistics.median(mine - his for mine, his in zip(ours_s, theirs_s, strict=True))
    mine, his = statistics.median(ours_s), statistics.median(theirs_s)
    ratio = most_s / max(more, 0.01)
    return BenchRow(BENCH, case, round(mine, 3), "s", peer, round(his, 3), round(ratio, 3), 1.0, more <= most_s)
