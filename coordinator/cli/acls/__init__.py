"""`muster acls`: who may do what, with the flags of kafka-acls."""

import click

from muster.coordinator.cli.common.lazy import LazyCommand, LazyGroup

ACLS_COMMANDS = {
    "add": LazyCommand("muster.coordinator.cli.acls.changing:add", "Allow somebody something, or deny it."),
    "list": LazyCommand("muster.coordinator.cli.acls.listing:list_acls", "Show the entries of the lists."),
    "remove": LazyCommand("muster.coordinator.cli.acls.changing:remove", "Take entries away."),
    "check": LazyCommand("muster.coordinator.cli.acls.checking:check", "Whether somebody may, and by which entry."),
}


@click.group(cls=LazyGroup, lazy=ACLS_COMMANDS)
def acls() -> None:
    """Who may do what on a node with authorizer=acl.

    The same lists that Kafka's own kafka-acls shows and changes.
    """
