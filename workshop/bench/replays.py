"""A thousand replays of histories under assignors: on two executors of a Spark cluster, against one process without it.

The cluster is there already when the clock starts, as the user's would be; what a session on it costs is counted.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from muster.spark.cluster import LocalSparkCluster, running_cluster
from muster.spark.pipelines.backtest import Backtest, are_same_rows, run_here, run_on_spark
from muster.spark.pipelines.backtest import BacktestRow as Replayed
from muster.spark.pipelines.candidates import parse_candidates
from muster.spark.pipelines.synthetic import SyntheticPlan
from muster.spark.session import session
from muster.workshop.bench.processes import BenchFailed
from muster.workshop.bench.rows import BenchRow
from muster.workshop.bench.spark_rows import BENCH, faster_row, take_turns
from muster.workshop.bench.stage import time_work

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
