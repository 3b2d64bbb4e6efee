"""A thousand replays of histories under assignors: on two executors of a Spark cluster, against one process without it.

The cluster is there already when the clock starts, as the user's would be; what a session on it costs is counted.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from muster.coordinator.bench.processes import BenchFailed
from muster.coordinator.bench.rows import Row
from muster.coordinator.bench.spark.rows import BENCH, faster, in_turns
from muster.coordinator.bench.spark.stage import timed
from muster.coordinator.spark.cluster import Cluster, running_cluster
from muster.coordinator.spark.pipelines.backtest import Backtest, run_here, run_on_spark, same
from muster.coordinator.spark.pipelines.backtest import Row as Replayed
from muster.coordinator.spark.pipelines.candidates import candidates
from muster.coordinator.spark.pipelines.synthetic import Plan
from muster.coordinator.spark.session import session

EXECUTORS = 2
SEEDS = 100
FEW_SEEDS = 2
TURNS = 2
PLANS = (Plan(scenario="autoscale", load="bursty"), Plan(scenario="rolling", load="zipf"))
ASSIGNORS = "range,roundrobin,sticky,cooperative-sticky,lag"
GOAL = 1.0
"""Not to lose against one process, once the session is there."""

GOAL_PAYS = 0.1
"""Spark pays from ten thousand replays on at the latest, its start included."""


def measure(name: str, home: str) -> Iterator[Row]:
    test = Backtest(PLANS, tuple(candidates(ASSIGNORS)), tuple(range(SEEDS)))
    few = replace(test, seeds=test.seeds[:FEW_SEEDS])
    results: list[Sequence[Replayed]] = []
    with running_cluster(Path(home) / "cluster", EXECUTORS) as cluster:
        began = time.perf_counter()
        with session_on(cluster) as spark:
            run_on_spark(few, spark)
            started_s = time.perf_counter() - began
            if (running := len(cluster.executors())) != EXECUTORS:
                raise BenchFailed(f"{running} executors run; expected {EXECUTORS}, one on each worker")
            few_s = timed(lambda: run_on_spark(few, spark))
            ours, alone = in_turns(
                TURNS,
                lambda: timed(lambda: results.append(run_on_spark(test, spark))),
                lambda: timed(lambda: results.append(list(run_here(test)))),
            )
    if not all(same(rows, results[0]) for rows in results):
        raise BenchFailed(
            "the two runners disagree; tests/integration/spark/test_pipeline_spark.py shows how they compare"
        )
    case = f"{name}: {len(test.jobs):,} replays, {EXECUTORS} executors of a cluster"
    yield faster(case, ours, "one process without Spark", alone, GOAL)
    yield paying(name, len(test.jobs), len(few.jobs), started_s, few_s, min(ours), min(alone))


@contextmanager
def session_on(cluster: Cluster) -> Iterator[Any]:
    """Work begins when all executors are there: half a cluster would be measured otherwise."""
    config = cluster.config | {"spark.scheduler.minRegisteredResourcesRatio": "1.0"}
    started = session("muster bench", master=cluster.address, light=True, config=config)
    started.sparkContext.setLogLevel("ERROR")
    try:
        yield started
    finally:
        started.stop()


def paying(name: str, count: int, few: int, started_s: float, few_s: float, spark_s: float, alone_s: float) -> Row:
    """From how many replays on Spark is sooner done, a session's start and first tasks included.

    >>> paying("x", 1000, 20, started_s=8.1, few_s=0.2, spark_s=5.1, alone_s=10.0)[1:6]
    ('x: Spark pays from, start included (8.0 s)', 1600.0, 'replays', 'replays measured', 1000)

    Infinity where a replay takes as long on Spark: then it never pays.

    >>> paying("x", 1000, 20, started_s=8.1, few_s=0.2, spark_s=11.0, alone_s=10.0)[2:7]
    (inf, 'replays', 'replays measured', 1000, 0.0)
    """
    each_s = (spark_s - few_s) / (count - few)
    fixed_s = started_s - each_s * few
    saved_s = alone_s / count - each_s
    pays = fixed_s / saved_s if saved_s > 0 else float("inf")
    ratio = count / pays
    case = f"{name}: Spark pays from, start included ({fixed_s:.1f} s)"
    return Row(
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
