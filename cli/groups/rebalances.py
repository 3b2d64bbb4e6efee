"""`muster groups explain`, `history` and `shadow`: what the ledger knows of each rebalance.

`shadow` compares the last decisions with those that the group's shadow assignors would have made.
"""

from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.options import COUNT, client_options, connect_admin, output_option
from muster.cli.common.output import columns, console, notice, print_document, print_rows
from muster.cli.common.watching import watching_options
from muster.cli.groups.arguments import group_argument
from muster.coordinator.observability.views.formatting import moment

if TYPE_CHECKING:
    from muster.coordinator.rpc.v1.ledger_pb2 import NodeStall, Rebalance


# `explain` and `history`
# -----------------------

PEOPLE = ("table", "wide")
REBALANCE_COLUMNS = columns(
    "#=number, GENERATION, STARTED, TOOK, CAUSE:yellow, BY, MOVED, UNOWNED, OUTCOME, ASSIGNOR+, DETAIL+"
)


@click.command()
@watching_options
@client_options
@output_option
@click.option("--limit", type=COUNT, default=10, show_default=True, help="Show the last N rebalances.")
@click.option("--generation", type=COUNT, help="Show only the rebalance that led to this generation.")
@click.option("--entries", is_flag=True, help="Show each rebalance in full instead of incidents.")
@click.option("--snapshots", is_flag=True, help="Include the assignor's input (with -o json or yaml).")
@group_argument
def explain(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    limit: int,
    generation: int | None,
    entries: bool,
    snapshots: bool,
    group: str,
) -> None:
    """Explain what happened to GROUP, oldest first.

    Rebalances that belong together form one incident, such as a rolling restart or a crash loop: a sentence, its
    figures, and a line for each rebalance. --entries shows each rebalance in full instead: the cause and how it is
    known, the member behind it, which members each phase waited for, which partitions moved, and how long each had no
    owner. In a cluster, also shows when the coordinator moved to another node.
    """
    whole = entries or generation is not None
    with connect_admin(bootstrap, overrides) as admin:
        most = limit if entries and not generation else 0
        if style in PEOPLE and whole:
            from muster.cli.groups.rebalance_story import fetch_rebalances

            found = fetch_rebalances(admin, group, most, generation or 0)
        else:
            found = admin.explain(group, most, generation or 0, snapshots)[::-1]
        stalls = [] if generation else admin.stalls(group, limit)[::-1]
        moves = [] if generation else admin.moves(group, limit)[::-1]
    if style == "csv":
        print_rebalances(found[-limit:], style)
    elif style in ("json", "yaml"):
        from muster.coordinator.observability.views.incidents import explain_document
        from muster.coordinator.observability.views.ledger import entry_document

        print_document(
            [entry_document(entry) for entry in found] if entries else explain_document(found, limit, stalls, moves),
            style,
        )
    elif not found and not moves and not stalls:
        notice(
            f"The ledger has nothing about group '{group}'" + (f" in generation {generation}." if generation else ".")
        )
    elif whole:
        from muster.cli.groups.rebalance_story import print_story

        print_story(console(), found, moves, full=style == "wide")
        if generation is None and len(found) < limit:
            note_history_begin(found)
    else:
        from muster.cli.groups.rebalance_story import print_incidents

        print_incidents(console(), found, limit, stalls, moves, full=style == "wide")
        note_history_begin(found)
        notice(f"Each rebalance whole: muster groups explain {group} --entries")
        return
    print_stalls(stalls)


def note_history_begin(entries: "list[Rebalance]") -> None:
    from muster.coordinator.observability.views.ledger import describe_history_begin

    if sentence := describe_history_begin(entries):
        notice(sentence)


@click.command()
@watching_options
@client_options
@output_option
@click.option("--limit", type=COUNT, default=100, show_default=True, help="Show the last N rebalances.")
@group_argument
def history(bootstrap: str, overrides: dict[str, str], style: str, limit: int, group: str) -> None:
    """List the rebalances of GROUP, oldest first."""
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
    from muster.coordinator.observability.views.ledger import rebalance_row
    from muster.coordinator.observability.views.member_names import names_of

    names = names_of(entries, full=style != "table")
    print_rows([rebalance_row(entry, names) for entry in entries], REBALANCE_COLUMNS, style)


# `shadow`
# --------

SHADOW_COLUMNS = columns(
    "#=number, ASSIGNOR:cyan, MOVES, OTHERS=differs, COST=partition_seconds, MOST LAG=lag_share, "
    "BALANCE=count_balance, BY LAG=lag_balance+, BY RATE=rate_balance+, NOBODY=unassigned+, TOOK=took_ms+, "
    "FAILED=failure"
)


@click.command()
@client_options
@output_option
@click.option("--limit", type=COUNT, default=10, show_default=True, help="Show the last N shadowed decisions.")
@group_argument
def shadow(bootstrap: str, overrides: dict[str, str], style: str, limit: int, group: str) -> None:
    """Show what shadow assignors would have decided for GROUP.

    MOVES: partitions that a living owner would have lost. OTHERS: partitions that would have had another owner. COST:
    partition-seconds without an owner, measured for the plan that counted; for the others, their moves at this
    group's average cost of a move. MOST LAG: the share of all lag on one member. BALANCE: the most partitions of a
    member over the mean.

      muster groups set orders 'shadow.assignors=lag-sticky,uniform'
    """
    from muster.coordinator.observability.views.ledger import compare_shadows

    with connect_admin(bootstrap, overrides) as admin:
        rows = compare_shadows(admin.explain(group)[::-1], limit)
        shadows = admin.group_settings(group).values.get("shadow.assignors") if not rows else None
    if style in ("json", "yaml"):
        print_document(rows, style)
        return
    print_rows([readable_row(row) if style in PEOPLE else dict(row) for row in rows], SHADOW_COLUMNS, style)
    if not rows:
        notice(
            f"no decision for group '{group}' has been shadowed yet; the next one will be"
            if shadows
            else f"group '{group}' has no shadows; muster groups set {group} shadow.assignors=NAME names up to four"
        )


def readable_row(row: Any) -> dict[str, Any]:
    from muster.coordinator.observability.views.formatting import duration

    def ratio(key: str) -> str | None:
        return None if row[key] is None else f"{row[key]:.2f}"

    return {
        **row,
        "assignor": f"{row['assignor']} (real)" if row["real"] else row["assignor"],
        "partition_seconds": None if row["partition_seconds"] is None else duration(row["partition_seconds"] * 1000),
        "lag_share": None if row["lag_share"] is None else f"{row['lag_share']:.0%}",
        "took_ms": None if row["took_ms"] is None else duration(row["took_ms"]),
        **{key: ratio(key) for key in ("count_balance", "lag_balance", "rate_balance")},
    }
