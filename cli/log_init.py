"""`muster log`: what lies on disk, and whether it is whole."""

import click

from muster.cli.common.lazy import LazyCommand, LazyGroup

LOG_COMMANDS = {
    "dump": LazyCommand("muster.cli.dump:dump", "Print log files batch by batch."),
    "verify": LazyCommand("muster.cli.verify:verify", "Walk a data directory and check everything."),
    "recover": LazyCommand("muster.cli.recover:recover", "Cut damaged logs off where the damage begins."),
}


@click.group(cls=LazyGroup, lazy=LOG_COMMANDS)
def log() -> None:
    """Look at log files and data directories. The node need not run."""
