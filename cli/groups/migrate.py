"""`muster groups migrate-offsets`: positions out of ZooKeeper, or back into it."""

import os
from typing import Literal, cast

import click

from muster.cli.common.errors import CommandError, Exit
from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import Column, notice, print_rows
from muster.cli.groups.which import group_argument
from muster.coordinator.observability.views.formatting import plural

DEFAULT_ZOOKEEPER = "127.0.0.1:2181"
MIGRATION_COLUMNS = [
    Column("GROUP", "group"),
    Column("TOPIC", "topic", style="cyan"),
    Column("PARTITION", "partition"),
    Column("NEW-OFFSET", "new_offset"),
    Column("CURRENT-OFFSET", "current_offset"),
]


def connect_string(ctx: click.Context, param: click.Parameter, given: str) -> str:
    from muster.coordinator.config import parse_connect

    try:
        return str(parse_connect(given))
    except ValueError as error:
        raise click.BadParameter(f"{given!r}; expected {error}", ctx, param) from None


@click.command("migrate-offsets")
@client_options
@output_option
@click.option(
    "--to", type=click.Choice(["kafka", "zookeeper"]), required=True, help="kafka: the coordinator; or ZooKeeper."
)
@click.option(
    "--zookeeper",
    metavar="CONNECT",
    callback=connect_string,
    default=lambda: os.environ.get("MUSTER_ZOOKEEPER") or DEFAULT_ZOOKEEPER,
    show_default=f"$MUSTER_ZOOKEEPER or {DEFAULT_ZOOKEEPER}",
    help="HOST:PORT,HOST:PORT/CHROOT of the ensemble.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be copied.")
@group_argument
def migrate_offsets(
    bootstrap: str, overrides: dict[str, str], style: str, to: str, zookeeper: str, dry_run: bool, group: str
) -> None:
    """Copy the positions of GROUP that the other store does not have yet.

    The group has no members, or all of them commit to both stores (dual.commit.enabled=true).
    """
    from muster.client.errors import GroupNotEmpty

    store = cast(Literal["kafka", "zookeeper"], to)
    with connect_admin(bootstrap, overrides) as admin:
        try:
            moved = admin.migrate_offsets(group, store, zookeeper, dry_run)
        except GroupNotEmpty as error:
            raise CommandError(error.message, code=Exit.CONFLICT) from error
    rows = [
        {
            "group": group,
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "new_offset": each.offset,
            "current_offset": each.before,
        }
        for each in moved
    ]
    if dry_run:
        notice("Nothing was changed; leave out --dry-run to do it.")
    else:
        notice(f"{plural(len(rows), 'position')} copied to {to}.")
    print_rows(rows, MIGRATION_COLUMNS, style)
