"""`muster groups reset-offsets`."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from muster.cli.common.errors import CommandError, Exit
from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import Column, notice, print_rows
from muster.cli.groups.which import group_argument, reason_option, resolve_partitions
from muster.coordinator.observability.views.positions import GRAMMAR, Position, parse_position, target_of

if TYPE_CHECKING:
    from muster.client import Admin

EARLIEST, LATEST = -2, -1
RESET_COLUMNS = [
    Column("GROUP", "group"),
    Column("TOPIC", "topic", style="cyan"),
    Column("PARTITION", "partition"),
    Column("CURRENT-OFFSET", "current_offset"),
    Column("NEW-OFFSET", "new_offset"),
]

TopicPartition = tuple[str, int]


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
@click.option("--topic", "topics", multiple=True, metavar="T[:P,P]", help="These partitions; may be repeated.")
@click.option("--all-topics", is_flag=True, help="Every partition that the group has committed.")
@click.option(
    "--to",
    "position",
    callback=position_option,
    metavar="WHERE",
    help="start, end, current, N, +N, -N, @TIME (local, unless it ends in Z or +HH:MM; also @-1h).",
)
@click.option("--execute/--dry-run", default=False, help="Do it; without, only show what would be done.")
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
    if found.members:
        raise CommandError(
            f"Assignments can only be reset if the group '{group}' is inactive, but the current state is {found.state}",
            "expected a group without members",
            f"stop its {len(found.members)} member(s) first (muster groups members {group})",
            code=Exit.CONFLICT,
        )


def find_targets(
    admin: "Admin", wanted: Mapping[TopicPartition, Position], current: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The new offset of each partition, held within what the log has, with a warning."""
    starts = fetch_offsets_at(admin, dict.fromkeys(wanted, EARLIEST))
    ends = fetch_offsets_at(admin, dict.fromkeys(wanted, LATEST))
    times = fetch_offsets_at(admin, {tp: position.value for tp, position in wanted.items() if position.kind == "time"})
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


def fetch_offsets_at(admin: "Admin", times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    if not times:
        return {}
    return {(tp.topic, tp.partition): at.offset for tp, at in admin.list_offsets(times).items()}
