"""Where commands get a password from: a file, standard input, or whoever sits there. Never from the command line."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from muster.cli.common.errors import CommandError, Exit

Function = TypeVar("Function", bound=Callable[..., Any])
MAX_PASSWORD_BYTES = 4_096

_option = click.option(
    "--password-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Its first line is the password; without it that is asked for, or read from standard input.",
)


def password_option(function: Function) -> Function:
    """--password-file: what stands on a command line everybody on the machine can read."""
    return _option(function)


def read_password(file: Path | None) -> str:
    """Raises CommandError."""
    if file is not None:
        try:
            with file.open("rb") as opened:
                data = opened.read(MAX_PASSWORD_BYTES)
        except OSError as error:
            raise CommandError(f"--password-file: {error}", code=Exit.USAGE) from error
    elif sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    else:
        data = sys.stdin.buffer.readline(MAX_PASSWORD_BYTES)
    try:
        password = data.partition(b"\n")[0].rstrip(b"\r").decode()
    except UnicodeDecodeError:
        password = ""
    if not password:
        raise CommandError(
            "there is no password",
            "expected one line of UTF-8 in --password-file, or on standard input",
            code=Exit.USAGE,
        )
    return password
