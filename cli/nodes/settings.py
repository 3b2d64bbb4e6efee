"""`muster settings`: every setting of a node, what it is, what it would be by default, and one sentence each."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.command_config import current_command_config
from muster.cli.common.errors import CommandError, Exit
from muster.cli.common.options import FORMATS, bootstrap_option, connect_admin, key_values
from muster.cli.common.output import Column, print_rows

if TYPE_CHECKING:
    from muster.coordinator.config import Settings
    from muster.coordinator.observability.views.settings import NodeSettingRow

SETTING_COLUMNS = [
    Column("SETTING", "setting", style="cyan"),
    Column("VALUE", "value"),
    Column("DEFAULT", "default"),
    Column("ALLOWED", "allowed", wide=True),
    Column("MEANING", "meaning", wide=True),
]
WIDTH = 98


@click.command()
@bootstrap_option
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="With this properties file.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    callback=key_values,
    help="With this property, as for `muster serve`; may be repeated.",
)
@click.option("--running", is_flag=True, help="What the node at --bootstrap runs with, instead.")
@click.option("--changed", is_flag=True, help="Only what differs from its default.")
@click.option(
    "-o",
    "--output",
    "style",
    type=click.Choice([*FORMATS, "properties"]),
    default="table",
    show_default=True,
    help="How to print; wide adds what is allowed and what it means; properties is a file for --config.",
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def settings(
    bootstrap: str,
    file: Path | None,
    overrides: dict[str, str],
    running: bool,
    changed: bool,
    style: str,
    names: tuple[str, ...],
) -> None:
    """Show the settings of a node, all or those NAMEd (a part of a name will do: `muster settings session`).

    Without --running they are those that `muster serve` would start with, given the same --config and --set; what is
    wrong in them is said, and nothing is started.
    """
    if running and (file or overrides):
        raise click.UsageError("--running asks a node what it has; leave --config and --set out")
    rows = running_rows(bootstrap) if running else setting_rows(load_node_settings(file, overrides))
    rows = [row for row in find_settings(rows, names) if not changed or row["value"] != row["default"]]
    if style == "properties":
        click.echo(format_properties(rows), nl=False)
    else:
        print_rows(rows, SETTING_COLUMNS, style)


def load_node_settings(
    file: Path | None, overrides: Mapping[str, str], *, of_file: Callable[[str], bool] = lambda key: True
) -> "Settings":
    """Raises CommandError."""
    from muster.coordinator.config import SettingsError, load_settings

    try:
        return load_settings(file, overrides, of_file=of_file)
    except SettingsError as error:
        raise CommandError(str(error), code=Exit.USAGE) from error


def setting_rows(given: "Settings") -> "list[NodeSettingRow]":
    from muster.coordinator.config import known_settings
    from muster.coordinator.observability.views.settings import node_setting_row
    from muster.storage.wording import shown_setting

    of = {field.alias or name: name for name, field in type(given).model_fields.items()}
    return [node_setting_row(name, shown_setting(given, name, of[name]) or "") for name in known_settings()]


def running_rows(bootstrap: str) -> "list[NodeSettingRow]":
    """What a node says of itself."""
    from muster.coordinator.observability.views.settings import node_setting_row

    with connect_admin(bootstrap, current_command_config()) as admin:
        told = admin.describe_node()
    return [node_setting_row(name, value) for name, value in told.items()]


def find_settings(rows: "Sequence[NodeSettingRow]", words: Sequence[str]) -> "list[NodeSettingRow]":
    """The rows whose name is one of the words, or else has it in it. Raises CommandError for a word that none has."""
    if not words:
        return list(rows)
    names = [str(row["setting"]) for row in rows]
    chosen: set[str] = set()
    for word in words:
        hits = {word} if word in names else {name for name in names if word in name}
        if not hits:
            near = get_close_matches(word, names, n=1, cutoff=0.6)
            remedy = f"did you mean {near[0]}?" if near else "`muster settings` lists all there are"
            raise CommandError(f"no setting of a node is called {word!r}", remedy=remedy, code=Exit.NOT_FOUND)
        chosen |= hits
    return [row for row in rows if row["setting"] in chosen]


def format_properties(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for each in rows:
        lines += [f"# {line}" for line in wrap(f"{each['meaning']} Allowed: {each['allowed']}.", width=WIDTH)]
        lines += [f"{each['setting']}={each['value']}", ""]
    return "\n".join(lines)
