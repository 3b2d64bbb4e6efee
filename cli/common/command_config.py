"""`--command-config FILE`: client properties for one command, or for all by $MUSTER_CONFIG.

Secrets belong there: what stands on a command line everybody on the machine can read.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

DEFAULT_BOOTSTRAP = "127.0.0.1:9290"
BOOTSTRAP = "bootstrap.servers"
ENVIRONMENT = "MUSTER_CONFIG"
_KEPT = "muster.command_config"
MAX_FILE_BYTES = 1 << 20


def _keep(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    ctx.meta[_KEPT] = read_properties(path)


command_config_option = click.option(
    "--command-config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    envvar=ENVIRONMENT,
    show_envvar=True,
    is_eager=True,
    expose_value=False,
    callback=_keep,
    help="Client properties, key=value by line: TLS, a token, bootstrap.servers.",
)
"""Read before all others, which look at what it said."""


def current_command_config() -> dict[str, str]:
    """What the file of the command that runs says, but for where the node is; nothing without one."""
    return {name: value for name, value in _kept().items() if name != BOOTSTRAP}


def current_bootstrap() -> str:
    """Where the node is, if --bootstrap does not say."""
    return _kept().get(BOOTSTRAP) or os.environ.get("MUSTER_BOOTSTRAP") or DEFAULT_BOOTSTRAP


def _kept() -> Mapping[str, str]:
    ctx = click.get_current_context(silent=True)
    kept: Any = {} if ctx is None else ctx.meta.get(_KEPT, {})
    return kept  # type: ignore[no-any-return]


def read_properties(path: Path | None) -> dict[str, str]:
    """A Java properties file of the simple kind: key=value, comments with # or !, a \\ that joins the next line.

    What is wrong is told by its line, never by its value.
    """
    pairs: dict[str, str] = {}
    for number, text in _property_lines(path) if path is not None else ():
        if not text or text[0] in "#!":
            continue
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{path}, line {number} is no setting; expected key=value")
        if key.strip() in pairs:
            raise click.UsageError(f"{path}, line {number}: {key.strip()} is set twice; keep one of the two")
        pairs[key.strip()] = value.strip()
    return pairs


def _property_lines(path: Path) -> list[tuple[int, str]]:
    """Lines with their numbers, those that go on in one piece."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1).decode("utf-8-sig")
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}; expected a file of key=value lines") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{path} is not UTF-8 text; expected a file of key=value lines") from None
    if len(text) > MAX_FILE_BYTES:
        raise click.UsageError(f"{path} is larger than {MAX_FILE_BYTES} bytes; expected a file of key=value lines")
    joined: list[tuple[int, str]] = []
    goes_on = False
    for number, line in enumerate(text.splitlines(), 1):
        piece = line.strip()
        more = piece.endswith("\\") and not (piece[:1] in ("#", "!") and not goes_on)
        piece = piece[:-1].rstrip() if more else piece
        if goes_on:
            first, before = joined[-1]
            joined[-1] = (first, f"{before} {piece}")
        else:
            joined.append((number, piece))
        goes_on = more
    return joined
