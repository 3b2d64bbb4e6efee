"""`muster groups reset-offsets`, `migrate-offsets`, `delete-offsets` and `delete`: positions of a group.

Positions can be set only while the group has no members. `migrate-offsets` copies positions out of ZooKeeper, or
back into it.
"""

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, cast

import click

from muster.assignors.api import TopicPartition
from muster.cli.common.commands import CommandError, Exit
from muster.cli.common.options import client_options, connect_admin, output_option, repeated_option
from muster.cli.common.output import columns, notice, print_rows
from muster.cli.groups.arguments import group_argument, reason_option, refuse_watched, resolve_partitions
from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.observability.views.topics import GRAMMAR, Position, parse_position, target_of

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.client.types import IsolationLevel


# `reset-offsets`
# ---------------

EARLIEST, LATEST = -2, -1
RESET_COLUMNS = columns("GROUP, TOPIC:cyan, PARTITION, CURRENT-OFFSET, NEW-OFFSET")


def position_option(ctx: click.Context, param: click.Parameter, given: str | None) -> Position:
    if given is None:
        raise click.UsageError(f"no position is given; use --to: {GRAMMAR}", ctx)
    try:
        return parse_position(given, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command("reset-offsets")
@client_options
@output_option
@repeated_option("--topic", "topics", metavar="T[:P,P]", help="Topic, with partitions if not all of them")
@click.option("--all-topics", is_flag=True, help="All partitions that the group has committed.")
@click.option(
    "--to",
    "position",
    callback=position_option,
    metavar="WHERE",
    help="New position: start, end, current, N, +N, -N, @-1h or @TIME (local unless it ends in Z or +HH:MM).",
)
@click.option("--execute/--dry-run", default=False, help="Apply the change; without it, only show what would change.")
@reason_option
@group_argument
def reset_offsets(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    topics: tuple[str, ...],
    all_topics: bool,
    position: Position,
    execute: bool,
    reason: str,
    group: str,
) -> None:
    """Move the positions of GROUP, which must have no members."""
    if position.kind == "time":
        notice(f"Looking for the first records at or after {format_with_zone(position.value)}.")
    if bool(topics) == all_topics:
        raise click.UsageError("which partitions is not said, or said twice; expected --topic or --all-topics")
    with connect_admin(bootstrap, overrides) as admin:
        require_inactive(admin, group)
        current = {(tp.topic, tp.partition): at.offset for tp, at in admin.group_offsets(group).items()}
        chosen = sorted(current) if all_topics else resolve_partitions(admin, topics)
        target = find_targets(admin, dict.fromkeys(chosen, position), current)
        check_any_moved({group: target})
        if execute and target:
            admin.alter_offsets(group, target, reason)
    if not execute:
        notice("Nothing was changed; add --execute to do it.")
    rows = [
        {"group": group, "topic": tp[0], "partition": tp[1], "new_offset": offset, "current_offset": current.get(tp)}
        for tp, offset in target.items()
    ]
    print_rows(rows, RESET_COLUMNS, style)


def format_with_zone(epoch_ms: int) -> str:
    """A moment as people read it here, and how far that is from UTC."""
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).astimezone().isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms} ms since 1970"


def require_inactive(admin: "Admin", group: str) -> None:
    from muster.client.errors import GroupNotFound

    try:
        found = admin.describe_group(group)
    except GroupNotFound:
        return  # Positions may be set before the first member ever comes.
    refuse_watched(found)
    if found.members:
        raise CommandError(
            f"Assignments can only be reset if the group '{group}' is inactive, but the current state is {found.state}",
            "expected a group without members",
            f"stop its {len(found.members)} member(s) first (muster groups members {group})",
            code=Exit.CONFLICT,
        )


def find_targets(
    admin: "Admin",
    wanted: Mapping[TopicPartition, Position],
    current: Mapping[TopicPartition, int],
    isolation: "IsolationLevel" = "read_uncommitted",
) -> dict[TopicPartition, int]:
    """The new offset of each partition, held within what the log has for such a reader, with a warning."""
    timed = {tp: position.value for tp, position in wanted.items() if position.kind == "time"}
    starts = fetch_offsets_at(admin, dict.fromkeys(wanted, EARLIEST), isolation)
    ends = fetch_offsets_at(admin, dict.fromkeys(wanted, LATEST), isolation)
    times = fetch_offsets_at(admin, timed, isolation)
    result: dict[TopicPartition, int] = {}
    for tp, position in wanted.items():
        found = target_of(position, current.get(tp), starts[tp], ends[tp], times.get(tp, -1))
        if found is None:
            notice(f"Warning: {tp[0]}-{tp[1]} has no committed offset to start from; it is left alone.")
            continue
        result[tp] = found.offset
        if found.offset != found.wanted:
            span = f"offsets {starts[tp]} to {ends[tp]}"
            notice(f"Warning: {tp[0]}-{tp[1]} has {span}; {found.wanted} becomes {found.offset}.")
    return result


def check_any_moved(plans: Mapping[str, Mapping[TopicPartition, int]]) -> None:
    """Raises CommandError where no group has a position to move: a script would take it for done."""
    idle = [group for group, plan in plans.items() if not plan]
    if len(idle) == len(plans):
        raise CommandError(
            f"No position was moved: {', '.join(idle)} has none in these partitions",
            "expected a group with committed positions there",
            "name partitions by --topic, and a position that needs none before it, such as the start or the end",
            code=Exit.NOT_FOUND,
        )


def fetch_offsets_at(
    admin: "Admin", times: Mapping[TopicPartition, int], isolation: "IsolationLevel" = "read_uncommitted"
) -> dict[TopicPartition, int]:
    if not times:
        return {}
    return {(tp.topic, tp.partition): at.offset for tp, at in admin.list_offsets(times, isolation).items()}


# `migrate-offsets`
# -----------------

DEFAULT_ZOOKEEPER = "127.0.0.1:2181"
MIGRATION_COLUMNS = columns("GROUP, TOPIC:cyan, PARTITION, NEW-OFFSET, CURRENT-OFFSET")


def connect_string(ctx: click.Context, param: click.Parameter, given: str) -> str:
    from muster.coordinator.config import parse_connect

    try:
        return str(parse_connect(given))
    except ValueError as error:
        raise click.BadParameter(f"{given!r}; expected {error}", ctx, param) from None


@click.command("migrate-offsets")
@client_options
@output_option
@click.option(
    "--to",
    type=click.Choice(["kafka", "zookeeper"]),
    required=True,
    help="Where positions are copied to: kafka (the coordinator) or zookeeper.",
)
@click.option(
    "--zookeeper",
    metavar="CONNECT",
    callback=connect_string,
    default=lambda: os.environ.get("MUSTER_ZOOKEEPER") or DEFAULT_ZOOKEEPER,
    show_default=f"$MUSTER_ZOOKEEPER or {DEFAULT_ZOOKEEPER}",
    help="Ensemble: HOST:PORT,HOST:PORT/CHROOT.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be copied, and change nothing.")
@group_argument
def migrate_offsets(
    bootstrap: str, overrides: dict[str, str], style: str, to: str, zookeeper: str, dry_run: bool, group: str
) -> None:
    """Copy positions of GROUP that the other store does not have yet.

    The group must have no members, or only members that commit to both stores (dual.commit.enabled=true).
    """
    from muster.client.errors import GroupNotEmpty

    store = cast(Literal["kafka", "zookeeper"], to)
    with connect_admin(bootstrap, overrides) as admin:
        try:
            moved = admin.migrate_offsets(group, store, zookeeper, dry_run)
        except GroupNotEmpty as error:
            raise CommandError(error.message, code=Exit.CONFLICT) from error
    rows = [
        {
            "group": group,
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "new_offset": each.offset,
            "current_offset": each.before,
        }
        for each in moved
    ]
    if dry_run:
        notice("Nothing was changed; leave out --dry-run to do it.")
    else:
        notice(f"{plural(len(rows), 'position')} copied to {to}.")
    print_rows(rows, MIGRATION_COLUMNS, style)


# `delete` and `delete-offsets`
# -----------------------------

DELETION_COLUMNS = columns("TOPIC:cyan, PARTITION, STATUS")


@click.command()
@client_options
@reason_option
@click.argument("groups", nargs=-1, required=True, metavar="GROUP...")
def delete(bootstrap: str, overrides: dict[str, str], reason: str, groups: tuple[str, ...]) -> None:
    """Delete groups that have no members, with their positions and ledger.

    `muster groups history` still shows who deleted a group, when, and its last positions.
    """
    with connect_admin(bootstrap, overrides) as admin:
        admin.delete_groups(groups, reason)
    named = ", ".join(f"'{group}'" for group in groups)
    notice(f"Deletion of requested consumer groups ({named}) was successful.")


@click.command("delete-offsets")
@client_options
@output_option
@repeated_option("--topic", "topics", required=True, metavar="T[:P,P]", help="Topic whose positions are deleted")
@reason_option
@group_argument
def delete_offsets(
    bootstrap: str, overrides: dict[str, str], style: str, topics: tuple[str, ...], reason: str, group: str
) -> None:
    """Delete positions of GROUP in topics that no member is subscribed to."""
    with connect_admin(bootstrap, overrides) as admin:
        admin.describe_group(group)
        partitions = resolve_partitions(admin, topics)
        admin.delete_offsets(group, partitions, reason)
    rows = [{"topic": topic, "partition": number, "status": "Successful"} for topic, number in partitions]
    print_rows(rows, DELETION_COLUMNS, style)
