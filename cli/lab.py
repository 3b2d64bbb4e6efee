"""`muster lab`: the generations of the protocol side by side."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.errors import CommandError, Exit
from muster.cli.common.options import output_option
from muster.cli.common.output import Column, print_rows

if TYPE_CHECKING:
    from muster.workshop.lab.compare import ComparisonResult
    from muster.workshop.lab.generations import ProtocolGeneration
    from muster.workshop.lab.joins import JoinCosts

COMPARISON_COLUMNS = [
    Column("GENERATION", "generation", style="cyan"),
    Column("CHAPTER", "chapter"),
    Column("REBALANCES", "rebalances"),
    Column("STOPS", "stops"),
    Column("UNOWNED-PARTITION-S", "unowned_partition_s"),
    Column("LONGEST-STOP-S", "longest_stop_s"),
    Column("MOVED", "moved"),
    Column("DUPLICATES", "duplicates"),
    Column("MESSAGES", "messages"),
]
JOIN_COLUMNS = [
    Column("GENERATION", "generation", style="cyan"),
    Column("MEMBERS", "members"),
    Column("UNTIL-OWNED-S", "until_owned_s"),
    Column("STOPS", "stops"),
    Column("UNOWNED-PARTITION-S", "unowned_partition_s"),
    Column("WOKEN", "woken"),
    Column("MESSAGES", "messages"),
]
SCALING_COLUMNS = [
    Column("LOAD", "load", style="cyan"),
    Column("RULES", "rules"),
    Column("CHANGES", "changes"),
    Column("REVERSALS", "reversals"),
    Column("IN-30MIN", "reversals_30min"),
    Column("PEAK-LAG", "peak_lag"),
    Column("BEHIND-S", "behind_s"),
    Column("REPLICA-HOURS", "replica_hours"),
]
JOINING = ("zookeeper", "eager", "pushed", "kip848-pushed")
"""The ones that say most about how a group hears of a newcomer."""
WHOLE = "all"
NOT_COUNTED = {"messages": None, "duplicates": None}


@click.group()
def lab() -> None:
    """Try the protocol's generations on one workload."""


@lab.command()
@click.option("--members", type=click.IntRange(2, 100), default=6, show_default=True, help="Workers at the start.")
@click.option("--partitions", type=click.IntRange(1, 1_000), default=48, show_default=True)
@click.option("--joining", type=click.IntRange(1, 100), default=3, show_default=True, help="Workers of the scale-out.")
@click.option("--work-ms", type=click.IntRange(1, 100), default=5, show_default=True, help="Work on one record.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same figures.")
@click.option("--only", multiple=True, metavar="GENERATION", help="Only this one; may be given more than once.")
@click.option("--chapters", is_flag=True, help="Rolling restart, crash and scale-out one by one.")
@click.option("--real", is_flag=True, help="A node and a process for each worker: about three minutes a generation.")
@click.option("--chart", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.svg", help="Draw it, too.")
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
    chart: Path | None,
    style: str,
) -> int:
    """Run a rolling restart, a crash and a scale-out under every generation, in virtual time.

    With --real the course is shorter, and messages and duplicates are not counted.
    """
    from muster.workshop.bench.processes import BenchFailed
    from muster.workshop.lab.compare import Workload, compare_generations
    from muster.workshop.lab.labourer import SteadyLoad
    from muster.workshop.lab.real_comparison import compare_in_real_time

    workload = Workload(members, partitions, joining, seed, SteadyLoad(work_ms=work_ms))
    if real and chart is not None:
        raise click.UsageError("--chart draws what virtual time counts; leave out --real or --chart")
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


@lab.command()
@click.option(
    "--members", type=click.IntRange(1, 100), multiple=True, default=(10, 50, 100), show_default=True, metavar="N"
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same figures.")
@click.option("--only", multiple=True, metavar="GENERATION", help="Only this one; may be given more than once.")
@output_option
def join(members: Sequence[int], seed: int, only: Sequence[str], style: str) -> None:
    """Let one more member join groups of N members with 200 partitions, in virtual time."""
    from muster.workshop.lab.joins import measure_joins

    print_rows(
        [join_row(costs) for costs in measure_joins(members, choose_generations(only or JOINING), seed)],
        JOIN_COLUMNS,
        style,
    )


def join_row(costs: "JoinCosts") -> dict[str, Any]:
    return {key: round(value, 1) if isinstance(value, float) else value for key, value in asdict(costs).items()}


@lab.command()
@click.option(
    "--lag-threshold",
    "thresholds",
    type=click.IntRange(1, 1_000_000),
    multiple=True,
    default=(1_000, 5_000, 30_000),
    show_default=True,
    metavar="N",
    help="Of KEDA's Kafka rules; may be given more than once.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same noise.")
@output_option
def scaler(thresholds: Sequence[int], seed: int, style: str) -> None:
    """Scale a deployment under four loads by KEDA's Kafka rules and by measured rates, in virtual time.

    Consumers read 100 records a second and take 20 s to start. IN-30MIN: the most reversals in any half hour; BEHIND-S:
    how long more waited than is written in two minutes.
    """
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
            raise CommandError(f"{name!r} is no generation", f"known here: {', '.join(BY_NAME)}", code=Exit.USAGE)
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
    from muster.workshop.lab.chart import ChartUnavailable, draw_comparison

    try:
        draw_comparison(results, path)
    except ChartUnavailable as missing:
        raise CommandError(str(missing)) from missing
    except (OSError, ValueError) as error:
        raise CommandError(f"cannot draw {path}: {error}", "a path that ends in .svg, .png or .pdf") from error
