"""`muster groups shadow`: what the group's shadow assignors would have decided, beside what was."""

from typing import Any

import click

from muster.cli.common.options import COUNT, client_options, connect_admin, output_option
from muster.cli.common.output import Column, notice, print_document, print_rows
from muster.cli.groups.which import group_argument

PEOPLE = ("table", "wide")
SHADOW_COLUMNS = [
    Column("#", "number"),
    Column("ASSIGNOR", "assignor", style="cyan"),
    Column("MOVES", "moves"),
    Column("OTHERS", "differs"),
    Column("COST", "partition_seconds"),
    Column("MOST LAG", "lag_share"),
    Column("BALANCE", "count_balance"),
    Column("BY LAG", "lag_balance", wide=True),
    Column("BY RATE", "rate_balance", wide=True),
    Column("NOBODY", "unassigned", wide=True),
    Column("TOOK", "took_ms", wide=True),
    Column("FAILED", "failure"),
]


@click.command()
@client_options
@output_option
@click.option("--limit", type=COUNT, default=10, show_default=True, help="The last N decisions that were shadowed.")
@group_argument
def shadow(bootstrap: str, overrides: dict[str, str], style: str, limit: int, group: str) -> None:
    """Show the last decisions for GROUP, and beside each what its shadow assignors would have decided.

    MOVES: partitions whose owner would have lost them. OTHERS: how many would have another owner than they got. COST:
    partition-seconds without an owner, as measured for the plan that counted; for the others, what a move of this group
    costs on average, for each of theirs. MOST LAG: the share of all lag that one member would have. BALANCE: the most
    partitions of a member over the mean.

      muster groups set orders 'shadow.assignors=lag-sticky,uniform'
    """
    from muster.coordinator.observability.views.shadows import compare_shadows

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
