"""`muster assignor`: which assignors there are, and how to make and test one's own."""

import click

from muster.cli.common.lazy import LazyCommand, LazyGroup

ASSIGNOR_COMMANDS = {
    "list": LazyCommand("muster.cli.listing:list_", "List the assignors known here."),
    "show": LazyCommand("muster.cli.listing:show_", "Tell what one promises, and its options."),
    "new": LazyCommand("muster.cli.making:new", "Write a package with a new assignor and its test."),
    "test": LazyCommand("muster.cli.making:test", "Put an assignor through the compliance suite."),
}


@click.group(cls=LazyGroup, lazy=ASSIGNOR_COMMANDS)
def assignor() -> None:
    """List, show, make and test assignors. No node is needed."""
