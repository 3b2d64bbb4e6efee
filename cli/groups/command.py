"""`muster consumer-groups`: what fingers and scripts know from `kafka-consumer-groups.sh` works as it is."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.command_config import command_config_option, current_command_config

if TYPE_CHECKING:
    from muster.client import Admin

ACTIONS = ("list", "describe", "delete", "reset_offsets", "delete_offsets")
POSITIONS = (
    "to_datetime", "by_duration", "to_earliest", "to_latest", "to_current", "to_offset", "shift_by", "from_file",
)  # fmt: skip
VIEWS = ("offsets", "members", "state")
EVERY = "*"
"""`--state` without a value."""

Options = Mapping[str, Any]


def make_flag(name: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(name, is_flag=True, help=text)


@click.command("consumer-groups")
@click.option("--bootstrap-server", required=True, metavar="HOST:PORT", help="The node to talk to.")
@command_config_option
@click.option("--timeout", type=click.IntRange(1, 2**31 - 1), default=5_000, show_default=True, help="Milliseconds.")
@make_flag("--list", "List groups.")
@make_flag("--describe", "Show groups: --offsets (the default), --members or --state.")
@make_flag("--delete", "Delete groups that have no members.")
@make_flag("--reset-offsets", "Move the positions of inactive groups.")
@make_flag("--delete-offsets", "Forget the positions of a group in topics.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="May be repeated.")
@make_flag("--all-groups", "Every group there is.")
@make_flag("--offsets", "Positions and lag by partition.")
@make_flag("--members", "Who is in the group.")
@click.option(
    "--state", is_flag=False, flag_value=EVERY, metavar="[STATES]",
    help="With --describe: the state. With --list: show states, or only these (by commas).",
)  # fmt: skip
@click.option(
    "--type", "type_", is_flag=False, flag_value=EVERY, metavar="[TYPES]",
    help="With --list: show types, or only these (by commas).",
)  # fmt: skip
@make_flag("--verbose", "With --members: what each owns.")
@click.option("--topic", "topics", multiple=True, metavar="T[:P,P]", help="These partitions; may be repeated.")
@make_flag("--all-topics", "Every partition that the group has committed.")
@click.option(
    "--to-datetime", metavar="YYYY-MM-DDTHH:mm:SS.sss", help="The first offset of that time (UTC, or +hh:mm)."
)
@click.option("--by-duration", metavar="PnDTnHnMnS", help="The first offset of that long ago.")
@make_flag("--to-earliest", "The beginning of the log.")
@make_flag("--to-latest", "The end of the log.")
@make_flag("--to-current", "Where the group is.")
@click.option("--to-offset", type=click.IntRange(0, 2**63 - 1), metavar="N", help="This offset.")
@click.option("--shift-by", type=click.IntRange(-(2**63), 2**63 - 1), metavar="N", help="That many on, or back.")
@click.option(
    "--from-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="CSV as --export writes it.",
)  # fmt: skip
@make_flag("--dry-run", "Only show what would be done (the default).")
@make_flag("--execute", "Do it.")
@make_flag("--export", "Print CSV: topic,partition,offset; with several groups group,topic,partition,offset.")
def consumer_groups(bootstrap_server: str, timeout: int, **options: Any) -> None:
    """Manage consumer groups with the flags and columns of Kafka's own tool."""
    action = check_options(options)
    from muster.cli.common.options import client_properties
    from muster.client import Admin

    given = client_properties(bootstrap_server, current_command_config(), default_api_timeout_ms=timeout)
    with Admin(given) as admin:
        run_action(action, admin, options)


def run_action(action: str, admin: "Admin", options: Options) -> None:
    from muster.cli.groups import changes, views

    if action == "list":
        views.print_groups(admin, options["state"], options["type_"])
        return
    groups = choose_groups(admin, options)
    if action == "describe":
        view = next((name for name in VIEWS if options[name]), "offsets")
        views.print_descriptions(admin, groups, view, verbose=options["verbose"])
    elif action == "delete":
        changes.delete_groups(admin, groups)
    elif action == "delete_offsets":
        changes.delete_offsets(admin, groups, options["topics"])
    else:
        changes.reset_offsets(admin, groups, options)


def choose_groups(admin: "Admin", options: Options) -> list[str]:
    if options["all_groups"]:
        return list(dict.fromkeys(group.group_id for group in admin.list_groups()))
    return list(dict.fromkeys(options["groups"]))


def check_options(options: Options) -> str:
    """The one action; click.UsageError for combinations that Kafka's tool refuses too."""
    actions = [action for action in ACTIONS if options[action]]
    if len(actions) != 1:
        known = ", ".join(dashed(action) for action in ACTIONS)
        raise click.UsageError(f"Command must include exactly one action: {known}")
    action = actions[0]
    if action != "list":
        require_one_of(options, ("groups", "all_groups"), f"{dashed(action)} needs --group or --all-groups")
    if action == "describe" and sum(bool(options[view]) for view in VIEWS) > 1:
        raise click.UsageError("--describe takes at most one of --offsets, --members, --state")
    if action == "describe" and options["state"] not in (None, EVERY):
        raise click.UsageError(f"--describe --state takes no value; got {options['state']!r}")
    if action == "delete_offsets" and (len(options["groups"]) != 1 or not options["topics"]):
        raise click.UsageError("--delete-offsets needs one --group and at least one --topic")
    if action == "reset_offsets":
        check_reset(options)
    return action


def check_reset(options: Options) -> None:
    require_one_of(options, POSITIONS, f"--reset-offsets needs exactly one of {', '.join(map(dashed, POSITIONS))}")
    if not options["from_file"]:
        require_one_of(options, ("topics", "all_topics"), "--reset-offsets needs --topic or --all-topics, not both")
    if options["execute"] and options["dry_run"]:
        raise click.UsageError("--execute and --dry-run exclude each other")


def require_one_of(options: Options, names: tuple[str, ...], otherwise: str) -> None:
    # A position of 0 is one, too.
    if sum(options[name] not in (None, False, ()) for name in names) != 1:
        raise click.UsageError(otherwise)


def dashed(name: str) -> str:
    return "--" + name.replace("_", "-")
