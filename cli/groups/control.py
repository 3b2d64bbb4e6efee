"""What operators change about one group: settings, overrides such as freeze and drain, canaries, and removals.

Settings of a group persist until they are unset. Overrides (freeze, deploy, drains, pins) end by time, by `resume`,
or when their purpose is met. A canary lets another assignor plan the group for a while and rolls back when a guard
trips (docs/control.md).
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.commands import CommandError, Exit
from muster.cli.common.options import COUNT, Duration, client_options, connect_admin, output_option, repeated_option
from muster.cli.common.output import columns, notice, print_document, print_rows
from muster.cli.groups.arguments import (
    for_option,
    group_argument,
    override_options,
    print_moves,
    refuse_watched,
    report_overrides,
)
from muster.coordinator.observability.views.controls import guard_row, sentence
from muster.coordinator.observability.views.formatting import plural

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.client.described import Canary, GroupSettings


# `settings`, `set` and `unset`
# -----------------------------

GROUP_SETTING_COLUMNS = columns("GROUP, VERSION, SETTING:cyan, VALUE, DEFAULT, ALLOWED+, MEANING+, SUSPENDED+")

version_option = click.option(
    "--version",
    type=click.IntRange(0),
    metavar="N",
    help="Only if the settings are at this version (0: none); exit code 5 otherwise.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Check and show the result, and change nothing.")
reason_option = click.option("--reason", default="", help="Reason, kept in the ledger.")


@click.command()
@client_options
@output_option
@group_argument
def settings(bootstrap: str, overrides: dict[str, str], style: str, group: str) -> None:
    """Show the settings of GROUP and the defaults of all others.

    Also shows their version; with -o wide, what each setting means.
    """
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
    """Set a setting of GROUP, whether or not the group exists yet.

    A plan made by the coordinator is made again. `muster groups settings GROUP -o wide` lists the settings and their
    values.

      muster groups set orders 'assignor.options={"member.capacity": {"big-1": 2.0}}'
    """
    wanted: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{pair!r} is not a setting; expected KEY=VALUE")
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
    """Reset settings of GROUP to their defaults."""
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


# Overrides: `freeze`, `deploy`, `drain`, `pin`, and what ends them
# ------------------------------------------------------------------

DRAIN_POLL_S = 0.5

Decorator = Callable[[Any], Any]


def override_command(
    name: str, method: str, meaning: str, *options: Decorator, arguments: Sequence[Decorator] = ()
) -> click.Command:
    """A command that makes one call of the admin client, and reports the overrides that are active then.

    method: of `Admin`, whose parameters the options and arguments are named after. arguments: those behind GROUP.
    """

    def run(bootstrap: str, overrides: dict[str, str], style: str, group: str, **given: Any) -> None:
        words = {word: value for word, value in given.items() if value is not None}
        wait = words.pop("wait", False)
        with connect_admin(bootstrap, overrides) as admin:
            held = getattr(admin, method)(group, **words)
            report_overrides(group, held, style, admin, dry_run=words["validate_only"])
            if wait and not words["validate_only"]:
                follow_drain(admin, group, words["name"], words["by"])

    for decorate in reversed((client_options, output_option, override_options, *options, group_argument, *arguments)):
        run = decorate(run)
    return click.command(name, help=meaning)(run)


def follow_drain(admin: "Admin", group: str, member: str, by: str) -> None:
    """Until nothing is left, or it is drained no longer."""
    before = None
    while True:
        found = next((d for d in admin.group_holds(group).drains if (d.by, d.name) == (by, member)), None)
        if found is None:
            notice("It is no longer drained.")
            return
        if found.left != before:
            notice("Nothing is left." if not found.left else f"{found.left} partitions are left.")
        if not found.left:
            return
        before = found.left
        time.sleep(DRAIN_POLL_S)


def parse_topic_partition(ctx: click.Context, param: click.Parameter, text: str) -> None:
    """TOPIC:NUMBER, kept as `topic` and `partition`."""
    topic, colon, number = text.rpartition(":")
    if not topic or not colon or not number.isdigit():
        raise click.BadParameter(f"{text!r} is not a partition; expected TOPIC:NUMBER, such as orders:3", ctx, param)
    ctx.params |= {"topic": topic, "partition": int(number)}


by_option = click.option(
    "--by",
    type=click.Choice(["member-id", "client-id", "instance", "host"]),
    default="member-id",
    show_default=True,
    help="What MEMBER names. By client-id, instance or host, it stays drained across restarts.",
)
member_argument = click.argument("name", metavar="MEMBER")
partition_argument = click.argument("place", metavar="TOPIC:P", callback=parse_topic_partition, expose_value=False)

freeze = override_command(
    "freeze",
    "freeze_group",
    """Freeze GROUP: live members keep their partitions, new members get none.

    `muster groups resume` ends it.
    """,
    for_option,
    click.option(
        "--orphans",
        type=click.Choice(["give", "keep"]),
        default=None,
        help="Give partitions that lose their owner to the member with the least, or keep them unassigned. Where "
        "members make their own plans: keep only.",
    ),
)

deploy = override_command(
    "deploy",
    "deploy_group",
    """Keep the partitions of members of GROUP that restart.

    What a member leaves behind waits for the next member with the same client id.
    """,
    click.option("--expect", type=COUNT, required=True, metavar="N", help="How many members restart."),
    click.option(
        "--timeout",
        "--for",
        "for_ms",
        type=Duration(),
        default="15m",
        show_default=True,
        help="End it after this time at the latest.",
    ),
)

drain = override_command(
    "drain",
    "drain_member",
    """Move all partitions of MEMBER to other members of GROUP.

    MEMBER stays in the group without partitions. Partitions move as fast as move.budget allows (assignor.options or
    balance.move.budget of the group), each by a safe handoff.
    """,
    for_option,
    by_option,
    click.option("--wait", is_flag=True, help="Show progress until no partition is left."),
    arguments=[member_argument],
)

undrain = override_command(
    "undrain",
    "undrain_member",
    "Let MEMBER of GROUP own partitions again.",
    by_option,
    arguments=[member_argument],
)

pin = override_command(
    "pin",
    "pin_partition",
    """Pin a partition of GROUP to MEMBER.

    MEMBER is an instance id, a client id or a member id. The pin lasts as long as the member lives.
    """,
    for_option,
    arguments=[partition_argument, member_argument],
)

unpin = override_command(
    "unpin",
    "unpin_partition",
    """Unpin a partition of GROUP.

    It stays where it is until a plan moves it.
    """,
    arguments=[partition_argument],
)

resume = override_command(
    "resume",
    "resume_group",
    """End all overrides of GROUP: freeze, deploy, drains and pins.

    One rebalance follows.
    """,
    click.option("--only", "what", type=click.Choice(["freeze", "deploy"]), default=None, help="End only this."),
)


# `canary`, `promote` and `rollback`
# ----------------------------------

GUARD_COLUMNS = columns("GUARD:cyan, BEFORE=baseline, NOW=figure, COUNTS")


@click.command()
@client_options
@output_option
@click.option("--assignor", metavar="NAME[{JSON}]", help="Candidate and its options; without it, show the canary.")
@click.option("--for", "for_ms", type=Duration(), metavar="TIME", help="How long to try it: 90s, 30m, 2h.")
@repeated_option("--guard", "guards", metavar="EXPR", help="Replace the default guards")
@click.option(
    "--lag-floor", type=click.IntRange(0), metavar="N", help="Lag below this trips no guard; 1000 by default."
)
@click.option(
    "--then",
    type=click.Choice(["promote", "wait"]),
    default="promote",
    show_default=True,
    help="At the end, promote the candidate, or wait for promote or rollback.",
)
@click.option("--dry-run", is_flag=True, help="Show its guards with figures, and change nothing.")
@reason_option
@group_argument
def canary(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    assignor: str | None,
    for_ms: int | None,
    guards: tuple[str, ...],
    lag_floor: int | None,
    then: str,
    dry_run: bool,
    reason: str,
    group: str,
) -> None:
    """Try another assignor on GROUP for a while.

    It makes the group's real plans. A guard that trips rolls it back immediately. A guard is FIGURE > NUMBER, or >
    NUMBERx for a multiple of the group's own last hour: plan-failures; moves and unowned (partition-seconds), per
    rebalance; lag in total, in three samples in a row; expired, members lost to session or poll timeout. Defaults:
    plan-failures > 0, unowned > 2x, lag > 2x, expired > 0.

      muster groups canary orders --assignor 'lag-sticky{"move.budget": 20}' --for 30m
    """
    if assignor is None:
        if for_ms is not None or guards or dry_run or lag_floor is not None:
            raise click.UsageError("which assignor is to be tried? expected --assignor NAME")
        with connect_admin(bootstrap, overrides) as admin:
            report_canary(group, admin.canary(group), style)
        return
    if for_ms is None:
        raise click.UsageError("a canary needs a time; expected --for TIME, such as --for 30m")
    with connect_admin(bootstrap, overrides) as admin:
        begun = admin.start_canary(
            group,
            assignor,
            for_ms,
            guards=guards,
            lag_floor=lag_floor,
            wait=then == "wait",
            validate_only=dry_run,
            reason=reason,
        )
        report_canary(group, begun, style)
        if dry_run and style in ("table", "wide"):
            moves = begun.moves
            notice("What moves is unknown." if moves is None else f"{plural(len(moves), 'partition')} would move.")
            if moves:
                print_moves(group, moves, style, admin)
    if dry_run:
        notice("Nothing was changed; leave out --dry-run to do it.")


@click.command()
@client_options
@output_option
@reason_option
@group_argument
def promote(bootstrap: str, overrides: dict[str, str], style: str, reason: str, group: str) -> None:
    """Make the canary of GROUP its assignor."""
    with connect_admin(bootstrap, overrides) as admin:
        report_canary(group, admin.end_canary(group, promote=True, reason=reason), style)


@click.command()
@client_options
@output_option
@reason_option
@group_argument
def rollback(bootstrap: str, overrides: dict[str, str], style: str, reason: str, group: str) -> None:
    """End the canary of GROUP and return to the former assignor."""
    with connect_admin(bootstrap, overrides) as admin:
        report_canary(group, admin.end_canary(group, promote=False, reason=reason), style)


def report_canary(group: str, found: "Canary | None", style: str) -> None:
    """How it goes in a sentence on standard error, and its guards in a table."""
    if style in ("json", "yaml"):
        print_document(None if found is None else asdict(found), style)
        return
    if found is None:
        notice(f"group '{group}' never had a canary; muster groups canary {group} --assignor NAME --for 30m begins one")
        return
    notice(sentence(found))
    print_rows([guard_row(asdict(guard)) for guard in found.guards], GUARD_COLUMNS, style)


# `remove-members`
# ----------------

REMOVAL_COLUMNS = columns("GROUP, CONSUMER-ID:cyan, GROUP-INSTANCE-ID, #PARTITIONS=partitions")


@click.command("remove-members")
@client_options
@output_option
@repeated_option("--member", "members", metavar="ID", help="Remove this member id")
@repeated_option("--instance", "instances", metavar="ID", help="Remove this group.instance.id")
@click.option("--all", "everyone", is_flag=True, help="Remove all members.")
@click.option("--reason", default="removed by an operator", show_default=True, help="Reason, kept in the ledger.")
@click.option("--execute/--dry-run", default=False, help="Remove them; without it, only show which would be removed.")
@group_argument
def remove_members(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    members: tuple[str, ...],
    instances: tuple[str, ...],
    everyone: bool,
    reason: str,
    execute: bool,
    group: str,
) -> None:
    """Remove members of GROUP; other members get their partitions.

    A removed member that is still running notices it, and joins again.
    """
    if everyone == bool(members or instances):
        raise click.UsageError("who shall go is not said, or said twice; expected --member, --instance or --all")
    with connect_admin(bootstrap, overrides) as admin:
        found = admin.describe_group(group)
        refuse_watched(found)
        going = [m for m in found.members if everyone or m.member_id in members or m.group_instance_id in instances]
        known = {m.member_id for m in going} | {m.group_instance_id for m in going}
        strangers = [name for name in (*members, *instances) if name not in known]
        if strangers:
            raise CommandError(
                f"group '{group}' has no member {', '.join(map(repr, strangers))}",
                remedy=f"`muster groups members {group}` lists those it has",
                code=Exit.NOT_FOUND,
            )
        if execute and going:
            admin.remove_members(group, members=[m.member_id for m in going], reason=reason)
    if not execute:
        notice("Nobody was removed; add --execute to do it.")
    rows = [
        {
            "group": group,
            "consumer_id": m.member_id,
            "group_instance_id": m.group_instance_id,
            "partitions": len(m.assignment),
        }
        for m in going
    ]
    print_rows(rows, REMOVAL_COLUMNS, style)
