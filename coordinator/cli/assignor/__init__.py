"""`muster assignor`: which assignors there are, and how to make and test one's own."""

import click

from muster.coordinator.cli.common.lazy import LazyCommand, LazyGroup

ASSIGNOR_COMMANDS = {
    "list": LazyCommand("muster.coordinator.cli.assignor.listing:list_", "List the assignors known here."),
    "show": LazyCommand("muster.coordinator.cli.assignor.listing:show_", "Tell what one promises, and its options."),
    "new": LazyCommand(
        "muster.coordinator.cli.assignor.making:new", "Write a package with a new assignor and its test."
    ),
    "test": LazyCommand("muster.coordinator.cli.assignor.making:test", "Put an assignor through the compliance suite."),
}


@click.group(cls=LazyGroup, lazy=ASSIGNOR_COMMANDS)
def assignor() -> None:
    """List, show, make and test assignors. No node is needed."""
