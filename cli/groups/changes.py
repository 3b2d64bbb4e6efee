"""What `--delete`, `--delete-offsets` and `--reset-offsets` do."""

import csv
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.groups.reset import TopicPartition, find_targets, require_inactive
from muster.cli.groups.views import print_kafka_table
from muster.cli.groups.which import resolve_partitions
from muster.coordinator.observability.views.positions import Position

if TYPE_CHECKING:
    from muster.client import Admin

DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?")
MAX_OFFSET = 2**63 - 1


def delete_groups(admin: "Admin", groups: Sequence[str]) -> None:
    admin.delete_groups(groups)
    named = ", ".join(f"'{group}'" for group in groups)
    click.echo(f"Deletion of requested consumer groups ({named}) was successful.")


def delete_offsets(admin: "Admin", groups: Sequence[str], topics: Sequence[str]) -> None:
    (group,) = groups
    admin.describe_group(group)
    partitions = resolve_partitions(admin, topics)
    admin.delete_offsets(group, partitions)
    click.echo(f"Request succeed for deleting offsets from group {group}.")
    print_kafka_table(("TOPIC", "PARTITION", "STATUS"), [[topic, number, "Successful"] for topic, number in partitions])


def reset_offsets(admin: "Admin", groups: Sequence[str], options: Mapping[str, Any]) -> None:
    if not options["execute"] and not options["dry_run"] and not options["export"]:
        click.echo("WARN: No action will be performed as the --execute option is missing.", err=True)
    file = read_plan(options["from_file"], groups) if options["from_file"] else None
    plans = {}
    for group in groups:
        require_inactive(admin, group)
        current = {(tp.topic, tp.partition): at.offset for tp, at in admin.group_offsets(group).items()}
        wanted = file.get(group, {}) if file is not None else reset_positions(admin, options, current)
        plans[group] = find_targets(admin, wanted, current)
    if options["execute"]:
        for group, plan in plans.items():
            if plan:
                admin.alter_offsets(group, plan)
    if options["export"]:
        export_plans(plans)
        return
    rows = [[group, *tp, offset] for group, plan in plans.items() for tp, offset in plan.items()]
    print_kafka_table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows)


def reset_positions(
    admin: "Admin", options: Mapping[str, Any], current: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Position]:
    chosen = sorted(current) if options["all_topics"] else resolve_partitions(admin, options["topics"])
    return dict.fromkeys(chosen, reset_position(options))


def reset_position(options: Mapping[str, Any]) -> Position:
    """The one that check_reset found."""
    now_ms = time.time_ns() // 1_000_000
    if options["to_datetime"]:
        return Position("time", moment_ms(options["to_datetime"]))
    if options["by_duration"]:
        return Position("time", max(0, now_ms - duration_ms(options["by_duration"])))
    if options["to_offset"] is not None:
        return Position("offset", options["to_offset"])
    if options["shift_by"] is not None:
        return Position("shift", options["shift_by"])
    kinds = {"to_earliest": "start", "to_latest": "end", "to_current": "current"}
    return Position(next(kind for name, kind in kinds.items() if options[name]))


def moment_ms(text: str) -> int:
    """Epoch milliseconds of an ISO 8601 time; without a zone it is UTC, as in Kafka's tool.

    >>> moment_ms("1970-01-01T00:00:01.500"), moment_ms("1970-01-01T01:00:00+01:00")
    (1500, 0)
    """
    try:
        if "T" not in text:
            raise ValueError
        moment = datetime.fromisoformat(text)
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0, round(zoned.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise click.UsageError(f"--to-datetime {text!r} is no time; expected YYYY-MM-DDTHH:mm:SS.sss") from None


def duration_ms(text: str) -> int:
    """
    >>> duration_ms("P1DT2H"), duration_ms("PT0.5S")
    (93600000, 500)
    """
    found = DURATION.fullmatch(text)
    if not found or not any(found.groups()):
        raise click.UsageError(f"--by-duration {text!r} is no duration; expected PnDTnHnMnS, such as PT1H or P1DT12H")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


# -- CSV ----------------------------------------------------------------------------------------------------


def export_plans(plans: Mapping[str, Mapping[TopicPartition, int]]) -> None:
    """topic,partition,offset of one group; of several, with the group in front."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for group, plan in plans.items():
        for tp, offset in plan.items():
            writer.writerow([*tp, offset] if len(plans) == 1 else [group, *tp, offset])


def read_plan(path: Path, groups: Sequence[str]) -> dict[str, dict[TopicPartition, Position]]:
    """What `--export` wrote: rows of three for one group, rows of four for several."""
    plan: dict[str, dict[TopicPartition, Position]] = {group: {} for group in groups}
    with path.open(newline="") as file:
        for number, row in enumerate(csv.reader(file), 1):
            if not row:
                continue
            group, topic, partition, offset = read_plan_row(f"{path}, line {number}", row, groups)
            if group in plan:
                plan[group][topic, partition] = Position("offset", offset)
    return plan


def read_plan_row(where: str, row: list[str], groups: Sequence[str]) -> tuple[str, str, int, int]:
    if len(row) == 3 and len(groups) == 1:
        row = [groups[0], *row]
    if len(row) != 4:
        shape = "topic,partition,offset" if len(groups) == 1 else "group,topic,partition,offset"
        raise click.UsageError(f"{where}: {','.join(row)!r} has {len(row)} fields; expected {shape}")
    group, topic, partition, offset = (field.strip() for field in row)
    if not re.fullmatch(r"\d{1,9}", partition) or not re.fullmatch(r"\d{1,19}", offset) or int(offset) > MAX_OFFSET:
        raise click.UsageError(f"{where}: {partition!r}, {offset!r} are no partition and offset; expected two numbers")
    return group, topic, int(partition), int(offset)
