"""What the verbs have in common: their options, and how they say what they did."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.common.output import Column, notice, print_rows
from muster.coordinator.observability.views.holds import hold_rows

if TYPE_CHECKING:
    from muster.client.described import HoldResult

OVERRIDE_COLUMNS = [
    Column("GROUP", "group"),
    Column("VERSION", "version"),
    Column("HELD", "held", style="cyan"),
    Column("UNTIL", "until"),
    Column("UNTIL-MS", "until_ms", wide=True),
]

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Function = TypeVar("Function", bound=Callable[..., Any])


class Duration(click.ParamType[int]):
    """30s, 15m, 2h, 1d: milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d{1,9})(ms|s|m|h|d)", str(value).strip())
        if found is None or not int(found[1]):
            self.fail(f"{value!r} is no time; expected a number and ms, s, m, h or d, such as 15m", param, ctx)
        return int(found[1]) * UNITS_MS[found[2]]


for_option = click.option(
    "--for", "for_ms", type=Duration(), metavar="TIME", help="It ends by itself after so long: 90s, 15m, 2h."
)


def override_options(function: Function) -> Function:
    """--version, --dry-run and --reason, as `muster groups set` has them."""
    for option in (
        click.option("--reason", default="", help="What the ledger says of it."),
        click.option("--dry-run", is_flag=True, help="Say what it would do, with figures, and change nothing."),
        click.option(
            "--version",
            "expected_version",
            type=click.IntRange(0),
            metavar="N",
            help="Only if what is held is at this version; 0: nothing is. Exit code 5 when it is not.",
        ),
    ):
        function = option(function)
    return function


def override_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """The common options as the admin client wants them."""
    return {"validate_only": given.pop("dry_run"), **given}


def report_overrides(group: str, held: "HoldResult", style: str, *, dry_run: bool) -> None:
    """What was done in a sentence on standard error, and what is held now in a table."""
    notice(f"{held.sentence}.")
    rows = hold_rows(group, held.holds)
    if rows or style not in ("table", "wide"):
        print_rows(rows, OVERRIDE_COLUMNS, style)
    if dry_run:
        notice("Nothing was changed; leave out --dry-run to do it.")
