"""`muster bench` and `muster lab`: measure Muster on this machine, and compare the generations of the protocol.

Every figure of a benchmark is a ratio against a peer or a limit that was measured in the same run. Kafka's own
assignors are one of the peers: one JVM, fed line by line, that times itself (Java 17 or later).
"""

import importlib.resources
import importlib.util
import json
import math
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.commands import STOP_SIGNALS, CommandError, Exit, interrupt_on_signals, print_error
from muster.cli.common.options import output_option, repeated_option
from muster.cli.common.output import Column, columns, print_rows

if TYPE_CHECKING:
    from muster.workshop.lab.comparison import ComparisonResult, JoinCosts
    from muster.workshop.lab.generations import ProtocolGeneration


# The extra `workshop`
# --------------------

WORKSHOP_MODULES = ("aiokafka", "confluent_kafka", "kafka", "matplotlib", "psutil", "pyspark")
"""What `muster bench` measures against, and what `muster lab` draws with."""


def require_workshop() -> None:
    """Raises CommandError where a module of the extra is not installed."""
    missing = [name for name in WORKSHOP_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        what = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        raise CommandError(what, "", "pip install 'muster-groups[workshop]'")


# Kafka's assignors as a peer
# ---------------------------

TimeAssignor = Callable[[str, tuple[int, int, int], str], float]
"""(assignor, (members, topics, partitions of each), event) -> seconds"""

HEAP = "-Xmx8g"


@contextmanager
def jvm_assignors(classpath: str) -> Iterator[TimeAssignor]:
    """Start a JVM with `classpath` (kafka-clients and slf4j-api jars); needs Java 17 or later on PATH."""
    java = shutil.which("java")
    if java is None:
        raise CommandError(
            "there is no java on PATH", "--jar needs Java 17 or later", "install one, or leave --jar out"
        )
    source = importlib.resources.files("muster.assignors.tools") / "AssignorBench.java"
    with importlib.resources.as_file(source) as path:
        command = [java, HEAP, "-cp", classpath, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def ask(word: str, shape: tuple[int, int, int], event: str) -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{word} {' '.join(map(str, shape))} {event.replace(' ', '_')}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise CommandError(
                f"the JVM ended with {process.wait()}",
                "expected --jar to hold kafka-clients and slf4j-api, separated as in a class path",
                code=Exit.USAGE,
            )
        return int(answer) / 1e9

    try:
        yield ask
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)


# `muster bench`
# --------------

Rows = Iterator[dict[str, Any]]

BENCH_COLUMNS = columns("CASE:cyan, VALUE, UNIT, PEER, PEER-VALUE, RATIO, GOAL, OK")

RUN = Column("RUN", "run")


def log_rows(only: str) -> Rows:
    from muster.workshop.bench import log

    return (case._asdict() for case in log.run(only or None))


def assignor_rows(only: str, java: TimeAssignor | None = None) -> Rows:
    from muster.workshop.bench import assignors as bench

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
    from muster.workshop.bench import spark_suite

    return report_failures(spark_suite.run(only))


def wire_rows(only: str, place: str = "") -> Rows:
    from muster.workshop.bench import wire_suite

    return report_failures(wire_suite.run(only, place))


def cluster_rows(only: str, place: str = "") -> Rows:
    from muster.workshop.bench import cluster_suite

    return report_failures(cluster_suite.run(only, place))


def engine_rows(only: str, place: str = "") -> Rows:
    from muster.workshop.bench import kafka_backend_suite
    from muster.workshop.bench.kafka_peer import JarsUnavailable

    try:
        yield from report_failures(kafka_backend_suite.run(only, place))
    except JarsUnavailable as failure:
        raise CommandError(
            f"there is no Kafka to measure over: {failure}", "name a folder of it by --kafka"
        ) from failure


def transaction_rows(only: str, place: str = "") -> Rows:
    from muster.workshop.bench import transaction_suite

    return report_failures(transaction_suite.run(only, place))


def watch_rows(only: str, place: str = "") -> Rows:
    from muster.workshop.bench import watch_suite

    return report_failures(watch_suite.run(only, place))


def zookeeper_rows(only: str, members: Sequence[int] = ()) -> Rows:
    from muster.workshop.bench import zookeeper_suite

    return report_failures(zookeeper_suite.run(only, members))


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
    "transactions": transaction_rows,
    "watch": watch_rows,
    "wire": wire_rows,
    "zookeeper": zookeeper_rows,
}


BESIDE_KAFKA: dict[str, Callable[[str, str], Rows]] = {
    "cluster": cluster_rows,
    "engine": engine_rows,
    "transactions": transaction_rows,
    "watch": watch_rows,
    "wire": wire_rows,
}


@click.command()
@click.argument("suite", type=click.Choice(sorted(SUITES)))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per case as it is measured.")
@click.option("--only", default="", metavar="CASE", help="Run only cases whose name contains this text.")
@click.option("--runs", type=click.IntRange(1, 20), default=1, show_default=True, help="Run each case this many times.")
@click.option("--quick", is_flag=True, help="For growth: run in miniature; the figures say nothing about speed.")
@click.option("--jar", metavar="CLASSPATH", help="For assignors: kafka-clients and slf4j-api jars, as one more peer.")
@click.option(
    "--kafka",
    metavar="PLACE",
    help="For wire, cluster, engine, transactions, watch: directory of Kafka 4 or its jars; for wire also HOST:PORT.",
)
@repeated_option("--members", type=click.IntRange(2, 20_000), metavar="N", help="For zookeeper: size of a group")
def bench(
    suite: str,
    as_json: bool,
    only: str,
    runs: int,
    quick: bool,
    jar: str | None,
    kafka: str | None,
    members: Sequence[int],
) -> int:
    """Run a benchmark SUITE on this machine.

    Exit code 4 when a goal is missed. With --runs, a case is reported once per run, by its number.
    """
    if jar and suite != "assignors":
        raise click.UsageError("--jar works only with the suite assignors")
    if quick and suite != "growth":
        raise click.UsageError("--quick works only with the suite growth")
    if members and suite != "zookeeper":
        raise click.UsageError("--members works only with the suite zookeeper")
    if kafka and suite not in BESIDE_KAFKA:
        raise click.UsageError("--kafka works only with the suites wire, cluster, engine, transactions and watch")
    require_workshop()
    rows: list[dict[str, Any]] = []
    try:
        with report_termination(), jvm_assignors(jar) if jar else nullcontext() as java:
            for row in repeat_runs(runs, lambda: measure_suite(suite, only, java, kafka, quick, members)):
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


def measure_suite(
    suite: str, only: str, java: TimeAssignor | None, kafka: str | None, quick: bool, members: Sequence[int]
) -> Rows:
    if suite == "zookeeper":
        return zookeeper_rows(only, members)
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


# `muster lab`
# ------------

COMPARISON_COLUMNS = columns(
    "GENERATION:cyan, CHAPTER, REBALANCES, STOPS, UNOWNED-PARTITION-S, LONGEST-STOP-S, MOVED, DUPLICATES, MESSAGES"
)
JOIN_COLUMNS = columns("GENERATION:cyan, MEMBERS, UNTIL-OWNED-S, STOPS, UNOWNED-PARTITION-S, WOKEN, MESSAGES")
SCALING_COLUMNS = columns(
    "LOAD:cyan, RULES, CHANGES, REVERSALS, IN-30MIN=reversals_30min, PEAK-LAG, BEHIND-S, REPLICA-HOURS"
)
OLD_CLIENT_COLUMNS = columns("CLIENT:cyan, EVENT, CONSUMERS, SECONDS, WATCHES-FIRED, REQUESTS")
JOINING = ("zookeeper", "eager", "pushed", "kip848-pushed")
"""The ones that say most about how a group hears of a newcomer."""
WHOLE = "all"
NOT_COUNTED = {"messages": None, "duplicates": None}


@click.group()
def lab() -> None:
    """Compare protocol generations and scalers on one workload."""


@lab.command()
@click.option("--members", type=click.IntRange(2, 100), default=6, show_default=True, help="Workers at the start.")
@click.option("--partitions", type=click.IntRange(1, 1_000), default=48, show_default=True)
@click.option("--joining", type=click.IntRange(1, 100), default=3, show_default=True, help="Workers that join later.")
@click.option("--work-ms", type=click.IntRange(1, 100), default=5, show_default=True, help="Time per record.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same figures.")
@repeated_option("--only", metavar="GENERATION", help="Run only this one")
@click.option("--chapters", is_flag=True, help="Show rolling restart, crash and scale-out separately.")
@click.option("--real", is_flag=True, help="Run a node, and a process per worker: three minutes per generation.")
@click.option(
    "--real-old-clients", "old_clients", is_flag=True, help="Run ZooKeeper consumers of Kafka 0.8.2 and 1.1, and ours."
)
@click.option("--chart", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.svg", help="Also draw a chart.")
@output_option
def compare(
    members: int,
    partitions: int,
    joining: int,
    work_ms: int,
    seed: int,
    only: Sequence[str],
    chapters: bool,
    real: bool,
    old_clients: bool,
    chart: Path | None,
    style: str,
) -> int:
    """Run one course of events under every generation.

    The course is a rolling restart, a crash and a scale-out, in virtual time. With --real it is shorter, and messages
    and duplicates are not counted. With --real-old-clients, real consumers of the ZooKeeper era, old ones and ours,
    join together, one more joins and one leaves; it needs Java and Maven.
    """
    if old_clients:
        if real or only or chapters or chart is not None:
            raise click.UsageError("--real-old-clients goes with --members, --partitions and --output alone")
        print_rows(old_client_rows(members, partitions), OLD_CLIENT_COLUMNS, style)
        return Exit.OK
    if real and chart is not None:
        raise click.UsageError("--chart draws what virtual time counts; leave out --real or --chart")
    require_workshop()
    from muster.workshop.bench.processes import BenchFailed
    from muster.workshop.lab.comparison import Workload, compare_generations
    from muster.workshop.lab.real_comparison import compare_in_real_time
    from muster.workshop.lab.simulated_worker import SteadyLoad

    workload = Workload(members, partitions, joining, seed, SteadyLoad(work_ms=work_ms))
    try:
        results = list(
            (compare_in_real_time if real else compare_generations)(workload, choose_generations(only, real=real))
        )
    except BenchFailed as failure:
        raise CommandError(str(failure)) from failure
    found = [row for result in results for row in comparison_rows(result, chapters)]
    print_rows([row | NOT_COUNTED if real else row for row in found], COMPARISON_COLUMNS, style)
    if chart is not None:
        draw_chart(results, chart)
    return Exit.OK


def old_client_rows(consumers: int, partitions: int) -> list[dict[str, Any]]:
    require_workshop()
    from muster.coordinator.java_runtime import JavaNotFound
    from muster.coordinator.zookeeper.errors import ZooKeeperError
    from muster.workshop.bench.kafka_peer import JarsUnavailable
    from muster.workshop.bench.processes import BenchFailed
    from muster.workshop.lab.old_clients import compare_old_clients

    if partitions <= consumers:
        raise click.UsageError("give more --partitions than --members: every consumer is to own some, and one joins")
    try:
        return [costs._asdict() for costs in compare_old_clients(consumers, partitions)]
    except (JarsUnavailable, JavaNotFound) as missing:
        raise CommandError(
            f"consumers of the ZooKeeper era cannot be run: {missing}",
            "they come from Maven, and run on Java 17 or later",
            "install both, or leave out --real-old-clients",
        ) from missing
    except (BenchFailed, ZooKeeperError) as failure:
        raise CommandError(str(failure)) from failure


@lab.command()
@click.option(
    "--members", type=click.IntRange(1, 100), multiple=True, default=(10, 50, 100), show_default=True, metavar="N"
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same figures.")
@repeated_option("--only", metavar="GENERATION", help="Run only this one")
@output_option
def join(members: Sequence[int], seed: int, only: Sequence[str], style: str) -> None:
    """Add a member to groups of N members, in virtual time.

    The groups have 200 partitions.
    """
    require_workshop()
    from muster.workshop.lab.comparison import measure_joins

    print_rows(
        [join_row(costs) for costs in measure_joins(members, choose_generations(only or JOINING), seed)],
        JOIN_COLUMNS,
        style,
    )


def join_row(costs: "JoinCosts") -> dict[str, Any]:
    return {key: round(value, 1) if isinstance(value, float) else value for key, value in asdict(costs).items()}


@lab.command()
@repeated_option(
    "--lag-threshold",
    "thresholds",
    type=click.IntRange(1, 1_000_000),
    default=(1_000, 5_000, 30_000),
    show_default=True,
    metavar="N",
    help="lagThreshold of KEDA's Kafka rules",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same noise.")
@output_option
def scaler(thresholds: Sequence[int], seed: int, style: str) -> None:
    """Scale a deployment by KEDA's rules and by measured rates.

    Runs four loads in virtual time. Consumers read 100 records a second and take 20 s to start. IN-30MIN: the most
    reversals in any half hour; BEHIND-S: how long more waited than is written in two minutes.
    """
    require_workshop()
    from muster.workshop.lab.autoscaling import MUSTER, keda_trigger, make_loads, run_deployment

    rules = {f"kafka, lagThreshold {each}": keda_trigger(each) for each in thresholds}
    rules[f"drainTargetSeconds {MUSTER.drain_target_s}"] = MUSTER
    found = []
    for trace in make_loads(seed):
        for name, trigger in rules.items():
            told = asdict(run_deployment(trace, trigger)) | {"load": trace.name, "rules": name}
            found.append(told | {"replicas": None, "replica_hours": round(told["replica_hours"], 1)})
    print_rows(found, SCALING_COLUMNS, style)


def choose_generations(names: Sequence[str], *, real: bool = False) -> "list[ProtocolGeneration]":
    from muster.workshop.lab.generations import BY_NAME

    for name in names:
        if name not in BY_NAME:
            raise CommandError(f"{name!r} is not a generation", f"known here: {', '.join(BY_NAME)}", code=Exit.USAGE)
    if real and (virtual := [name for name in names if not BY_NAME[name].real]):
        raise CommandError(
            f"{virtual[0]!r} runs in virtual time alone", "it needs an ensemble", "leave out --real", code=Exit.USAGE
        )
    wanted = [generation for name, generation in BY_NAME.items() if not names or name in names]
    return [generation for generation in wanted if generation.real or not real]


def comparison_rows(result: "ComparisonResult", chapters: bool) -> list[dict[str, Any]]:
    parts = [(chapter.name, chapter.costs) for chapter in result.chapters] if chapters else [(WHOLE, result.total)]
    return [
        {"generation": result.generation.name, "chapter": name}
        | {key: round(value, 1) if isinstance(value, float) else value for key, value in asdict(costs).items()}
        for name, costs in parts
    ]


def draw_chart(results: "list[ComparisonResult]", path: Path) -> None:
    from muster.workshop.lab.comparison import draw_comparison

    try:
        draw_comparison(results, path)
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot draw {path}: {error}", "a path that ends in .svg, .png or .pdf") from error
