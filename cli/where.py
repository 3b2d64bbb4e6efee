"""Where `muster log` looks."""

from pathlib import Path

import click

from muster.cli.common.errors import CommandError, Exit


def existing_directory(ctx: click.Context, param: click.Parameter, given: str) -> str:
    """A data directory has to be there; whether it is one, the log finds out."""
    if not Path(given).is_dir():
        raise CommandError(
            f"there is no directory {given}", "expected a node's data directory", "check log.dirs", code=Exit.NOT_FOUND
        )
    return given
