"""`muster groups delete` and `delete-offsets`."""

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import Column, notice, print_rows
from muster.cli.groups.which import group_argument, reason_option, resolve_partitions

DELETION_COLUMNS = [
    Column("TOPIC", "topic", style="cyan"),
    Column("PARTITION", "partition"),
    Column("STATUS", "status"),
]


@click.command()
@client_options
@reason_option
@click.argument("groups", nargs=-1, required=True, metavar="GROUP...")
def delete(bootstrap: str, overrides: dict[str, str], reason: str, groups: tuple[str, ...]) -> None:
    """Delete groups that have no members, with their positions and their ledger.

    `muster groups history` goes on telling who deleted a group, when, and what positions it had.
    """
    with connect_admin(bootstrap, overrides) as admin:
        admin.delete_groups(groups, reason)
    named = ", ".join(f"'{group}'" for group in groups)
    notice(f"Deletion of requested consumer groups ({named}) was successful.")


@click.command("delete-offsets")
@client_options
@output_option
@click.option("--topic", "topics", multiple=True, required=True, metavar="T[:P,P]", help="May be repeated.")
@reason_option
@group_argument
def delete_offsets(
    bootstrap: str, overrides: dict[str, str], style: str, topics: tuple[str, ...], reason: str, group: str
) -> None:
    """Forget the positions of GROUP in topics that none of its members is subscribed to."""
    with connect_admin(bootstrap, overrides) as admin:
        admin.describe_group(group)
        partitions = resolve_partitions(admin, topics)
        admin.delete_offsets(group, partitions, reason)
    rows = [{"topic": topic, "partition": number, "status": "Successful"} for topic, number in partitions]
    print_rows(rows, DELETION_COLUMNS, style)
