"""From which size on a backtest is faster on Spark: the same replays on both runners, in turns, in one run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from coordinator.spark.pipelines.backtest import Backtest, run_here, run_on_spark, same
from coordinator.spark.pipelines.candidates import candidates
from coordinator.spark.pipelines.synthetic import SCENARIOS, Plan

WORDS = "range,roundrobin,sticky,cooperative-sticky,lag,lag-sticky,lag-sticky[move.budget=2],uniform,lag-sticky[seed=1]"
LOADS = ("zipf", "bursty")
SMALL, LARGE = 100, 1_000


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds for `replays` replays, without Spark and on a session that is up. `alike`: equal to the last digit.

    `pays_from` is the number of replays from which the session that is up is faster, by a straight line through both
    sizes; None: it never is. With `start_s`, the seconds that a session takes to start, `pays_from_cold` is the same
    for a session that must be started first.
    """

    replays: int
    here_s: float
    spark_s: float
    alike: bool
    pays_from: int | None
    pays_from_cold: int | None

    @property
    def ratio(self) -> float:
        """How many times faster Spark was."""
        return self.here_s / self.spark_s


def measure(spark: Any, clock: Callable[[], float], *, start_s: float = 0.0, turns: int = 3) -> Figures:
    """Both sizes on both runners; medians of the turns. `clock` gives seconds, as `time.perf_counter` does.

    A first turn on Spark, which starts its workers, is thrown away.
    """
    small, large = sized(SMALL), sized(LARGE)
    run_on_spark(small, spark)
    took: dict[tuple[str, int], list[float]] = {}
    alike = True
    for _ in range(turns):
        for test in (small, large):
            start = clock()
            mine = list(run_here(test))
            between = clock()
            theirs = run_on_spark(test, spark)
            took.setdefault(("here", len(test.jobs)), []).append(between - start)
            took.setdefault(("spark", len(test.jobs)), []).append(clock() - between)
            alike = alike and same(mine, theirs)
    here, there = ([median(took[name, len(test.jobs)]) for test in (small, large)] for name in ("here", "spark"))
    sizes = (len(small.jobs), len(large.jobs))
    return Figures(
        replays=sizes[1],
        here_s=here[1],
        spark_s=there[1],
        alike=alike,
        pays_from=crossing(sizes, here, there),
        pays_from_cold=crossing(sizes, here, [seconds + start_s for seconds in there]),
    )


def sized(replays: int) -> Backtest:
    """About so many replays: every scenario, uneven loads, a handful of candidates, as many seeds as it takes."""
    plans = tuple(Plan(scenario=scenario, load=load) for scenario in SCENARIOS for load in LOADS)
    tried = tuple(candidates(WORDS))
    return Backtest(plans, tried, tuple(range(max(1, round(replays / len(plans) / len(tried))))))


def crossing(sizes: Sequence[int], flat: Sequence[float], steep: Sequence[float]) -> int | None:
    """Where two straight lines, each through two points, meet; None when the second never gets below the first.

    >>> crossing((100, 1000), (1.0, 10.0), (2.0, 6.5))
    300
    """
    width = sizes[1] - sizes[0]
    saved = (flat[1] - flat[0]) / width - (steep[1] - steep[0]) / width
    if saved <= 0:
        return None
    start = (steep[0] - flat[0]) + saved * sizes[0]
    return max(0, -(-round(start / saved * 1e6) // 1_000_000))
