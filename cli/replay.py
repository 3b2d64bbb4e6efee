"""`muster replay`: re-run the decisions of a recorded group, with its own assignor or with another."""

import json
from typing import IO, TYPE_CHECKING, Any

import click

from muster.cli.common.commands import CommandError, Exit
from muster.cli.common.options import client_options, connect_admin, find_plugins_here, output_option
from muster.cli.common.output import Column, columns, notice, print_rows
from muster.cli.common.watching import watching_options

if TYPE_CHECKING:
    from muster.coordinator.observability.advice.recorded_decisions import ReplayedDecision

MAX_FILE_CHARACTERS = 256 << 20


@click.command()
@watching_options
@client_options
@output_option
@click.option("--group", metavar="GROUP", help="Replay this group's ledger; or give FILE.")
@click.option("--assignor", metavar="NAME", help="Also show what this assignor would have decided.")
@click.option("--from", "first", type=click.IntRange(min=1), help="Number of the first rebalance.")
@click.option("--to", "last", type=click.IntRange(min=1), help="Number of the last rebalance.")
@click.argument("file", type=click.File("r", encoding="utf-8"), required=False)
def replay(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    group: str | None,
    assignor: str | None,
    first: int | None,
    last: int | None,
    file: IO[str] | None,
) -> int:
    """Replay the recorded decisions of a group.

    FILE holds the output of `muster groups explain GROUP -o json --snapshots`. MOVES counts partitions that went from
    one member to another, SPREAD gives the fewest and the most partitions of a member. Exit code 1 when a plan
    differs from the recorded one.
    """
    from muster.coordinator.observability.advice import recorded_decisions

    find_plugins_here()
    if (group is None) == (file is None):
        raise click.UsageError("name a group with --group, or a FILE; expected exactly one of the two")
    if first is not None and last is not None and last < first:
        raise click.UsageError(f"--to {last} is before --from {first}; expected --from N --to M with N <= M")
    documents = fetch_ledger(bootstrap, overrides, group) if group is not None else read_documents(file)
    try:
        entries = recorded_decisions.read_entries(documents)
    except ValueError as error:
        raise CommandError(f"the ledger cannot be read: {error}", code=Exit.USAGE) from None
    done = [
        entry
        for entry in recorded_decisions.replay_decisions(entries, assignor)
        if (first or 0) <= entry.recorded.number and (last is None or entry.recorded.number <= last)
    ]
    if not done and style in ("table", "wide"):
        notice("No rebalance with a plan is on record in that range.")
        return Exit.OK
    print_rows([replay_row(entry) for entry in done], replay_columns(assignor), style)
    return print_verdict(done, style)


def fetch_ledger(bootstrap: str, overrides: dict[str, str], group: str) -> list[dict[str, Any]]:
    from muster.cli.groups.rebalance_story import fetch_rebalances
    from muster.coordinator.observability.views.ledger import entry_document

    with connect_admin(bootstrap, overrides) as admin:
        return [entry_document(entry) for entry in fetch_rebalances(admin, group)]


def read_documents(file: IO[str] | None) -> object:
    assert file is not None, "one of the two is there, the command has checked"
    try:
        text = file.read(MAX_FILE_CHARACTERS + 1)
        if len(text) > MAX_FILE_CHARACTERS:
            raise CommandError(f"{file.name} is too large", f"expected at most {MAX_FILE_CHARACTERS} characters")
        return json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise CommandError(f"{file.name} is no JSON: {error}", code=Exit.USAGE) from None


def replay_columns(other: str | None) -> list[Column]:
    shown = columns("#=number, GENERATION, CAUSE:yellow, ASSIGNOR, PLAN, MOVES, SPREAD")
    if other is not None:
        shown += [Column(f"MOVES ({other})", "other_moves"), Column(f"SPREAD ({other})", "other_spread")]
    return [*shown, Column("SNAPSHOT", "snapshot", wide=True), Column("DETAIL", "detail", wide=True)]


def replay_row(entry: "ReplayedDecision") -> dict[str, Any]:
    return {
        "number": entry.recorded.number,
        "generation": entry.recorded.generation,
        "cause": entry.recorded.cause,
        "assignor": entry.recorded.decided_by,
        "plan": entry.verdict,
        "moves": entry.then.moves,
        "spread": entry.then.spread,
        "other_moves": entry.other.moves if entry.other else None,
        "other_spread": entry.other.spread if entry.other else None,
        "snapshot": entry.recorded.source or None,
        "detail": entry.detail or None,
    }


def print_verdict(done: "list[ReplayedDecision]", style: str) -> int:
    """Say what did not come out as recorded, and set the exit code."""
    from muster.coordinator.observability.advice.recorded_decisions import DIFFERS, FAILED, REPRODUCED

    wrong = [entry for entry in done if entry.verdict in (DIFFERS, FAILED)]
    same = sum(entry.verdict == REPRODUCED for entry in done)
    if style in ("table", "wide"):
        notice(f"{same} of {len(done)} plans came out as recorded.")
        for entry in wrong if style == "table" else ():
            notice(f"Rebalance {entry.recorded.number}: {entry.detail}.")
    return Exit.FAILURE if wrong else Exit.OK
