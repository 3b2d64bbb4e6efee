"""`muster groups list`."""

from typing import TYPE_CHECKING

import click

from muster.cli.common.errors import Unhealthy
from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import Column, notice, print_rows
from muster.cli.groups.both import ZOOKEEPER, warn_of_duplicate_groups
from muster.coordinator.observability.views.groups import group_row

if TYPE_CHECKING:
    from muster.client import Admin

GROUP_COLUMNS = [
    Column("GROUP", "group", style="cyan"),
    Column("TYPE", "type"),
    Column("STATE", "state"),
    Column("LAG", "lag", wide=True),
    Column("HEALTH", "health"),
    Column("PROTOCOL-TYPE", "protocol_type", wide=True),
    Column("WHY", "health_reason", wide=True),
]
STATES = (
    *("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"),
    *("Assigning", "Reconciling"),  # KIP-848
    *("Waiting", "Stopping", "Starting", "BackingOff"),  # central
)


def describe_missing_groups(admin: "Admin") -> list[str]:
    """Sentences on groups that the node cannot load, for those who may ask how it is (DESCRIBE on the cluster)."""
    from muster.client.errors import AuthorizationError

    try:
        return [each.sentence for each in admin.conditions() if each.name.startswith("shard-failed:")]
    except AuthorizationError:
        return []


@click.command("list")
@client_options
@output_option
@click.option("--state", "states", multiple=True, type=click.Choice(STATES, case_sensitive=False), help="Only these.")
def list_(bootstrap: str, overrides: dict[str, str], style: str, states: tuple[str, ...]) -> None:
    """List groups. Exit code 4 when a node cannot tell of some of them, which are missing then.

    HEALTH is OK, WARN or ERR by Burrow's rules, where the node samples its groups (docs/observe.md).
    """
    with connect_admin(bootstrap, overrides) as admin:
        untold: list[str] = []
        found = admin.list_groups(states, missing=untold.append)
        missing = describe_missing_groups(admin) + untold
        warn_of_duplicate_groups(found)
        if any(group.group_type == ZOOKEEPER for group in found) and admin.zookeeper_away():
            notice("Warning: ZooKeeper is out of the node's reach. Groups there are shown as they were last seen.")
    print_rows([group_row(group) for group in found], GROUP_COLUMNS, style)
    if missing:
        raise Unhealthy("\n".join(f"groups are missing in this list: {sentence}" for sentence in missing))
