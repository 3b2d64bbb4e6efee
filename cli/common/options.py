"""Options that many commands share."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.common.command_config import (
    DEFAULT_BOOTSTRAP,
    command_config_option,
    current_bootstrap,
    current_command_config,
)

if TYPE_CHECKING:
    from muster.client import Admin

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
            self.fail(f"{value!r} is no number; expected one in the range {self._describe_range()}.", param, ctx)
        return number


FORMATS = ("table", "wide", "json", "yaml", "csv")

Function = TypeVar("Function", bound=Callable[..., Any])


def key_values(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """key=value pairs as a dict; the last one of a key wins."""
    pairs: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{text!r} is no setting; expected key=value", ctx, param)
        pairs[key.strip()] = value.strip()
    return pairs


set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    callback=key_values,
    help="Set any property by its dotted name; may be repeated.",
)


def merge_file_and_options(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """What --command-config says, and --set on top of it."""
    return {**current_command_config(), **key_values(ctx, param, given)}


client_set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    callback=merge_file_and_options,
    help="Set any client property by its dotted name, such as default.api.timeout.ms, how long to try "
    f"({ONE_SHOT_PATIENCE_MS} where one answer is wanted); may be repeated.",
)

_bootstrap_option = click.option(
    "--bootstrap",
    metavar="HOST:PORT",
    default=current_bootstrap,
    show_default=f"$MUSTER_BOOTSTRAP or {DEFAULT_BOOTSTRAP}",
    help="The node to talk to.",
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
    help="How to print; wide adds columns.",
)


def client_options(function: Function) -> Function:
    """--bootstrap, --command-config and --set, as `bootstrap` and `overrides`, which has what the file says too."""
    return bootstrap_option(client_set_option(function))


def client_properties(bootstrap: str, overrides: dict[str, str], **defaults: object) -> dict[str, object]:
    """A client's configuration: our defaults (snake_case), then --bootstrap, then --set, which wins.

    From here on what clients have to say goes to standard error.
    """
    from muster.cli.common.notices import show_client_warnings

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
    from muster.cli.common.reach import require_listening_node

    if PATIENCE not in overrides and overrides.get("group.protocol") != "zookeeper":
        require_listening_node(overrides.get("bootstrap.servers", bootstrap).split(","))
