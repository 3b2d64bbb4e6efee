"""A thousand replays of histories under assignors: on two task slots of Spark, against one process without it.

The slots are those of `local[2]`: one JVM and two Python workers, not two executors.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from coordinator.bench.processes import BenchFailed
from coordinator.bench.rows import Row
from coordinator.bench.spark.rows import BENCH, faster
from coordinator.bench.spark.stage import spark_on, timed
from coordinator.spark.pipelines.backtest import Backtest, run_here, run_on_spark, same
from coordinator.spark.pipelines.backtest import Row as Replayed
from coordinator.spark.pipelines.candidates import candidates
from coordinator.spark.pipelines.synthetic import Plan

SEEDS = 100
FEW_SEEDS = 2
PLANS = (Plan(scenario="autoscale", load="bursty"), Plan(scenario="rolling", load="zipf"))
ASSIGNORS = "range,roundrobin,sticky,cooperative-sticky,lag"
GOAL = 1.0
"""Not to lose against one process, once the session is there."""

GOAL_PAYS = 0.1
"""Spark pays from ten thousand replays on at the latest, its start included."""


def measure(name: str, home: str) -> Iterator[Row]:
    test = Backtest(PLANS, tuple(candidates(ASSIGNORS)), tuple(range(SEEDS)))
    few = replace(test, seeds=test.seeds[:FEW_SEEDS])
    count = len(test.jobs)
    began = time.perf_counter()
    alone = list(run_here(test))
    alone_s = time.perf_counter() - began
    started_s, few_s, spark_s = on_spark(test, few, alone)
    yield faster(
        f"{name}: {count:,} replays, two slots of one JVM", [spark_s], "one process without Spark", [alone_s], GOAL
    )
    each_s = (spark_s - few_s) / (count - len(few.jobs))
    fixed_s = started_s + few_s - each_s * len(few.jobs)
    saved_s = alone_s / count - each_s
    pays = fixed_s / saved_s if saved_s > 0 else float("inf")
    ratio = count / pays
    case = f"{name}: Spark pays from, start included ({fixed_s:.1f} s)"
    value = round(pays, 0)
    yield Row(BENCH, case, value, "replays", "replays measured", count, round(ratio, 3), GOAL_PAYS, ratio >= GOAL_PAYS)


def on_spark(test: Backtest, few: Backtest, expected: Sequence[Replayed]) -> tuple[float, float, float]:
    """Seconds until the session's first rows, for a few more replays, and for all of them."""
    started = time.perf_counter()
    with spark_on(2) as spark:
        run_on_spark(few, spark)
        started_s = time.perf_counter() - started
        few_s = timed(lambda: run_on_spark(few, spark))
        began = time.perf_counter()
        rows = run_on_spark(test, spark)
        spark_s = time.perf_counter() - began
    if not same(rows, expected):
        raise BenchFailed("the two runners disagree; see tests/integration/spark for how they are compared")
    return max(0.0, started_s - few_s), few_s, spark_s
