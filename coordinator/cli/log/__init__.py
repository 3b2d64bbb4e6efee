"""`muster log`: what lies on disk, and whether it is whole."""

import click

from muster.coordinator.cli.common.lazy import Lazy, LazyGroup

COMMANDS = {
    "dump": Lazy("muster.coordinator.cli.log.dump:dump", "Print log files batch by batch."),
    "verify": Lazy("muster.coordinator.cli.log.verify:verify", "Walk a data directory and check everything."),
    "recover": Lazy("muster.coordinator.cli.log.recover:recover", "Cut damaged logs off where the damage begins."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def log() -> None:
    """Look at log files and data directories. The node need not run."""
