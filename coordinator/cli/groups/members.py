"""`muster groups members`: who is in the group, and with what."""

import click

from muster.coordinator.cli.common.options import admin_of, client_options, output_option
from muster.coordinator.cli.common.output import Column, show
from muster.coordinator.cli.groups.both import ZOOKEEPER, say_who_else
from muster.coordinator.cli.groups.describe import say_what_is_old, say_what_stands_out
from muster.coordinator.cli.groups.which import group_argument
from muster.coordinator.views.groups import member_row

COLUMNS = [
    Column("GROUP", "group"),
    Column("CONSUMER-ID", "consumer_id", style="cyan"),
    Column("GROUP-INSTANCE-ID", "group_instance_id"),
    Column("HOST", "host"),
    Column("CLIENT-ID", "client_id"),
    Column("SOFTWARE", "client_software", wide=True),
    Column("#PARTITIONS", "partitions"),
    Column("ASSIGNMENT", "assignment", wide=True),
]


@click.command()
@client_options
@output_option
@group_argument
def members(bootstrap: str, overrides: dict[str, str], style: str, group: str) -> None:
    """Show the members of GROUP; wide adds what each owns, and what its client runs."""
    with admin_of(bootstrap, overrides) as admin:
        found = admin.describe_group(group)
        say_who_else(admin, found)
        if found.protocol_type == ZOOKEEPER and admin.zookeeper_away():
            say_what_is_old(found)
    say_what_stands_out(found)
    show([member_row(found.group_id, member) for member in found.members], COLUMNS, style)
