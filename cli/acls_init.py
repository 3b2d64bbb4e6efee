"""`muster acls`: who may do what, with the flags of kafka-acls."""

import click

from muster.cli.common.lazy import LazyCommand, LazyGroup

ACLS_COMMANDS = {
    "add": LazyCommand("muster.cli.security.changing:add", "Allow somebody something, or deny it."),
    "list": LazyCommand("muster.cli.security.listing:list_acls", "Show the entries of the lists."),
    "remove": LazyCommand("muster.cli.security.changing:remove", "Take entries away."),
    "check": LazyCommand("muster.cli.security.checking:check", "Whether somebody may, and by which entry."),
}


@click.group(cls=LazyGroup, lazy=ACLS_COMMANDS)
def acls() -> None:
    """Who may do what on a node with authorizer=acl.

    The same lists that Kafka's own kafka-acls shows and changes.
    """
