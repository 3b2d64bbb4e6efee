"""The suite of `muster bench spark`, with its cases against Spark's Kafka source and of replays on a cluster.

Both sources read the same record batches from a real broker in the same session: a million records of 100 bytes in 4
partitions. Spark's source is set not to wait for more at a partition's end (fetch.max.wait.ms), where its cached
consumers lose half a second per task; it is no slower. The start of a query is also held against a source in Python
that does nothing: what that one takes more than Spark's source in Java is Spark's own cost. Without Maven, or where
it lacks the jars, the case is skipped.

Replays of a thousand histories under assignors run on two executors of a Spark cluster, against one process without
it; the cluster exists when the clock starts, as the user's would, and what a session on it costs is counted.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext

from muster.spark.pipelines.backtest import (
    Backtest,
    are_same_rows,
    parse_candidates,
    run_here,
    run_on_spark,
)
from muster.spark.pipelines.backtest import (
    BacktestRow as Replayed,
)
from muster.spark.pipelines.traces import SyntheticPlan
from muster.spark.session import LocalSparkCluster, running_cluster, session
from muster.workshop.bench import spark_sources
from muster.workshop.bench.kafka_peer import JarsUnavailable, KafkaBroker, fill_broker, find_jars, running_broker
from muster.workshop.bench.processes import BenchFailed, ServerProcess, process_tree_cpu_s
from muster.workshop.bench.report import BenchRow, MeasureCase, measure_cases
from muster.workshop.bench.spark_ready_rows import NAME as NOTHING
from muster.workshop.bench.spark_ready_rows import ROWS, ReadyRows
from muster.workshop.bench.spark_sources import (
    BENCH,
    faster_row,
    fill_topic,
    open_session,
    record_batches,
    run_timed_node,
    take_turns,
    time_work,
)

# Against Spark's source for Kafka
# --------------------------------

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
    """What it is, and its jars as Spark wants them. Raises JarsUnavailable."""
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


# Replays on a cluster
# --------------------

EXECUTORS = 2
SEEDS = 100
FEW_SEEDS = 2
REPLAY_TURNS = 2
PLANS = (SyntheticPlan(scenario="autoscale", load="bursty"), SyntheticPlan(scenario="rolling", load="zipf"))
ASSIGNORS = "range,roundrobin,sticky,cooperative-sticky,lag"
GOAL = 1.0
"""Not to lose against one process, once the session is there."""

GOAL_PAYS = 0.1
"""Spark pays from ten thousand replays on at the latest, its start included."""


def measure_replays(name: str, home: str) -> Iterator[BenchRow]:
    test = Backtest(PLANS, tuple(parse_candidates(ASSIGNORS)), tuple(range(SEEDS)))
    few = replace(test, seeds=test.seeds[:FEW_SEEDS])
    results: list[Sequence[Replayed]] = []
    with running_cluster(Path(home) / "cluster", EXECUTORS) as cluster:
        began = time.perf_counter()
        with open_cluster_session(cluster) as spark:
            run_on_spark(few, spark)
            started_s = time.perf_counter() - began
            if (running := len(cluster.executors())) != EXECUTORS:
                raise BenchFailed(f"{running} executors run; expected {EXECUTORS}, one on each worker")
            few_s = time_work(lambda: run_on_spark(few, spark))
            ours, alone = take_turns(
                REPLAY_TURNS,
                lambda: time_work(lambda: results.append(run_on_spark(test, spark))),
                lambda: time_work(lambda: results.append(list(run_here(test)))),
            )
    if not all(are_same_rows(rows, results[0]) for rows in results):
        raise BenchFailed(
            "the two runners disagree; tests/integration/spark/test_pipeline_spark.py shows how they compare"
        )
    case = f"{name}: {len(test.jobs):,} replays, {EXECUTORS} executors of a cluster"
    yield faster_row(case, ours, "one process without Spark", alone, GOAL)
    yield break_even_row(name, len(test.jobs), len(few.jobs), started_s, few_s, min(ours), min(alone))


@contextmanager
def open_cluster_session(cluster: LocalSparkCluster) -> Iterator[Any]:
    """Work begins when all executors are there: half a cluster would be measured otherwise."""
    config = cluster.config | {"spark.scheduler.minRegisteredResourcesRatio": "1.0"}
    started = session("muster bench", master=cluster.address, light=True, config=config)
    started.sparkContext.setLogLevel("ERROR")
    try:
        yield started
    finally:
        started.stop()


def break_even_row(
    name: str, count: int, few: int, started_s: float, few_s: float, spark_s: float, alone_s: float
) -> BenchRow:
    """From how many replays on Spark is sooner done, a session's start and first tasks included.

    >>> break_even_row("x", 1000, 20, started_s=8.1, few_s=0.2, spark_s=5.1, alone_s=10.0)[1:6]
    ('x: Spark pays from, start included (8.0 s)', 1600.0, 'replays', 'replays measured', 1000)

    Infinity where a replay takes as long on Spark: then it never pays.

    >>> break_even_row("x", 1000, 20, started_s=8.1, few_s=0.2, spark_s=11.0, alone_s=10.0)[2:7]
    (inf, 'replays', 'replays measured', 1000, 0.0)
    """
    each_s = (spark_s - few_s) / (count - few)
    fixed_s = started_s - each_s * few
    saved_s = alone_s / count - each_s
    pays = fixed_s / saved_s if saved_s > 0 else float("inf")
    ratio = count / pays
    case = f"{name}: Spark pays from, start included ({fixed_s:.1f} s)"
    return BenchRow(
        BENCH,
        case,
        round(pays, 0),
        "replays",
        "replays measured",
        count,
        round(ratio, 3),
        GOAL_PAYS,
        ratio >= GOAL_PAYS,
    )


# The suite
# ---------

CASES: dict[str, MeasureCase] = {
    "read": spark_sources.measure_table_reads,
    "kafka-source": measure_kafka_source,
    "64 partitions": spark_sources.measure_many,
    "micro-batch": spark_sources.measure_few,
    "skewed backlog": spark_sources.measure_skew,
    "backtest": measure_replays,
}


def run(only: str = "") -> Iterator[BenchRow]:
    """Measure the cases whose name contains `only`."""
    return measure_cases(CASES, only)
