"""`muster consumer-groups`: the flags, columns and sentences of `kafka-consumer-groups.sh`.

Scripts and habits that know Kafka's tool work unchanged: `--list` and `--describe` print Kafka's columns in Kafka's
order; `--delete`, `--delete-offsets` and `--reset-offsets` take its options, refuse the same combinations, and read
and write its CSV plans.
"""

import csv
import io
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.assignors.api import TopicPartition
from muster.cli.common.commands import CommandError, ConnectionOption, Exit
from muster.cli.common.options import command_config_option, current_command_config, repeated_option
from muster.cli.common.output import ABSENT, echo_exactly
from muster.cli.groups.arguments import resolve_partitions
from muster.cli.groups.description import STATES, TYPES, ZOOKEEPER, fetch_lags
from muster.cli.groups.offsets import check_any_moved, find_targets, require_inactive
from muster.coordinator.observability.views.formatting import harmless
from muster.coordinator.observability.views.groups import assignment_text
from muster.coordinator.observability.views.topics import Position

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.client.described import GroupDescription, MemberDescription


# `--list` and `--describe`
# -------------------------

OFFSETS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
EPOCH_AT = 3
"""Kafka's tool has the leader epoch behind the partition."""
MEMBERS = ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
STATE = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
REBALANCING = ("PreparingRebalance", "CompletingRebalance")
EVERY = "*"
NARROWEST = 15
"""Kafka's tool pads to this, and scripts cut by columns."""


def print_groups(admin: "Admin", states: str | None, types: str | None) -> None:
    found = admin.list_groups(known_words("--state", states, STATES), known_words("--type", types, TYPES))
    if states is None and types is None:
        for group in found:
            echo_exactly(f"{group.group_id}\n")
        return
    shown = [name for name, wanted in (("TYPE", types), ("STATE", states)) if wanted is not None]
    values = [{"TYPE": group.group_type.capitalize(), "STATE": group.state, "GROUP": group.group_id} for group in found]
    print_kafka_table(("GROUP", *shown), [[row["GROUP"], *(row[name] for name in shown)] for row in values])


def known_words(option: str, given: str | None, known: Sequence[str]) -> list[str]:
    """What a list by commas holds, as the node spells it; nothing when all are wanted.

    Raises click.UsageError for a word that is not `known`: a list that nothing can match reads like "no groups".
    """
    words = [] if given in (None, EVERY) else [word.strip() for word in str(given).split(",") if word.strip()]
    spelt = {word.lower(): word for word in known}
    unknown = [word for word in words if word.lower() not in spelt]
    if unknown:
        raise click.UsageError(f"{option} {harmless(', '.join(unknown))} is unknown; expected {', '.join(known)}")
    return [spelt[word.lower()] for word in words]


def print_descriptions(admin: "Admin", groups: Sequence[str], view: str, *, verbose: bool) -> None:
    from muster.client.errors import GroupNotFound

    missing = []
    nodes = admin.nodes() if view == "state" else {}
    for name in groups:
        try:
            group = admin.describe_group(name)
        except GroupNotFound:
            missing.append(name)
            continue
        if view == "state":
            print_kafka_table(STATE, [state_row(group, nodes)])
            continue
        print_state_note(group)
        if view == "members":
            heading = (*MEMBERS, "ASSIGNMENT") if verbose else MEMBERS
            print_kafka_table(heading, [member_row(group, member)[: len(heading)] for member in group.members])
        else:
            print_offsets(admin, group, verbose=verbose)
    if missing:
        named = ", ".join(f"'{name}'" for name in missing)
        raise CommandError(f"Consumer group {named} does not exist.", code=Exit.NOT_FOUND)


def print_offsets(admin: "Admin", group: "GroupDescription", *, verbose: bool) -> None:
    """`verbose`: with the leader epoch that each position was committed with."""
    rows = offset_rows(admin, group)
    if not verbose:
        print_kafka_table(OFFSETS, rows)
        return
    committed = admin.group_offsets(group.group_id)
    epochs = {(tp.topic, tp.partition): at.leader_epoch for tp, at in committed.items()}
    told = [epochs.get((row[1], row[2]), -1) for row in rows]
    heading = (*OFFSETS[:EPOCH_AT], "LEADER-EPOCH", *OFFSETS[EPOCH_AT:])
    print_kafka_table(
        heading,
        [
            [*row[:EPOCH_AT], epoch if epoch is not None and epoch >= 0 else None, *row[EPOCH_AT:]]
            for row, epoch in zip(rows, told, strict=True)
        ],
    )


def print_state_note(group: "GroupDescription") -> None:
    if not group.members:
        click.echo(f"\nConsumer group '{harmless(group.group_id)}' has no active members.", err=True)
    elif group.state in REBALANCING:
        click.echo(f"\nWarning: Consumer group '{harmless(group.group_id)}' is rebalancing.", err=True)


def offset_rows(admin: "Admin", group: "GroupDescription") -> list[list[Any]]:
    members = {member.member_id: member for member in group.members}
    rows, busy = [], set()
    lags, away = fetch_lags(admin, group)
    for lag in lags:
        owner = members.get(lag.owner)
        busy.add(lag.owner)
        known = lag.committed is not None and not (away and group.protocol_type == ZOOKEEPER)
        end = lag.log_end if lag.end_known else None
        position = [lag.committed, end, None if end is None else lag.kafka_lag] if known else [None, end, None]
        rows.append([group.group_id, lag.partition.topic, lag.partition.partition, *position, *identity(owner)])
    idle = [member for member in group.members if member.member_id not in busy]
    return rows + [[group.group_id, None, None, None, None, None, *identity(member)] for member in idle]


def identity(member: "MemberDescription | None") -> list[str | None]:
    return (
        [member.member_id, f"/{member.client_host.removeprefix('/')}", member.client_id]
        if member
        else [None, None, None]
    )


def member_row(group: "GroupDescription", member: "MemberDescription") -> list[Any]:
    name, host, client = identity(member)
    owned = member.assignment
    return [group.group_id, name, member.group_instance_id, host, client, len(owned), assignment_text(owned)]


def state_row(group: "GroupDescription", nodes: Mapping[str, int]) -> list[Any]:
    number = nodes.get(group.coordinator)
    where = group.coordinator if number is None else f"{group.coordinator} ({number})"
    return [group.group_id, where, group.assignor, group.state, len(group.members)]


def print_kafka_table(heading: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A blank line, the heading, the rows; every column but the last padded."""
    lines = [list(heading), *([kafka_cell(value) for value in row] for row in rows)]
    widths = [max(NARROWEST, *(len(line[at]) for line in lines)) for at in range(len(heading))]
    click.echo()
    for line in lines:
        click.echo(" ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def kafka_cell(value: Any) -> str:
    return ABSENT if value is None or value == "" else harmless(str(value))


# `--delete`, `--delete-offsets` and `--reset-offsets`
# ----------------------------------------------------

DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?")
MAX_OFFSET = 2**63 - 1


def delete_groups(admin: "Admin", groups: Sequence[str]) -> None:
    admin.delete_groups(groups)
    named = ", ".join(f"'{group}'" for group in groups)
    click.echo(f"Deletion of requested consumer groups ({harmless(named)}) was successful.")


def delete_offsets(admin: "Admin", groups: Sequence[str], topics: Sequence[str]) -> None:
    (group,) = groups
    admin.describe_group(group)
    partitions = resolve_partitions(admin, topics)
    admin.delete_offsets(group, partitions)
    click.echo(f"Request succeed for deleting offsets from group {harmless(group)}.")
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
        plans[group] = find_targets(admin, as_kafka_moves(wanted, current), current)
    if options["execute"]:
        for group, plan in plans.items():
            if plan:
                admin.alter_offsets(group, plan)
    if options["export"]:
        export_plans(plans)
        return
    check_any_moved(plans)
    rows = [[group, *tp, offset] for group, plan in plans.items() for tp, offset in plan.items()]
    print_kafka_table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows)


def reset_positions(
    admin: "Admin", options: Mapping[str, Any], current: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Position]:
    chosen = sorted(current) if options["all_topics"] else resolve_partitions(admin, options["topics"])
    return dict.fromkeys(chosen, reset_position(options))


def as_kafka_moves(
    wanted: Mapping[TopicPartition, Position], current: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Position]:
    """`--to-current` gives a partition without a position the end of its log, as Kafka's tool does."""
    return {
        tp: Position("end") if position.kind == "current" and tp not in current else position
        for tp, position in wanted.items()
    }


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
        raise click.UsageError(f"--to-datetime {text!r} is not a time; expected YYYY-MM-DDTHH:mm:SS.sss") from None


def duration_ms(text: str) -> int:
    """
    >>> duration_ms("P1DT2H"), duration_ms("PT0.5S")
    (93600000, 500)
    """
    found = DURATION.fullmatch(text)
    if not found or not any(found.groups()):
        raise click.UsageError(f"--by-duration {text!r} is not a duration; expected PnDTnHnMnS, such as P1DT12H")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


# -- CSV ----------------------------------------------------------------------------------------------------


def export_plans(plans: Mapping[str, Mapping[TopicPartition, int]]) -> None:
    """topic,partition,offset of one group; of several, with the group in front."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    for group, plan in plans.items():
        for tp, offset in plan.items():
            writer.writerow([*tp, offset] if len(plans) == 1 else [group, *tp, offset])
    echo_exactly(target.getvalue())


def read_plan(path: Path, groups: Sequence[str]) -> dict[str, dict[TopicPartition, Position]]:
    """What `--export` wrote: rows of three for one group, rows of four for several."""
    plan: dict[str, dict[TopicPartition, Position]] = {group: {} for group in groups}
    with path.open(newline="", encoding="utf-8-sig") as file:  # Spreadsheets put a mark before it.
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


# The command
# -----------

ACTIONS = ("list", "describe", "delete", "reset_offsets", "delete_offsets")
POSITIONS = (
    "to_datetime", "by_duration", "to_earliest", "to_latest", "to_current", "to_offset", "shift_by", "from_file",
)  # fmt: skip
VIEWS = ("offsets", "members", "state")

Options = Mapping[str, Any]


def make_flag(name: str, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(name, is_flag=True, help=text)


@click.command("consumer-groups")
@click.option(
    "--bootstrap-server", cls=ConnectionOption, required=True, metavar="HOST:PORT", help="Connect to this node."
)
@command_config_option
@click.option("--timeout", type=click.IntRange(1, 2**31 - 1), default=5_000, show_default=True, help="In milliseconds.")
@make_flag("--list", "List groups.")
@make_flag("--describe", "Show groups: --offsets (the default), --members or --state.")
@make_flag("--delete", "Delete groups that have no members.")
@make_flag("--reset-offsets", "Move the positions of inactive groups.")
@make_flag("--delete-offsets", "Delete the positions of a group in topics.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="May be repeated.")
@make_flag("--all-groups", "Apply to all groups.")
@make_flag("--offsets", "Show positions and lag by partition.")
@make_flag("--members", "Show the members of the group.")
@click.option(
    "--state", is_flag=False, flag_value=EVERY, metavar="[STATES]",
    help="With --describe: show the state. With --list: show states, or only groups in these, separated by commas."
)  # fmt: skip
@click.option(
    "--type", "type_", is_flag=False, flag_value=EVERY, metavar="[TYPES]",
    help="With --list: show types, or only groups of these, separated by commas."
)  # fmt: skip
@make_flag("--verbose", "With --members: also show what each member owns. With --offsets: leader epochs.")
@repeated_option("--topic", "topics", metavar="T[:P,P]", help="Topic, with partitions if not all of them")
@make_flag("--all-topics", "All partitions that the group has committed.")
@click.option(
    "--to-datetime",
    metavar="YYYY-MM-DDTHH:mm:SS.sss",
    help="Move to the first offset at or after this time (UTC, or +hh:mm).",
)
@click.option("--by-duration", metavar="PnDTnHnMnS", help="Move to the first offset of this long ago.")
@make_flag("--to-earliest", "Move to the beginning of the log.")
@make_flag("--to-latest", "Move to the end of the log.")
@make_flag("--to-current", "Keep the current position.")
@click.option("--to-offset", type=click.IntRange(0, 2**63 - 1), metavar="N", help="Move to this offset.")
@click.option(
    "--shift-by",
    type=click.IntRange(-(2**63), 2**63 - 1),
    metavar="N",
    help="Move by this many records, back if negative.",
)
@click.option(
    "--from-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Move to the positions in this CSV file, as --export writes it."
)  # fmt: skip
@make_flag("--dry-run", "Show what would be done, and change nothing (the default).")
@make_flag("--execute", "Apply the change.")
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

    if action == "list":
        print_groups(admin, options["state"], options["type_"])
        return
    groups = choose_groups(admin, options)
    if action == "describe":
        view = next((name for name in VIEWS if options[name]), "offsets")
        print_descriptions(admin, groups, view, verbose=options["verbose"])
    elif action == "delete":
        delete_groups(admin, groups)
    elif action == "delete_offsets":
        delete_offsets(admin, groups, options["topics"])
    else:
        reset_offsets(admin, groups, options)


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
