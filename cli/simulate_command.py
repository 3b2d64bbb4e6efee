"""`muster simulate`: what another assignor, another member or other lags would do. Changes nothing."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.errors import CommandError, Exit, Unhealthy
from muster.cli.common.options import NumberRange, client_options, connect_admin, key_values, output_option
from muster.cli.common.output import Column, notice, print_document, print_rows
from muster.cli.common.plugins import find_plugins_here
from muster.cli.inputs import make_change, read_group, read_snapshot
from muster.coordinator.observability.views.formatting import plural

if TYPE_CHECKING:
    from muster.assignors.api import Snapshot
    from muster.assignors.tools.what_if import Forecast, ForecastBounds, SnapshotChange

EXISTING_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

COMPARISON = [
    Column(name, name)
    for name in ("ASSIGNOR", "MOVES", "PARTITIONS", "WAS", "LAG", "LAG-WAS", "WITHHELD", "UNASSIGNED", "NOTE")
]
MEMBERS = [
    Column("MEMBER", "id", style="cyan"),
    Column("PARTITIONS", "partitions_after"),
    Column("WAS", "partitions_before"),
    Column("LAG", "lag_after"),
    Column("LAG-WAS", "lag_before"),
]
MOVES = [
    Column("TOPIC", "topic", style="cyan"),
    Column("PARTITION", "partition"),
    Column("FROM", "source"),
    Column("TO", "target"),
    Column("WHY", "why"),
]


@click.command()
@client_options
@output_option
@click.option("--assignor", metavar="NAME", help="The assignor to try; the group's own when not given.")
@click.option("--compare", metavar="A,B,C", help="Several assignors, side by side.")
@click.option("--group", metavar="G", help="A live group; it must be stable.")
@click.option("--entry", type=click.IntRange(min=1), metavar="N", help="With --group: its recorded rebalance number N.")
@click.option("--add-member", "add", multiple=True, metavar="ID", help="With one more member; may be repeated.")
@click.option("--remove-member", "remove", multiple=True, metavar="ID", help="Without this member; may be repeated.")
@click.option("--lags", type=EXISTING_FILE, metavar="FILE", help="Other lags: JSON {topic: [lag by partition]}.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", callback=key_values, help="For the assignor.")
@click.option(
    "--reset", type=click.Choice(["latest", "earliest"]), default="latest", help="For partitions without commit."
)
@click.option("--ci", is_flag=True, help="Exit with 4 when a bound below is broken.")
@click.option("--max-moves", type=click.IntRange(min=0))
@click.option("--max-spread", type=click.IntRange(min=0), help="Most partitions of a member minus fewest.")
@click.option("--max-lag-share", type=NumberRange(min=1), help="The heaviest member's lag over the mean.")
@click.argument("file", type=EXISTING_FILE, required=False)
def simulate(bootstrap: str, overrides: dict[str, str], style: str, file: Path | None, **asked: Any) -> None:
    """Foresee an assignment: for --group, for a recorded rebalance of it (--entry), or for FILE.

    FILE holds a snapshot as the ledger keeps it (groups explain -o json --snapshots) or a problem as `muster assign`
    reads it.
    """
    find_plugins_here()
    if (file is None) == (asked["group"] is None):
        raise click.UsageError("name either --group or FILE")
    if asked["entry"] and not asked["group"]:
        raise click.UsageError("--entry goes with --group")
    if file is not None:
        snapshot = read_snapshot(file)
    else:
        with connect_admin(bootstrap, overrides) as admin:
            snapshot = read_group(admin, asked["group"], asked["entry"], asked["reset"])
    words = asked["compare"] or asked["assignor"] or snapshot.assignor
    forecasts = forecast_assignments(snapshot, words, make_change(asked))
    print_forecasts(forecasts, style, comparing=asked["compare"] is not None)
    check_forecasts(forecasts, asked)


def forecast_assignments(snapshot: "Snapshot", words: str, change: "SnapshotChange") -> "list[Forecast]":
    from muster.assignors.api import AssignorError
    from muster.assignors.plugin_pool import decide_for_tool
    from muster.assignors.tools.what_if import compare

    if not words:
        raise click.UsageError("nothing says which assignor; name one with --assignor or --compare")
    try:
        return compare(snapshot, words, change, decide_for_tool)
    except AssignorError:
        raise
    except ValueError as error:
        raise CommandError(str(error), code=Exit.USAGE) from error


def print_forecasts(forecasts: "list[Forecast]", style: str, *, comparing: bool) -> None:
    from muster.assignors.tools.what_if import forecast_table

    if style in ("json", "yaml"):
        print_document([forecast.to_dict() for forecast in forecasts], style)
        return
    if comparing or style == "csv":
        print_rows(
            [
                row | {"UNASSIGNED": str(f.unassigned)}
                for row, f in zip(forecast_table(forecasts), forecasts, strict=True)
            ],
            COMPARISON,
            style,
        )
        return
    for forecast in forecasts:
        found = forecast.to_dict()
        print_rows(found["members"], MEMBERS, style)
        print_rows(found["moves"], MOVES, style)
        notice(
            f"{forecast.assignor}: {plural(len(forecast.moves), 'move')}"
            + (f"; {forecast.note}" if forecast.note else "")
        )


def check_forecasts(forecasts: "list[Forecast]", asked: dict[str, Any]) -> None:
    broken = [line for forecast in forecasts for line in forecast.breaches(make_bounds(asked))]
    for line in broken:
        notice(line)
    if broken and asked["ci"]:
        raise Unhealthy(f"{plural(len(broken), 'bound')} broken")


def make_bounds(asked: dict[str, Any]) -> "ForecastBounds":
    from muster.assignors.tools.what_if import ForecastBounds

    return ForecastBounds(asked["max_moves"], asked["max_spread"], asked["max_lag_share"])
