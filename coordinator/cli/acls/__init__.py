"""`muster acls`: who may do what, with the flags of kafka-acls."""

import click

from muster.coordinator.cli.common.lazy import Lazy, LazyGroup

COMMANDS = {
    "add": Lazy("muster.coordinator.cli.acls.changing:add", "Allow somebody something, or deny it."),
    "list": Lazy("muster.coordinator.cli.acls.listing:list_acls", "Show the entries of the lists."),
    "remove": Lazy("muster.coordinator.cli.acls.changing:remove", "Take entries away."),
    "check": Lazy("muster.coordinator.cli.acls.checking:check", "Whether somebody may, and by which entry."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def acls() -> None:
    """Who may do what on a node with authorizer=acl.

    The same lists that Kafka's own kafka-acls shows and changes.
    """
