"""What `--list` and `--describe` print: Kafka's columns, in Kafka's order."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.errors import CommandError, Exit
from muster.cli.common.output import ABSENT
from muster.cli.groups.both import ZOOKEEPER
from muster.cli.groups.describe import fetch_lags
from muster.coordinator.observability.views.groups import assignment_text

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.client.described import GroupDescription, MemberDescription

OFFSETS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
MEMBERS = ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
STATE = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
REBALANCING = ("PreparingRebalance", "CompletingRebalance")
EVERY = "*"
NARROWEST = 15
"""Kafka's tool pads to this, and scripts cut by columns."""


def print_groups(admin: "Admin", states: str | None, types: str | None) -> None:
    found = admin.list_groups(split_words(states), [word.lower() for word in split_words(types)])
    if states is None and types is None:
        for group in found:
            click.echo(group.group_id)
        return
    shown = [name for name, wanted in (("TYPE", types), ("STATE", states)) if wanted is not None]
    values = [{"TYPE": group.group_type.capitalize(), "STATE": group.state, "GROUP": group.group_id} for group in found]
    print_kafka_table(("GROUP", *shown), [[row["GROUP"], *(row[name] for name in shown)] for row in values])


def split_words(given: str | None) -> list[str]:
    """What a list by commas holds; nothing when all are wanted."""
    return [] if given in (None, EVERY) else [word.strip() for word in str(given).split(",") if word.strip()]


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
            print_kafka_table(OFFSETS, offset_rows(admin, group))
    if missing:
        named = ", ".join(f"'{name}'" for name in missing)
        raise CommandError(f"Consumer group {named} does not exist.", code=Exit.NOT_FOUND)


def print_state_note(group: "GroupDescription") -> None:
    if not group.members:
        click.echo(f"\nConsumer group '{group.group_id}' has no active members.", err=True)
    elif group.state in REBALANCING:
        click.echo(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", err=True)


def offset_rows(admin: "Admin", group: "GroupDescription") -> list[list[Any]]:
    members = {member.member_id: member for member in group.members}
    rows, busy = [], set()
    lags, away = fetch_lags(admin, group)
    for lag in lags:
        owner = members.get(lag.owner)
        busy.add(lag.owner)
        known = lag.committed is not None and not (away and group.protocol_type == ZOOKEEPER)
        position = [lag.committed, lag.log_end, lag.lag] if known else [None, lag.log_end, None]
        rows.append([group.group_id, lag.partition.topic, lag.partition.partition, *position, *identity(owner)])
    idle = [member for member in group.members if member.member_id not in busy]
    return rows + [[group.group_id, None, None, None, None, None, *identity(member)] for member in idle]


def identity(member: "MemberDescription | None") -> list[str | None]:
    return [member.member_id, f"/{member.client_host}", member.client_id] if member else [None, None, None]


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
    return ABSENT if value is None or value == "" else str(value)
