"""`muster groups members`: who is in the group, and with what."""

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import Column, print_rows
from muster.cli.groups.both import ZOOKEEPER, warn_of_hidden_members
from muster.cli.groups.describe import print_highlights, warn_of_stale_positions
from muster.cli.groups.which import group_argument
from muster.coordinator.observability.views.groups import member_row

MEMBER_COLUMNS = [
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
    with connect_admin(bootstrap, overrides) as admin:
        found = admin.describe_group(group)
        warn_of_hidden_members(admin, found)
        if found.protocol_type == ZOOKEEPER and admin.zookeeper_away():
            warn_of_stale_positions(found)
    print_highlights(found)
    print_rows([member_row(found.group_id, member) for member in found.members], MEMBER_COLUMNS, style)
