"""`muster groups remove-members`: an operator sends members away."""

import click

from muster.cli.common.errors import CommandError, Exit
from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import Column, notice, print_rows
from muster.cli.groups.which import group_argument

REMOVAL_COLUMNS = [
    Column("GROUP", "group"),
    Column("CONSUMER-ID", "consumer_id", style="cyan"),
    Column("GROUP-INSTANCE-ID", "group_instance_id"),
    Column("#PARTITIONS", "partitions"),
]


@click.command("remove-members")
@client_options
@output_option
@click.option("--member", "members", multiple=True, metavar="ID", help="By member id; may be repeated.")
@click.option("--instance", "instances", multiple=True, metavar="ID", help="By group.instance.id; may be repeated.")
@click.option("--all", "everyone", is_flag=True, help="Every member.")
@click.option("--reason", default="removed by an operator", show_default=True, help="What the ledger says of it.")
@click.option("--execute/--dry-run", default=False, help="Do it; without, only show who would go.")
@group_argument
def remove_members(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    members: tuple[str, ...],
    instances: tuple[str, ...],
    everyone: bool,
    reason: str,
    execute: bool,
    group: str,
) -> None:
    """Remove members of GROUP; their partitions go to the others. One that still runs hears of it, and joins again."""
    if everyone == bool(members or instances):
        raise click.UsageError("who shall go is not said, or said twice; expected --member, --instance or --all")
    with connect_admin(bootstrap, overrides) as admin:
        found = admin.describe_group(group)
        going = [m for m in found.members if everyone or m.member_id in members or m.group_instance_id in instances]
        known = {m.member_id for m in going} | {m.group_instance_id for m in going}
        strangers = [name for name in (*members, *instances) if name not in known]
        if strangers:
            raise CommandError(
                f"group '{group}' has no member {', '.join(map(repr, strangers))}",
                remedy=f"`muster groups members {group}` lists those it has",
                code=Exit.NOT_FOUND,
            )
        if execute and going:
            admin.remove_members(group, members=[m.member_id for m in going], reason=reason)
    if not execute:
        notice("Nobody was removed; add --execute to do it.")
    rows = [
        {
            "group": group,
            "consumer_id": m.member_id,
            "group_instance_id": m.group_instance_id,
            "partitions": len(m.assignment),
        }
        for m in going
    ]
    print_rows(rows, REMOVAL_COLUMNS, style)
