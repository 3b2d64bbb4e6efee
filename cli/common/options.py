"""Options that many commands share, and the connection to a node that they describe.

`--command-config FILE` reads client properties for one command; $MUSTER_CONFIG does so for all. Secrets belong into
that file: everybody on the machine can read a command line.

A port that refuses a connection is reported immediately, not after a wait. Warnings of clients (a node that is away,
a callback that raised) appear as lines on standard error. Assignors named as `module:Class` are found in the current
directory too, because their authors usually work there.
"""

import contextlib
import logging
import math
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.common.commands import ConnectionOption, Unhealthy
from muster.cli.common.output import notice

if TYPE_CHECKING:
    from muster.client import Admin


# --command-config
# ----------------

DEFAULT_BOOTSTRAP = "127.0.0.1:9290"
BOOTSTRAP = "bootstrap.servers"
ENVIRONMENT = "MUSTER_CONFIG"
_KEPT = "muster.command_config"
MAX_FILE_BYTES = 1 << 20


def _keep(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    ctx.meta[_KEPT] = read_properties(path)


command_config_option = click.option(
    "--command-config",
    cls=ConnectionOption,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    envvar=ENVIRONMENT,
    show_envvar=True,
    is_eager=True,
    expose_value=False,
    callback=_keep,
    help="Read client properties (TLS, token, bootstrap.servers) from this file.",
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
            raise click.UsageError(f"{path}, line {number} is not a setting; expected key=value")
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


# Whether a node listens
# ----------------------

PATIENCE_S = 1.0
"""For one look. Who does not answer sooner may be far away or busy: the command itself finds out."""


def require_listening_node(servers: Iterable[str]) -> None:
    """Raises Unhealthy when every one of these HOST:PORT refuses a connection, or has a name that nobody knows."""
    refusals = []
    for server in servers:
        refusal = connection_refusal(server)
        if refusal is None:
            return
        refusals.append(f"{server} {refusal}")
    if refusals:
        raise Unhealthy(
            ", ".join(refusals),
            "expected a node that serves",
            "start one (muster serve), wait for one (muster health --timeout 60), or name another with --bootstrap",
        )


def speaks_tls(server: str) -> bool:
    """Whether the port greets back in TLS. Nothing is verified, and nothing sent: this is a guess at what is wrong."""
    import ssl

    host, _, port = server.strip().rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S) as connection:
            connection.settimeout(PATIENCE_S)
            context.wrap_socket(connection).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # It refused in its words: it wants a certificate, perhaps.
    except (OSError, ValueError):
        return False
    return True


def connection_refusal(server: str) -> str | None:
    """Why nothing can be had there. None where somebody listens, or where that is not known so soon."""
    host, _, port = server.strip().rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        return None  # no address; the client says so in its own words
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S).close()
    except ConnectionRefusedError:
        return "refuses connections: nothing listens there"
    except socket.gaierror as error:
        return f"cannot be found: {error.strerror}"
    except OSError:
        return None
    return None


# Warnings of clients
# -------------------

CLIENTS = logging.getLogger("muster.client")


class ClientNoticeHandler(logging.Handler):
    """Prints as every other notice is printed."""

    def emit(self, record: logging.LogRecord) -> None:
        # With standard error closed (our reader went away) there is nobody to tell, and the client works on.
        with contextlib.suppress(OSError, ValueError):
            notice(self.format(record))


def show_client_warnings() -> None:
    """Warnings and worse; saying it again is harmless."""
    if not any(isinstance(handler, ClientNoticeHandler) for handler in CLIENTS.handlers):
        CLIENTS.addHandler(ClientNoticeHandler(logging.WARNING))


# Options
# -------

PATIENCE = "default.api.timeout.ms"
ONE_SHOT_PATIENCE_MS = 10_000
"""default.api.timeout.ms of commands that ask once: somebody sits in front of them."""
INT_MAX = 2**31 - 1
COUNT = click.IntRange(1, INT_MAX)
"""A number that travels as an int32."""


class NumberRange(click.FloatRange):
    """A range of numbers, which "nan" and "inf" are not in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number; expected one in the range {self._describe_range()}.", param, ctx)
        return number


UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Duration(click.ParamType[int]):
    """30s, 15m, 2h, 1d: milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d{1,9})(ms|s|m|h|d)", str(value).strip())
        if found is None or not int(found[1]):
            self.fail(f"{value!r} is not a time; expected a number and ms, s, m, h or d, such as 15m", param, ctx)
        return int(found[1]) * UNITS_MS[found[2]]


FORMATS = ("table", "wide", "json", "yaml", "csv")

Function = TypeVar("Function", bound=Callable[..., Any])


def key_values(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """key=value pairs as a dict; the last one of a key wins."""
    pairs: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{text!r} is not a setting; expected key=value", ctx, param)
        pairs[key.strip()] = value.strip()
    return pairs


def repeated_option(*names: str, help: str, **more: Any) -> Callable[[Function], Function]:
    """An option that may be given several times, as its help says behind `help`."""
    return click.option(*names, multiple=True, help=f"{help}; may be repeated.", **more)


def seconds_option(
    name: str, default: float, help: str, *, least: float = 0.01, most: float = 3600
) -> Callable[[Function], Function]:
    return click.option(
        name, type=NumberRange(least, most), default=default, show_default=True, metavar="SECONDS", help=help
    )


set_option = repeated_option(
    "--set", "overrides", metavar="KEY=VALUE", callback=key_values, help="Set a property by its dotted name"
)


node_file_option = click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the node's settings from this properties file.",
)
announce_option = click.option(
    "--announce", is_flag=True, help="Print one JSON line with the address once the node answers."
)
until_eof_option = click.option(
    "--until-eof", is_flag=True, hidden=True, help="Drain when standard input ends; for parent processes."
)


def merge_file_and_options(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """What --command-config says, and --set on top of it."""
    return {**current_command_config(), **key_values(ctx, param, given)}


client_set_option = click.option(
    "--set",
    "overrides",
    cls=ConnectionOption,
    multiple=True,
    metavar="KEY=VALUE",
    callback=merge_file_and_options,
    help=f"Set a client property, such as default.api.timeout.ms ({ONE_SHOT_PATIENCE_MS} for most commands); "
    "may be repeated.",
)

_bootstrap_option = click.option(
    "--bootstrap",
    cls=ConnectionOption,
    metavar="HOST:PORT",
    default=current_bootstrap,
    show_default=f"$MUSTER_BOOTSTRAP or {DEFAULT_BOOTSTRAP}",
    help="Connect to this node.",
)


def bootstrap_option(function: Function) -> Function:
    """--bootstrap and --command-config: for a command that connects and takes no --set."""
    return _bootstrap_option(command_config_option(function))


output_option = click.option(
    "-o",
    "--output",
    "style",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="Output format; wide adds columns.",
)


def client_options(function: Function) -> Function:
    """--bootstrap, --command-config and --set, as `bootstrap` and `overrides`, which has what the file says too."""
    return bootstrap_option(client_set_option(function))


def client_properties(bootstrap: str, overrides: dict[str, str], **defaults: object) -> dict[str, object]:
    """A client's configuration: our defaults (snake_case), then --bootstrap, then --set, which wins.

    From here on what clients have to say goes to standard error.
    """

    show_client_warnings()
    given: dict[str, object] = {name.replace("_", "."): value for name, value in defaults.items() if value is not None}
    return {"client.id": "muster-cli", **given, "bootstrap.servers": bootstrap, **overrides}


def connect_admin(bootstrap: str, overrides: dict[str, str]) -> "Admin":
    """An admin client for a command's options, which gives up soon; use it in a `with`."""
    from muster.client import Admin

    admin = Admin(client_properties(bootstrap, overrides, default_api_timeout_ms=ONE_SHOT_PATIENCE_MS))
    require_listener(bootstrap, overrides)
    return admin


def require_listener(bootstrap: str, overrides: dict[str, str]) -> None:
    """Raises Unhealthy when nothing does at --bootstrap, unless it was said how long to try.

    To be called once a client has looked at its properties, and before it calls anybody.
    """

    if PATIENCE not in overrides and overrides.get("group.protocol") != "zookeeper":
        require_listening_node(overrides.get("bootstrap.servers", bootstrap).split(","))


# Plugins in the current directory
# --------------------------------

HERE = ""
"""How Python's import path names the current directory, wherever that will be."""


def find_plugins_here() -> None:
    """Modules of the current directory can be imported; installed ones of the same name go first."""
    if HERE not in sys.path:
        sys.path.append(HERE)
