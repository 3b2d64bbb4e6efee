"""`muster groups explain` and `history`: what the ledger knows of each rebalance."""

from typing import TYPE_CHECKING

import click

from muster.cli.common.options import COUNT, client_options, connect_admin, output_option
from muster.cli.common.output import Column, console, notice, print_document, print_rows
from muster.cli.groups.which import group_argument
from muster.coordinator.observability.views.formatting import moment

if TYPE_CHECKING:
    from muster.coordinator.rpc.v1.ledger_pb2 import NodeStall, Rebalance

PEOPLE = ("table", "wide")
REBALANCE_COLUMNS = [
    Column("#", "number"),
    Column("GENERATION", "generation"),
    Column("STARTED", "started"),
    Column("TOOK", "took"),
    Column("CAUSE", "cause", style="yellow"),
    Column("BY", "by"),
    Column("MOVED", "moved"),
    Column("UNOWNED", "unowned"),
    Column("OUTCOME", "outcome"),
    Column("ASSIGNOR", "assignor", wide=True),
    Column("DETAIL", "detail", wide=True),
]


@click.command()
@client_options
@output_option
@click.option("--limit", type=COUNT, default=10, show_default=True, help="The last N rebalances.")
@click.option("--generation", type=COUNT, help="Only the one that led to this generation.")
@click.option("--snapshots", is_flag=True, help="In json and yaml, with the assignor's input.")
@group_argument
def explain(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    limit: int,
    generation: int | None,
    snapshots: bool,
    group: str,
) -> None:
    """Tell why GROUP rebalanced, each time, oldest first.

    Cause, who set it off, how long each phase took and for whom, which partitions moved, how long each had no owner.
    In a cluster, where its coordinator moved from one node to another stands among them.
    """
    with connect_admin(bootstrap, overrides) as admin:
        most = 0 if generation else limit
        if style in PEOPLE:
            from muster.cli.groups.rebalance_story import fetch_rebalances

            entries = fetch_rebalances(admin, group, most, generation or 0)
        else:
            entries = admin.explain(group, most, generation or 0, snapshots)[::-1]
        stalls = [] if generation else admin.stalls(group, most)[::-1]
        moves = [] if generation else admin.moves(group, most)[::-1]
    if style in ("json", "yaml"):
        from muster.coordinator.observability.views.ledger import entry_document

        print_document([entry_document(entry) for entry in entries], style)
    elif style == "csv":
        print_rebalances(entries, style)
    elif not entries:
        notice(
            f"The ledger has nothing about group '{group}'" + (f" in generation {generation}." if generation else ".")
        )
    else:
        from muster.cli.groups.rebalance_story import print_story

        print_story(console(), entries, moves, full=style == "wide")
    print_stalls(stalls)


@click.command()
@client_options
@output_option
@click.option("--limit", type=COUNT, default=100, show_default=True, help="The last N rebalances.")
@group_argument
def history(bootstrap: str, overrides: dict[str, str], style: str, limit: int, group: str) -> None:
    """One line per rebalance of GROUP, oldest first."""
    with connect_admin(bootstrap, overrides) as admin:
        entries = admin.explain(group, limit)[::-1]
        stalls = admin.stalls(group, limit)[::-1]
    print_rebalances(entries, style)
    print_stalls(stalls)


def print_stalls(stalls: "list[NodeStall]") -> None:
    """On standard error: beside the rebalances, and none of them."""
    for stall in stalls:
        seconds = f"{stall.stalled_ms / 1000:.1f} s"
        notice(f"{moment(stall.ended_at_ms)}: the node stood still for {seconds}; nobody was expired for it")


def print_rebalances(entries: "list[Rebalance]", style: str) -> None:
    from muster.coordinator.observability.views.ledger import names_of, rebalance_row

    names = names_of(entries, full=style != "table")
    print_rows([rebalance_row(entry, names) for entry in entries], REBALANCE_COLUMNS, style)
