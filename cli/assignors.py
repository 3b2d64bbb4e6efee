"""`muster assign`, `muster assignor` and `muster simulate`: use, list, make, test and try assignors.

`assign` reads assignment problems, one JSON object per line, and writes one plan per line. It answers and flushes
each line before it reads the next one, so that a program may hold a conversation. A line that cannot be answered is
named on standard error by its number and leaves an empty line on standard output, so that answers stay aligned with
problems.

`assignor` lists, shows, makes and tests assignors; it needs no node. `simulate` forecasts what another assignor,
another member or other lags would do, for a file, a live group or a recorded rebalance; it changes nothing.
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.commands import CommandError, Exit, Unhealthy, print_error
from muster.cli.common.options import (
    NumberRange,
    client_options,
    connect_admin,
    find_plugins_here,
    key_values,
    output_option,
    repeated_option,
    seconds_option,
)
from muster.cli.common.output import Column, columns, notice, print_document, print_rows
from muster.cli.common.watching import watching_options
from muster.coordinator.observability.views.formatting import plural

if TYPE_CHECKING:
    from muster.assignors.api import Assignment, Assignor, Snapshot
    from muster.assignors.tools.what_if import Decide, Forecast, ForecastBounds, SnapshotChange
    from muster.client import Admin
    from muster.client.described import GroupHolds
    from muster.coordinator.core.model.records import HoldsStored


# `muster assign`
# ---------------

MAX_LINE_BYTES = 256 << 20
"""A million partitions with racks and claims take about a tenth of this."""


@click.command()
@click.option("--assignor", metavar="NAME", help="Use this assignor instead of the one that a problem names.")
@seconds_option("--deadline", 60.0, "Time limit of one problem.")
@click.argument("file", type=click.File("rb"), default="-")
def assign(assignor: str | None, deadline: float, file: Iterable[bytes]) -> int:
    """Solve assignment problems given as JSON lines.

    Reads one JSON object per line from standard input, or from FILE, and writes {member: {topic: [partitions]}} for
    each. A line is a snapshot as the ledger keeps it, or a shorter problem with topics and members. NAME is a built-in
    assignor, a Kafka class name, the entry point of a plugin, or package.module:Class, which may be in the current
    directory.
    """
    from muster.assignors.registry import resolve

    find_plugins_here()
    chosen = resolve(assignor) if assignor is not None else None
    worst = Exit.OK
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        code, answer = answer_line(line, number, chosen, deadline)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
        worst = max(worst, code)
    return worst


def answer_line(line: bytes, number: int, assignor: Any, deadline: float) -> tuple[Exit, str]:
    """The plan as JSON, or an empty answer and a complaint that names the line."""
    from muster.assignors.api import AssignorError
    from muster.assignors.registry import UnknownAssignor
    from muster.assignors.tools.problem import solve

    try:
        problem = parse_problem(line)
        plan = solve(problem, assignor, partial(run_in_time, round(1000 * deadline)))
        if why := other_plan_on_record(problem):
            notice(f"line {number}: the plan on record is another: {why}")
        return Exit.OK, json.dumps(plan, separators=(",", ":"))
    except (UnknownAssignor, ValueError) as error:
        print_error(f"line {number}: {error}")
        bad_plan = isinstance(error, AssignorError) and not isinstance(error, UnknownAssignor)
        return (Exit.FAILURE if bad_plan else Exit.USAGE), ""


def other_plan_on_record(problem: dict[str, Any]) -> str:
    """Why the ledger's plan for its snapshot was not the assignor's; empty: it was, as far as the snapshot says."""
    from muster.assignors.data import values

    options = problem.get("options") or {}
    if values.FALLBACK in options:
        return f"the assignor had failed, and the {options[values.FALLBACK]} stood ({options.get(values.REASON)})"
    if values.HELD in options:
        return f"an operator's word came after the assignor's: {options[values.HELD]}"
    return ""


def run_in_time(deadline_ms: int, assignor: "Assignor", snapshot: "Snapshot", withhold: bool) -> "Assignment":
    """Ours in a thread, which a deadline ends soon enough; others in a process, which is killed."""
    from muster.assignors.plugin_pool import run_in_thread, shared_isolation
    from muster.assignors.run import is_ours, run

    remedy = "raise --deadline or use another assignor"
    if is_ours(assignor):
        late = f"was not done after {{deadline_ms}} ms; {remedy}"
        return run_in_thread(assignor.name, partial(run, assignor, snapshot, withhold), deadline_ms, late)
    return shared_isolation().run(assignor, snapshot, deadline_ms, withhold=withhold, remedy=remedy)


def parse_problem(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"{len(line)} bytes, expected at most {MAX_LINE_BYTES}; split the problem")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte {error.start + 1}: {error.reason}); expected JSON in UTF-8") from None
    try:
        problem = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        why = "nested too deeply to read" if isinstance(error, RecursionError) else error
        raise ValueError(f"not JSON ({why}); expected one problem as a JSON object on one line") from error
    if not isinstance(problem, dict):
        raise ValueError(f"a JSON {type(problem).__name__}, expected an object with topics and members")
    return problem


# `muster assignor list` and `show`
# ---------------------------------

ASSIGNOR_COLUMNS = columns("NAME:cyan, PROTOCOL, SOURCE, SUMMARY, ALIASES+, PROBLEM+")


@click.command()
@output_option
def list_(style: str) -> None:
    """List built-in assignors and installed plugins.

    A plugin that cannot be loaded is listed with the reason.
    """
    from muster.assignors.tools.catalog import list_assignors

    rows = [asdict(entry) for entry in list_assignors()]
    if style == "table":
        rows = [row | {"summary": row["problem"] or row["summary"]} for row in rows]
    print_rows(rows, ASSIGNOR_COLUMNS, style)


@click.command()
@output_option
@click.argument("name")
def show_(style: str, name: str) -> None:
    """Show what assignor NAME guarantees, and its options.

    NAME may be a Kafka class name or package.module:Class.
    """
    from muster.assignors.tools.catalog import describe_assignor as entry_of

    find_plugins_here()
    entry = entry_of(name)
    if style not in ("table", "wide"):
        print_document(asdict(entry), "yaml" if style == "yaml" else "json")
        return
    click.echo(f"{entry.name} ({entry.protocol}, {entry.source})\n\n{entry.description}")
    if entry.options:
        click.echo("\nOptions (partition.assignment.options):")
        for option, meaning in entry.options.items():
            click.echo(f"  {option}: {meaning}")
    if entry.aliases:
        click.echo(f"\nAlso known as: {', '.join(entry.aliases)}")


# `muster assignor new` and `test`
# --------------------------------


@click.command()
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write it to this directory; a new one called NAME by default.",
)
def new(name: str, into: Path | None) -> None:
    """Create a package with a working assignor NAME and its test."""
    from muster.assignors.tools.catalog import scaffold

    try:
        files = scaffold(name)
    except ValueError as error:
        raise CommandError(str(error), code=Exit.USAGE) from error
    folder = into or Path(name)
    taken = [str(folder / path) for path in files if (folder / path).exists()]
    if taken:
        what = f"{', '.join(taken)} exist already"
        raise CommandError(what, "expected an empty place", "choose another --into", code=Exit.CONFLICT)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    notice(f"wrote {', '.join(files)} below {folder}; next: pip install -e {folder} && muster assignor test {name}")


@click.command()
@output_option
@seconds_option("--deadline", 10.0, "Time limit of one check on one group.")
@click.argument("target")
def test(style: str, target: str, deadline: float) -> int:
    """Run the compliance suite on TARGET.

    TARGET is a name, or package.module:Class in this folder. It runs in a process of its own, whose output is shown.
    Exit code 1 when a check fails.
    """
    from muster.assignors.compliance import examine
    from muster.assignors.registry import resolve

    find_plugins_here()
    report = examine(resolve(target), round(1000 * deadline))
    if style in ("table", "wide"):
        click.echo(str(report))
    else:
        findings = [asdict(finding) for finding in report.findings]
        document = {"assignor": report.assignor, "passed": report.passed, "findings": findings}
        print_document(document, "yaml" if style == "yaml" else "json")
    return Exit.OK if report.passed else Exit.FAILURE


# Snapshots to simulate
# ---------------------


def read_snapshot(file: Path) -> "Snapshot":
    from muster.assignors.data.snapshot_json import parse_json_object
    from muster.assignors.tools.problem import snapshot_of

    try:
        return snapshot_of(parse_json_object(file.read_text(encoding="utf-8"), "snapshot"))
    except ValueError as error:
        raise CommandError(
            f"{file}: {error}", "expected a snapshot or an assignment problem", code=Exit.USAGE
        ) from error


def read_group(admin: "Admin", group: str, entry: int | None, reset: str) -> "Snapshot":
    """The group as it stands, or what the ledger keeps of its rebalance number `entry`."""
    from muster.assignors.api import Snapshot

    if entry is None:
        return admin.live_snapshot(group, reset)
    recorded = {rebalance.number: rebalance for rebalance in admin.explain(group, include_snapshots=True)}
    if entry not in recorded:
        numbers = f"{min(recorded)} to {max(recorded)}" if recorded else "none"
        raise CommandError(
            f"group {group!r} has no rebalance {entry}", f"the ledger keeps {numbers}", code=Exit.NOT_FOUND
        )
    if not recorded[entry].snapshot_json:
        what = f"rebalance {entry} of group {group!r} was recorded without a snapshot"
        raise CommandError(what, code=Exit.NOT_FOUND)
    return Snapshot.from_json(recorded[entry].snapshot_json)


def make_change(asked: dict[str, Any]) -> "SnapshotChange":
    from muster.assignors.tools.what_if import SnapshotChange

    lags = read_lags(asked["lags"]) if asked["lags"] else None
    options = {key: parse_value(value) for key, value in asked["options"].items()} or None
    return SnapshotChange(add=asked["add"], remove=asked["remove"], lags=lags, options=options)


def parse_value(value: str) -> Any:
    """Numbers and booleans as such, everything else as text."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def read_lags(file: Path) -> dict[str, list[int]]:
    try:
        return {
            str(topic): [int(lag) for lag in row] for topic, row in json.loads(file.read_text(encoding="utf-8")).items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        expected = "expected JSON {topic: [lag of partition 0, 1, ...]}"
        raise CommandError(f"{file}: {error}", expected, code=Exit.USAGE) from error


# `muster simulate`
# -----------------

EXISTING_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)

COMPARISON = [
    Column(name, name)
    for name in ("ASSIGNOR", "MOVES", "PARTITIONS", "WAS", "LAG", "LAG-WAS", "WITHHELD", "UNASSIGNED", "NOTE")
]
MEMBERS = columns(
    "MEMBER=id:cyan, PARTITIONS=partitions_after, WAS=partitions_before, LAG=lag_after, LAG-WAS=lag_before"
)
MOVES = columns("TOPIC:cyan, PARTITION, FROM=source, TO=target, WHY")


@click.command()
@watching_options
@client_options
@output_option
@click.option("--assignor", metavar="NAME", help="Assignor to try; the group's own if not given.")
@click.option("--compare", metavar="A,B,C", help="Compare several assignors side by side.")
@click.option("--group", metavar="G", help="Read the problem from this group, which must be stable.")
@click.option("--entry", type=click.IntRange(min=1), metavar="N", help="With --group: its recorded rebalance N.")
@repeated_option("--add-member", "add", metavar="ID", help="Add a member")
@repeated_option("--remove-member", "remove", metavar="ID", help="Remove this member")
@click.option("--lags", type=EXISTING_FILE, metavar="FILE", help="Replace the lags: JSON {topic: [lag by partition]}.")
@repeated_option("--option", "options", metavar="KEY=VALUE", callback=key_values, help="Option of the assignor")
@click.option(
    "--reset",
    type=click.Choice(["latest", "earliest"]),
    help="Where partitions without a commit begin; at the log's start, as for the coordinator, if not given.",
)
@click.option("--ci", is_flag=True, help="Exit with 4 if --max-spread or --max-lag-share is exceeded.")
@click.option("--max-moves", type=click.IntRange(min=0))
@click.option("--max-spread", type=click.IntRange(min=0), help="Bound: most partitions of a member minus fewest.")
@click.option("--max-lag-share", type=NumberRange(min=1), help="Bound: the heaviest member's lag divided by the mean.")
@click.argument("file", type=EXISTING_FILE, required=False)
def simulate(bootstrap: str, overrides: dict[str, str], style: str, file: Path | None, **asked: Any) -> None:
    """Preview an assignment without changing anything.

    Its input is a group (--group), a recorded rebalance of it (--entry), or FILE, which holds a snapshot as the
    ledger keeps it (groups explain -o json --snapshots) or a problem as `muster assign` reads it. For a
    group as it is now, what operators hold of it (freeze, deploy, drains, pins) corrects each plan.
    """
    find_plugins_here()
    if (file is None) == (asked["group"] is None):
        raise click.UsageError("name either --group or FILE")
    if asked["entry"] and not asked["group"]:
        raise click.UsageError("--entry works only with --group")
    from muster.assignors.plugin_pool import decide_for_tool

    decide: Decide = decide_for_tool
    if file is not None:
        snapshot = read_snapshot(file)
    else:
        with connect_admin(bootstrap, overrides) as admin:
            snapshot = read_group(admin, asked["group"], asked["entry"], asked["reset"] or "")
            if asked["entry"] is None:
                decide = decide_as_held(admin, asked["group"])
    words = asked["compare"] or asked["assignor"] or snapshot.assignor
    forecasts = forecast_assignments(snapshot, words, make_change(asked), decide)
    print_forecasts(forecasts, style, comparing=asked["compare"] is not None)
    if style in ("table", "wide"):
        notice(describe_lags(snapshot, file, asked, datetime.now(UTC)))
    check_forecasts(forecasts, asked)


def describe_lags(snapshot: "Snapshot", file: Path | None, asked: dict[str, Any], now: datetime) -> str:
    """What the forecasts are measured against: the lag of which moment, of which members."""
    if asked["lags"]:
        return f"Lags: those of {asked['lags']}."
    if snapshot.lags is None:
        return "Lags: none are known, so every partition counts the same."
    total = f"{sum(map(sum, snapshot.lags.values()))} records behind, of {plural(len(snapshot.members), 'member')}"
    if file is not None:
        return f"Lags: as {file} states them; {total}."
    if asked["entry"] is not None:
        return f"Lags: as recorded with rebalance {asked['entry']} of group {asked['group']!r}; {total}."
    return f"Lags: of {now:%H:%M:%S} UTC, of group {asked['group']!r}; {total}. They change while the group works."


def decide_as_held(admin: "Admin", group: str) -> "Decide":
    """Plans as the coordinator would correct them by what operators hold of the group now."""
    from muster.assignors.plugin_pool import decide_for_tool
    from muster.coordinator.core.model.plan_correction import decide_with_overrides
    from muster.coordinator.core.model.records import MemberIdentifiers

    held = admin.group_holds(group)
    if not held.version:
        return decide_for_tool
    (described,) = admin.describe_groups([group])
    who = {
        each.member_id: MemberIdentifiers(each.member_id, each.group_instance_id, each.client_id, each.client_host)
        for each in described.members
    }
    return decide_with_overrides(stored_holds(group, held), who, decide_for_tool)


def stored_holds(group: str, held: "GroupHolds") -> "HoldsStored":
    """As the coordinator has it. While a deploy is on, or shares wait for a replacement, what is left waits."""
    from muster.coordinator.core.model.records import By, Drain, Freeze, HoldsStored, Orphans, Pin

    waits = held.expect is not None or bool(held.shares)
    orphans = Orphans(held.orphans) if held.orphans else Orphans.KEEP
    return HoldsStored(
        group,
        held.version,
        freeze=Freeze(orphans) if held.orphans or waits else None,
        drains=tuple(Drain(By(drain.by), drain.name) for drain in held.drains),
        pins=tuple(Pin(pin.topic, pin.partition, pin.name) for pin in held.pins),
    )


def forecast_assignments(
    snapshot: "Snapshot", words: str, change: "SnapshotChange", decide: "Decide"
) -> "list[Forecast]":
    from muster.assignors.api import AssignorError
    from muster.assignors.tools.what_if import compare

    if not words:
        raise click.UsageError("nothing says which assignor; name one with --assignor or --compare")
    try:
        return compare(snapshot, words, change, decide)
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
