"""`muster bench`: every figure a ratio against a peer or a limit measured in the same run."""

import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import click

from muster.cli.common.errors import CommandError, Exit, print_error
from muster.cli.common.output import Column, print_rows
from muster.cli.common.signals import STOP_SIGNALS, interrupt_on_signals
from muster.cli.jvm_peer import TimeAssignor, jvm_assignors

Rows = Iterator[dict[str, Any]]

BENCH_COLUMNS = [
    Column("CASE", "case", style="cyan"),
    Column("VALUE", "value"),
    Column("UNIT", "unit"),
    Column("PEER", "peer"),
    Column("PEER-VALUE", "peer_value"),
    Column("RATIO", "ratio"),
    Column("GOAL", "goal"),
    Column("OK", "ok"),
]

RUN = Column("RUN", "run")


def log_rows(only: str) -> Rows:
    from muster.workshop.bench import bench_init

    return (case._asdict() for case in bench_init.run(only or None))


def assignor_rows(only: str, java: TimeAssignor | None = None) -> Rows:
    from muster.workshop.bench import suite as bench

    return bench.measure(time.perf_counter, only, java=java)


def report_failures(rows: Iterator[Any]) -> Rows:
    """What comes in the way of a benchmark is the error of its command."""
    from muster.coordinator.java_runtime import JavaNotFound
    from muster.workshop.bench.processes import BenchFailed

    try:
        for row in rows:
            yield row if isinstance(row, dict) else row._asdict()
    except (BenchFailed, JavaNotFound) as failure:
        raise CommandError(str(failure)) from failure


def coordinator_rows(only: str) -> Rows:
    from muster.workshop.bench import coordinator_suite

    return report_failures(coordinator_suite.run(only))


def spark_rows(only: str) -> Rows:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise CommandError("pyspark is not installed", "pip install 'muster-groups[spark]'") from None
    from muster.workshop.bench import spark_suite

    return report_failures(spark_suite.run(only))


def wire_rows(only: str, place: str = "") -> Rows:
    try:
        import confluent_kafka  # noqa: F401
        import kafka  # noqa: F401
    except ImportError as missing:
        raise CommandError(f"{missing.name}, a peer, is not installed", "pip install 'muster-groups[bench]'") from None
    from muster.workshop.bench import wire_suite

    return report_failures(wire_suite.run(only, place))


def cluster_rows(only: str, place: str = "") -> Rows:
    from muster.workshop.bench import cluster_suite

    return report_failures(cluster_suite.run(only, place))


def engine_rows(only: str, place: str = "") -> Rows:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        raise CommandError("confluent_kafka, a peer, is not installed", "pip install 'muster-groups[bench]'") from None
    from muster.workshop.bench import engine_suite
    from muster.workshop.bench.maven import JarsUnavailable

    try:
        yield from report_failures(engine_suite.run(only, place))
    except JarsUnavailable as failure:
        raise CommandError(
            f"there is no Kafka to measure over: {failure}", "name a folder of it by --kafka"
        ) from failure


def growth_rows(only: str, small: bool = False) -> Rows:
    from muster.workshop.bench import growth_suite

    return report_failures(growth_suite.run(only, small=small))


SUITES: dict[str, Callable[[str], Rows]] = {
    "assignors": assignor_rows,
    "cluster": cluster_rows,
    "coordinator": coordinator_rows,
    "engine": engine_rows,
    "growth": growth_rows,
    "log": log_rows,
    "spark": spark_rows,
    "wire": wire_rows,
}


BESIDE_KAFKA: dict[str, Callable[[str, str], Rows]] = {
    "cluster": cluster_rows,
    "engine": engine_rows,
    "wire": wire_rows,
}


@click.command()
@click.argument("suite", type=click.Choice(sorted(SUITES)))
@click.option("--json", "as_json", is_flag=True, help="One JSON object per case, as it is measured.")
@click.option("--only", default="", metavar="CASE", help="Only cases whose name contains this.")
@click.option("--runs", type=click.IntRange(1, 20), default=1, show_default=True, help="Measure all of it so often.")
@click.option("--quick", is_flag=True, help="For growth: the same in miniature, which says nothing of speed.")
@click.option("--jar", metavar="CLASSPATH", help="For assignors: kafka-clients and slf4j-api jars, as one more peer.")
@click.option(
    "--kafka",
    metavar="PLACE",
    help="For wire, cluster, engine: a folder of Kafka 4 or of its jars, as a peer; for wire also HOST:PORT.",
)
def bench(suite: str, as_json: bool, only: str, runs: int, quick: bool, jar: str | None, kafka: str | None) -> int:
    """Measure one SUITE on this machine. Exit code 4 when a goal is missed.

    With --runs a case is told once for each run, by its number.
    """
    if jar and suite != "assignors":
        raise click.UsageError("--jar goes with the suite assignors")
    if quick and suite != "growth":
        raise click.UsageError("--quick goes with the suite growth")
    if kafka and suite not in BESIDE_KAFKA:
        raise click.UsageError("--kafka goes with the suites wire, cluster and engine")
    rows: list[dict[str, Any]] = []
    try:
        with report_termination(), jvm_assignors(jar) if jar else nullcontext() as java:
            for row in repeat_runs(runs, lambda: measure_suite(suite, only, java, kafka, quick)):
                rows.append(row)
                if as_json:
                    click.echo(json.dumps({key: finite_or_null(value) for key, value in row.items()}))
    finally:
        # What was measured before something failed took its minutes, too.
        if rows and not as_json:
            columns = [RUN, *BENCH_COLUMNS] if runs > 1 else BENCH_COLUMNS
            print_rows([{key: round_value(value) for key, value in row.items()} for row in rows], columns, "table")
    if not rows:
        raise CommandError(f"no case of {suite} contains {only!r}", "leave --only out to see all", code=Exit.NOT_FOUND)
    return Exit.OK if all(row["ok"] for row in rows) else Exit.UNHEALTHY


@contextmanager
def report_termination() -> Iterator[None]:
    """SIGTERM, as Ctrl-C, ends processes and files of a benchmark with it, and is told of: minutes pass in silence."""
    before = {ending: signal.getsignal(ending) for ending in STOP_SIGNALS}
    interrupt_on_signals()
    try:
        yield
    except KeyboardInterrupt:
        print_error("interrupted before all was measured; --only CASE measures a part of it")
        raise
    finally:
        for ending, handler in before.items():
            signal.signal(ending, handler)


def measure_suite(suite: str, only: str, java: TimeAssignor | None, kafka: str | None, quick: bool) -> Rows:
    if suite == "growth":
        return growth_rows(only, quick)
    if suite == "assignors":
        return assignor_rows(only, java)
    return BESIDE_KAFKA[suite](only, kafka or "") if suite in BESIDE_KAFKA else SUITES[suite](only)


def repeat_runs(runs: int, measure: Callable[[], Rows]) -> Rows:
    """All of it again and again; each row says of which run it is, where there are several."""
    for run in range(1, runs + 1):
        for row in measure():
            yield {"run": run, **row} if runs > 1 else row


def finite_or_null(value: Any) -> Any:
    """What is never reached is null: JSON has no infinity, whatever Python writes."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def round_value(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
