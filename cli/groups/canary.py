"""`muster groups canary`, `promote` and `rollback`: another assignor plans the group for a while, and is watched."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import Column, notice, print_document, print_rows
from muster.cli.groups.held import Duration
from muster.cli.groups.which import group_argument
from muster.coordinator.observability.views.trials import guard_row, sentence

if TYPE_CHECKING:
    from muster.client.described import Canary

GUARD_COLUMNS = [
    Column("GUARD", "guard", style="cyan"),
    Column("BEFORE", "baseline"),
    Column("NOW", "figure"),
    Column("COUNTS", "counts"),
]

reason_option = click.option("--reason", default="", help="What the ledger says of it.")


@click.command()
@client_options
@output_option
@click.option("--assignor", metavar="NAME[{JSON}]", help="The candidate, with its options. Without it: how it goes.")
@click.option("--for", "for_ms", type=Duration(), metavar="TIME", help="How long it is tried: 90s, 30m, 2h.")
@click.option("--guard", "guards", multiple=True, metavar="EXPR", help="Instead of the usual guards; may be repeated.")
@click.option("--lag-floor", type=click.IntRange(0), metavar="N", help="Less lag trips no guard; 1000 unless told.")
@click.option(
    "--then",
    type=click.Choice(["promote", "wait"]),
    default="promote",
    show_default=True,
    help="At the end of its time it becomes the setting, or waits for promote or rollback.",
)
@click.option("--dry-run", is_flag=True, help="Say what it would be held against, with figures, and change nothing.")
@reason_option
@group_argument
def canary(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    assignor: str | None,
    for_ms: int | None,
    guards: tuple[str, ...],
    lag_floor: int | None,
    then: str,
    dry_run: bool,
    reason: str,
    group: str,
) -> None:
    """Try an assignor on GROUP for real, for a while. A guard that trips rolls it back at once.

    A guard is FIGURE > NUMBER, or > NUMBERx for so many times the group's own last hour: plan-failures; moves and
    unowned (partition-seconds), for each rebalance; lag, all together, in three samples in a row; expired, members lost
    to session or poll timeout. The usual ones: plan-failures > 0, unowned > 2x, lag > 2x, expired > 0.

      muster groups canary orders --assignor 'lag-sticky{"move.budget": 20}' --for 30m
    """
    if assignor is None:
        if for_ms is not None or guards or dry_run or lag_floor is not None:
            raise click.UsageError("which assignor is to be tried? expected --assignor NAME")
        with connect_admin(bootstrap, overrides) as admin:
            report_canary(group, admin.canary(group), style)
        return
    if for_ms is None:
        raise click.UsageError("a canary needs a time; expected --for TIME, such as --for 30m")
    with connect_admin(bootstrap, overrides) as admin:
        begun = admin.start_canary(
            group,
            assignor,
            for_ms,
            guards=guards,
            lag_floor=lag_floor,
            wait=then == "wait",
            validate_only=dry_run,
            reason=reason,
        )
    report_canary(group, begun, style)
    if dry_run:
        notice("Nothing was changed; leave out --dry-run to do it.")


@click.command()
@client_options
@output_option
@reason_option
@group_argument
def promote(bootstrap: str, overrides: dict[str, str], style: str, reason: str, group: str) -> None:
    """The canary of GROUP becomes its setting, now."""
    with connect_admin(bootstrap, overrides) as admin:
        report_canary(group, admin.end_canary(group, promote=True, reason=reason), style)


@click.command()
@client_options
@output_option
@reason_option
@group_argument
def rollback(bootstrap: str, overrides: dict[str, str], style: str, reason: str, group: str) -> None:
    """The canary of GROUP goes; what planned before plans again."""
    with connect_admin(bootstrap, overrides) as admin:
        report_canary(group, admin.end_canary(group, promote=False, reason=reason), style)


def report_canary(group: str, found: "Canary | None", style: str) -> None:
    """How it goes in a sentence on standard error, and its guards in a table."""
    if style in ("json", "yaml"):
        print_document(None if found is None else asdict(found), style)
        return
    if found is None:
        notice(f"group '{group}' never had a canary; muster groups canary {group} --assignor NAME --for 30m begins one")
        return
    notice(sentence(found))
    print_rows([guard_row(asdict(guard)) for guard in found.guards], GUARD_COLUMNS, style)
