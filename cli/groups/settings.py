"""`muster groups settings`, `set` and `unset`: what an operator tells the coordinator about one group."""

import json
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import Column, notice, print_rows
from muster.cli.groups.which import group_argument

if TYPE_CHECKING:
    from muster.client.described import GroupSettings

GROUP_SETTING_COLUMNS = [
    Column("GROUP", "group"),
    Column("VERSION", "version"),
    Column("SETTING", "setting", style="cyan"),
    Column("VALUE", "value"),
    Column("DEFAULT", "default"),
    Column("ALLOWED", "allowed", wide=True),
    Column("MEANING", "meaning", wide=True),
    Column("SUSPENDED", "suspended", wide=True),
]

version_option = click.option(
    "--version",
    type=click.IntRange(0),
    metavar="N",
    help="Only if the settings are at this version; 0: the group has none. Exit code 5 when they are not.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Check, show what would be, and change nothing.")
reason_option = click.option("--reason", default="", help="What the ledger says of it.")


@click.command()
@client_options
@output_option
@group_argument
def settings(bootstrap: str, overrides: dict[str, str], style: str, group: str) -> None:
    """Show what is set for GROUP, at which version, and what holds of all else; wide says what each is."""
    from muster.coordinator.observability.views.settings import group_setting_rows

    with connect_admin(bootstrap, overrides) as admin:
        found = admin.group_settings(group)
    print_rows(
        group_setting_rows(group, found.version, found.values, found.defaults, found.suspended),
        GROUP_SETTING_COLUMNS,
        style,
    )
    warn_of_suspended_settings(group, found)
    if not found.values:
        notice(f"nothing is set for group {group!r}")


@click.command("set")
@client_options
@output_option
@version_option
@dry_run_option
@reason_option
@group_argument
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
def set_(
    bootstrap: str, overrides: dict[str, str], style: str, group: str, pairs: tuple[str, ...], **asked: Any
) -> None:
    """Set something for GROUP, whether or not it is there yet; a plan of the coordinator's is made anew.

    `muster groups settings GROUP -o wide` tells which settings there are, and what each may be.

      muster groups set orders 'assignor.options={"member.capacity": {"big-1": 2.0}}'
    """
    wanted: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{pair!r} is no setting; expected KEY=VALUE")
        if name in wanted:
            raise click.UsageError(f"{name!r} is set twice; set it once")
        wanted[name] = parse_setting(name, text)
    alter_settings(bootstrap, overrides, style, group, set=wanted, **asked)


@click.command()
@client_options
@output_option
@version_option
@dry_run_option
@reason_option
@group_argument
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
def unset(
    bootstrap: str, overrides: dict[str, str], style: str, group: str, keys: tuple[str, ...], **asked: Any
) -> None:
    """Unset something for GROUP: the default counts again."""
    alter_settings(bootstrap, overrides, style, group, unset=keys, **asked)


def alter_settings(bootstrap: str, overrides: dict[str, str], style: str, group: str, **asked: Any) -> None:
    """Prints what is set then, and says on stderr what has changed, or would."""
    from muster.coordinator.observability.views.settings import group_setting_rows

    version, dry_run = asked.pop("version"), asked.pop("dry_run")
    with connect_admin(bootstrap, overrides) as admin:
        before = admin.group_settings(group)
        found = admin.alter_group_settings(group, expected_version=version, validate_only=dry_run, **asked)
    print_rows(
        group_setting_rows(group, found.version, found.values, {}, found.suspended),
        [*GROUP_SETTING_COLUMNS[:4], GROUP_SETTING_COLUMNS[-1]],
        style,
    )
    warn_of_suspended_settings(group, found)
    for name in sorted(before.values.keys() | found.values.keys()):
        if (old := format_setting(before, name)) != (new := format_setting(found, name)):
            notice(f"{name} {'would change' if dry_run else 'changed'}: {old} -> {new}")
    if before.values == found.values:
        notice("nothing changes" if dry_run else "nothing has changed")
    if not found.values:
        notice(f"nothing {'would be' if dry_run else 'is'} set for group {group!r}")
    if dry_run:
        notice("Nothing was changed; leave out --dry-run to do it.")


def warn_of_suspended_settings(group: str, found: "GroupSettings") -> None:
    """On standard error: it is set, and counts for nothing."""
    if found.suspended:
        notice(f"Warning: assignor of group {group!r} is suspended until it is set again: {found.suspended}.")


def format_setting(settings: "GroupSettings", name: str) -> str:
    """A value, or what holds without one."""
    if name in settings.values:
        return json.dumps(settings.values[name], sort_keys=True)
    return f"unset (default {json.dumps(settings.defaults[name])})" if name in settings.defaults else "unset"


def parse_setting(name: str, text: str) -> Any:
    """As the setting has it; of one that only the node knows, JSON or else text."""
    from muster.coordinator.core.control.settings_table import SETTINGS

    if name in SETTINGS:
        try:
            return SETTINGS[name].shape.of_text(text)
        except ValueError as error:
            raise click.UsageError(f"{name} {error}") from None
    try:
        return json.loads(text)
    except ValueError:
        return text
