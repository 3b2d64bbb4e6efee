"""`muster pipeline backtest`: replays many histories under many assignors, and ranks the assignors.

`--suite balance` replays made-up traces of load instead, and checks that continuous balance stays calm.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.commands import CommandError, Exit
from muster.cli.common.options import (
    NumberRange,
    find_plugins_here,
    key_values,
    output_option,
    repeated_option,
    seconds_option,
)
from muster.cli.common.output import Column, columns, notice, print_rows
from muster.cli.pipeline import check_master, make_folder, spark_conf_option, spark_session, write_parquet, write_text
from muster.coordinator.observability.views.formatting import plural

if TYPE_CHECKING:
    from muster.spark.pipelines.backtest import Backtest, BacktestRow, CandidateStanding


# Histories under assignors
# -------------------------

EXISTING_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

RANKING = columns(
    "CANDIDATE:cyan, RANK, LAG-RATIO, WAITING=mean_lag, COUNT-RATIO, MOVES, AVOIDABLE=avoidable_moves, UNOWNED-S, "
    "FAILED, ROUNDS+, LAG-SPREAD+, COUNT-SPREAD+, MOVED-LAG+, WORST-LAG+, EAGER-S=unowned_eager_s+, "
    "COOPERATIVE-S=unowned_cooperative_s+, UNASSIGNED-S+, REPLAYS+"
)


@click.command()
@click.option(
    "--assignor",
    "words",
    multiple=True,
    metavar="NAME[OPTION=VALUE,...]",
    help="Candidate; may be repeated. Without it, all built-in assignors.",
)
@click.option(
    "--history",
    "histories",
    multiple=True,
    metavar="SCENARIO/LOAD",
    help="Synthetic history, or all; may be repeated. Without it, all uneven ones.",
)
@repeated_option("--trace", "traces", type=EXISTING_FILE, help="Recorded history")
@click.option("--seeds", type=click.IntRange(1, 1_000_000), default=5, show_default=True, help="Number of seeds.")
@click.option("--members", type=click.IntRange(1, 10_000), default=8, show_default=True, help="Members of each group.")
@click.option("--topics", type=click.IntRange(1, 1_000), default=2, show_default=True)
@click.option(
    "--partitions", type=click.IntRange(1, 100_000), default=24, show_default=True, help="Partitions per topic."
)
@click.option(
    "--minutes",
    type=click.IntRange(1, 100_000),
    default=120,
    show_default=True,
    help="Virtual time of a history, in minutes.",
)
@click.option("--utilisation", type=NumberRange(0.01, 10), default=0.6, show_default=True, help="Load over capacity.")
@click.option("--skew", type=NumberRange(0, 10), default=0.8, show_default=True, help="Exponent of Zipf loads.")
@click.option("--session-ms", type=click.IntRange(1, 3_600_000), default=45_000, show_default=True)
@click.option(
    "--round-ms", type=click.IntRange(0, 3_600_000), default=3_000, show_default=True, help="Time per rebalance."
)
@seconds_option("--deadline", 10.0, "Time limit of one plan of a plugin.")
@click.option(
    "--weight",
    "weights",
    multiple=True,
    metavar="CRITERION=W",
    callback=key_values,
    help="Weight of a figure in the ranking; figures without one do not count.",
)
@click.option(
    "--suite",
    type=click.Choice(["balance"]),
    help="Run the suite of continuous balance on synthetic load, with its goals, instead (--seeds applies).",
)
@click.option("--rows", "each", is_flag=True, help="Print every replay instead of the ranking.")
@click.option(
    "--spark", "master", callback=check_master, metavar="MASTER", help="Replay on this Spark master, such as local[4]."
)
@spark_conf_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write Parquet files and the report to this directory.",
)
@output_option
def backtest(
    weights: dict[str, str],
    each: bool,
    master: str | None,
    settings: dict[str, str],
    out: Path | None,
    style: str,
    suite: str | None,
    **asked: Any,
) -> int:
    """Run assignors on recorded histories, and rank them.

    Histories are recorded (--trace) or generated from seeds: SCENARIO is steady, rolling, crashes, autoscale, churn,
    subscriptions or growth, LOAD is even, zipf or bursty. Candidates are ranked by lag, backlog, count, moves and
    unowned time, weighted evenly unless --weight says otherwise. The figures are the same with Spark and without.
    With --out, DIR gets replays.parquet, ranking.parquet and report.html. Exit code 1 when an assignor failed.

    --suite balance replays load instead, sample by sample, and checks the goals of balance
    (docs/assignors/balance.md); exit code 1 when a goal is missed. It needs no Spark.
    """
    if suite is not None:
        return balance_suite(asked["seeds"], each, style)
    from muster.spark.pipelines.backtest import rank_candidates

    find_plugins_here()
    folder = make_folder(out)
    weighed = parse_weights(weights)
    if settings and master is None:
        raise click.UsageError("--spark-conf works only with --spark")
    test = make_backtest(asked)
    rows = run_backtest(test, master, settings)
    standings = rank_candidates(rows, weighed)
    if each:
        print_rows([round_row(row.flat()) for row in rows], [Column(name, name) for name in rows[0].flat()], style)
    else:
        print_rows(ranking_rows(standings), RANKING, style)
    if folder is not None:
        save_results(folder, test, rows, standings, weighed)
    return print_best(rows)


def make_backtest(asked: dict[str, Any]) -> "Backtest":
    from muster.assignors.registry import BUILT_IN
    from muster.spark.pipelines.backtest import Backtest, HandoverModel, parse_candidates
    from muster.spark.pipelines.traces import read_trace

    try:
        traces = [read_trace(path) for path in asked["traces"]]
        return Backtest(
            histories=(*synthetic_plans(asked, bool(traces)), *traces),
            candidates=tuple(parse_candidates(asked["words"] or ",".join(BUILT_IN))),
            seeds=tuple(range(asked["seeds"])),
            model=HandoverModel(asked["round_ms"]),
            deadline_ms=round(1000 * asked["deadline"]),
        )
    except ValueError as error:
        raise CommandError(str(error), code=Exit.USAGE) from error


def synthetic_plans(asked: dict[str, Any], recorded: bool) -> "Iterable[Any]":
    """What to make up: what was named, else everything under an uneven load, else nothing beside a recorded
    history.
    """
    from muster.spark.pipelines.traces import LOADS, SCENARIOS, SyntheticPlan, check_known

    words = list(asked["histories"])
    if (not words and not recorded) or "all" in words:
        words = [f"{scenario}/{load}" for scenario in SCENARIOS for load in ("zipf", "bursty")]
    shape = {
        name: asked[name]
        for name in ("members", "topics", "partitions", "minutes", "utilisation", "skew", "session_ms")
    }
    for word in dict.fromkeys(words):
        scenario, slash, load = word.partition("/")
        if not slash:
            raise ValueError(f"{word!r} is not a history; expected SCENARIO/LOAD, such as rolling/zipf")
        check_known("scenario", scenario, SCENARIOS)
        check_known("load", load, LOADS)
        yield SyntheticPlan(scenario=scenario, load=load, **shape)


def parse_weights(given: dict[str, str]) -> dict[str, float]:
    from muster.spark.pipelines.backtest import EVEN, check_weights

    if not given:
        return dict(EVEN)
    try:
        weights = {word: parse_number(word, value) for word, value in given.items()}
        check_weights(weights)
    except ValueError as error:
        raise CommandError(f"--weight: {error}", "such as --weight lag=2 --weight moves=1", code=Exit.USAGE) from None
    return weights


def parse_number(word: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{word}={value} has no number; expected CRITERION=NUMBER") from None


def run_backtest(test: "Backtest", master: str | None, settings: dict[str, str]) -> "list[BacktestRow]":
    """On Spark, or here with a word to whoever watches how far it is."""
    from muster.spark.pipelines.backtest import run_here, run_on_spark

    if master is None:
        return list(track_progress(run_here(test), len(test.jobs)))
    with spark_session("muster backtest", master, settings) as spark:
        return run_on_spark(test, spark)


def track_progress(rows: "Iterable[BacktestRow]", count: int) -> "Iterable[BacktestRow]":
    import sys

    if not sys.stderr.isatty():
        yield from rows
        return
    from rich.progress import track

    from muster.cli.common.output import console

    yield from track(rows, description="replaying", total=count, console=console(stderr=True), transient=True)


def ranking_rows(standings: "Sequence[CandidateStanding]") -> list[dict[str, Any]]:
    return [
        round_row(
            {"candidate": one.candidate, "rank": one.rank, "replays": one.replays, "failed": one.failed}
            | dict(one.means)
        )
        for one in standings
    ]


def round_row(row: dict[str, Any]) -> dict[str, Any]:
    """For people and for programs alike; the Parquet files hold every digit."""
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()}


def save_results(
    folder: Path,
    test: "Backtest",
    rows: "Sequence[BacktestRow]",
    standings: "Sequence[CandidateStanding]",
    weights: dict[str, float],
) -> None:
    from muster.spark.pipelines.backtest import build_arrow_table
    from muster.spark.pipelines.reports import build_backtest_report

    ranking = [
        {"candidate": one.candidate, "rank": one.rank, "replays": one.replays, "failed": one.failed}
        | {f"place_{word}": place for word, place in one.places.items()}
        | dict(one.means)
        for one in standings
    ]
    write_parquet(folder / "replays.parquet", build_arrow_table(rows))
    write_parquet(folder / "ranking.parquet", ranking)
    write_text(folder / "report.html", build_backtest_report(test, rows, weights))


def print_best(rows: "Sequence[BacktestRow]") -> int:
    failed = [row for row in rows if row.score is None]
    for said in dict.fromkeys(row.error for row in failed):
        notice(said)
    if failed:
        notice(f"{plural(len(failed), 'replay')} of {len(rows)} failed.")
    return Exit.FAILURE if failed else Exit.OK


# --suite balance
# ---------------

SCORES = columns("TRACE:cyan, POLICY, EVEN, RATIO-P90=p90, MOVES, TWICE, PEAK-LAG")
GOALS = columns("GOAL, FIGURE, MET")


def balance_suite(seeds: int, each: bool, style: str) -> int:
    """Show the goals, or with `each` what every policy made of every trace. 1: a goal is missed."""
    from muster.coordinator.core.settings.shapes import BalanceRules
    from muster.workshop.lab.balance_suite import judge_goals, score_policies

    rows = score_policies(seeds, BalanceRules())
    goals = judge_goals(rows)
    if each:
        print_rows(
            [
                {
                    "trace": row.trace,
                    "policy": row.policy,
                    "even": f"{row.score.even:.1%}",
                    "p90": f"{row.score.p90:.2f}",
                    "moves": row.score.moves,
                    "twice": row.score.twice,
                    "peak_lag": row.score.peak_lag,
                }
                for row in rows
            ],
            SCORES,
            style,
        )
    else:
        print_rows(
            [{"goal": goal.goal, "figure": goal.figure, "met": "yes" if goal.met else "missed"} for goal in goals],
            GOALS,
            style,
        )
    missed = sum(not goal.met for goal in goals)
    notice(f"{plural(len(goals) - missed, 'goal')} met, {missed} missed; seeds 0 to {seeds - 1}")
    return 1 if missed else 0
