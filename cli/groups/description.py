"""`muster groups list`, `describe` and `members`: what groups look like at this moment.

`describe` shows positions and lag; with --state it shows the group itself and which members a rebalance waits for.
Active operator overrides, stale figures and members that live in ZooKeeper are mentioned on standard error, next to
the table. Consumers of the ZooKeeper era and members of a coordinator know nothing of each other, even under one
group id.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from muster.cli.common.commands import Unhealthy, describe_missing
from muster.cli.common.options import client_options, connect_admin, output_option, repeated_option
from muster.cli.common.output import GrowingTable, columns, notice, print_document, print_rows
from muster.cli.common.watching import (
    LOADING,
    ReadingPace,
    early_watching_options,
    tell_what_is_hidden,
    watching_options,
)
from muster.cli.groups.arguments import group_argument
from muster.coordinator.observability.views.controls import control_lines, hold_lines
from muster.coordinator.observability.views.formatting import listed, moment
from muster.coordinator.observability.views.groups import (
    GroupRow,
    group_row,
    hidden_words,
    member_row,
    offset_row,
    planner_words,
    progress_words,
    removed_words,
    state_row,
    watched_words,
)
from muster.coordinator.observability.views.member_names import Names

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.client.described import GroupDescription, GroupListing, PartitionLag


# Groups that ZooKeeper holds as well
# -----------------------------------

ZOOKEEPER = "zookeeper"
"""The type of groups that live in ZooKeeper."""


def warn_of_hidden_members(admin: "Admin", group: "GroupDescription") -> None:
    """On standard error: who is in the group and is not shown, or has nothing to show."""
    if group.members and group.protocol_type != ZOOKEEPER and not group.watched:  # a watching node has no others
        warn_of_mixed_groups(
            each.group_id for each in admin.list_groups(types=[ZOOKEEPER]) if each.group_id == group.group_id
        )
    idle = [member.member_id for member in group.members if not member.topics]
    if idle and group.protocol_type == ZOOKEEPER:
        notice(
            f"Warning: no topic is known of {', '.join(idle)}: none fits its subscription, or its registration in "
            "ZooKeeper cannot be read, which the node's log says."
        )


def warn_of_duplicate_groups(groups: "Iterable[GroupListing]") -> None:
    """A group with members on both sides has a line for each."""
    lines = Counter(group.group_id for group in groups)
    warn_of_mixed_groups(group_id for group_id, count in lines.items() if count > 1)


def warn_of_mixed_groups(group_ids: Iterable[str]) -> None:
    """Consumers of the ZooKeeper era and a coordinator's members know nothing of each other, even under one name."""
    for group_id in group_ids:
        notice(
            f"Warning: Consumer group '{group_id}' has members that meet in ZooKeeper, and others at the coordinator. "
            "Each side reads every partition; stop one of them."
        )


# `list`
# ------

GROUP_COLUMNS = columns("GROUP:cyan, TYPE, STATE, LAG+, HEALTH, PROTOCOL-TYPE+, WHY=health_reason+, IDLE-SINCE+")
STATES = (
    *("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"),
    *("Assigning", "Reconciling"),  # KIP-848
    *("Waiting", "Stopping", "Starting", "BackingOff"),  # central
)

TYPES = ("classic", "consumer", "central", "zookeeper")


def describe_missing_groups(admin: "Admin") -> list[str]:
    """Sentences on groups that the node cannot load, for those who may ask how it is (DESCRIBE on the cluster)."""
    from muster.client.errors import AuthorizationError

    try:
        return [each.sentence for each in admin.conditions() if each.name.startswith("shard-failed:")]
    except AuthorizationError:
        return []


@click.command("list")
@early_watching_options
@client_options
@output_option
@repeated_option("--state", "states", type=click.Choice(STATES, case_sensitive=False), help="Only groups in this state")
@click.option("--with-members", is_flag=True, help="Only groups that have members.")
def list_(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    states: tuple[str, ...],
    with_members: bool,
    pace: ReadingPace | None,
) -> None:
    """List groups.

    With --kafka or --segments, groups are printed as soon as their records have been read.

    HEALTH is OK, WARN or ERR by Burrow's rules, or IDLE without members, where the node samples its groups
    (docs/observe.md). Exit code 4 when a node cannot report some groups; these are missing from the list.
    """

    def shown(groups: "Iterable[GroupListing]") -> list[GroupRow]:
        return [group_row(group) for group in groups if group.has_members or not with_members]

    with connect_admin(bootstrap, overrides) as admin:
        printed: set[str] = set()
        table = GrowingTable(GROUP_COLUMNS, style)
        while True:
            untold: list[str] = []
            found = admin.list_groups(states, missing=untold.append)
            unread = "" if pace is None else next((each for each in untold if LOADING in each), "")
            if pace is None or not unread:
                break
            rows = [row for row in shown(found) if row["group"] not in printed] if style in ("table", "wide") else []
            if rows:
                pace.clear()
                table.add(rows)
                printed |= {row["group"] for row in rows}
            pace.pause(unread)
        if pace is not None:
            pace.clear()
            tell_what_is_hidden(admin)
        missing = describe_missing_groups(admin) + untold
        warn_of_duplicate_groups(found)
        if any(group.group_type == ZOOKEEPER for group in found) and admin.zookeeper_away():
            notice("Warning: ZooKeeper is out of the node's reach. Groups there are shown as they were last seen.")
    rows = [row for row in shown(found) if row["group"] not in printed]
    if printed:
        table.add(rows)
    else:
        print_rows(rows, GROUP_COLUMNS, style)
    if missing:
        raise Unhealthy("\n".join(map(describe_missing, missing)))


# `describe`
# ----------

OFFSET_COLUMNS = columns(
    "GROUP, TOPIC:cyan, PARTITION, CURRENT-OFFSET, LOG-START-OFFSET+, LOG-END-OFFSET, LAG, REMOVED+, CONSUMER-ID, "
    "HOST, CLIENT-ID"
)
STATE_COLUMNS = columns(
    "GROUP:cyan, COORDINATOR, ASSIGNMENT-STRATEGY, STATE, #MEMBERS=members, GENERATION, LEADER+, PLANNED-BY+, "
    "SETTING-KEPT-OUT=kept_out+, WAITS-FOR=waiting_for, UNTIL=waiting_until, LAG+, TREND/S=trend+, "
    "TREND-WINDOW-S+, ETA-S+, HEALTH+, REASON=health_reason+, IDLE-SINCE+"
)
NOT_AVAILABLE = 15
"""COORDINATOR_NOT_AVAILABLE, which is also said of positions that ZooKeeper does not give."""
WELL, IDLE = "OK", "IDLE"
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Waiting", "Stopping", "Starting", "BackingOff")


@click.command()
@watching_options
@client_options
@output_option
@click.option(
    "--state", "state_only", is_flag=True, help="Show the group's state, and the members that a rebalance waits for."
)
@group_argument
def describe(bootstrap: str, overrides: dict[str, str], style: str, state_only: bool, group: str) -> None:
    """Show positions and lag of GROUP by partition.

    If the node samples its groups, also shows the trend of the lag (on standard error, or as columns with --state
    -o wide).
    """
    with connect_admin(bootstrap, overrides) as admin:
        found = admin.describe_group(group)
        warn_of_hidden_members(admin, found)
        holds = admin.group_holds(group)
        for line in (*hold_lines(holds), *control_lines(found.controls)):
            notice(line)
        if state_only:
            print_hidden(found)
            print_planner(found)
            if admin.zookeeper_away():
                warn_of_stale_positions(found)
            print_state(state_row(found, holds), style)
            return
        lags, away = fetch_lags(admin, found)
    print_highlights(found)
    if unknown := sorted({lag.partition.topic for lag in lags if not lag.end_known}):
        notice(
            f"Consumer group '{group}': where the logs of {listed(unknown)} end is not known. Segments do not tell; a "
            "Kafka does, unless the topic is gone or this user may not DESCRIBE it."
        )
    owners = {member.member_id: member for member in found.members}
    known = not (away and found.protocol_type == ZOOKEEPER)
    if known and (removed := removed_words(lags)):
        notice(f"Consumer group '{group}': {removed}.")
    rows = [offset_row(group, lag, owners.get(lag.owner), known=known) for lag in lags]
    print_rows(rows, OFFSET_COLUMNS, style)


def print_state(row: Mapping[str, object], style: str) -> None:
    """What is held of it and tried on it has no column: as text it is said in sentences, beside the table."""
    if style in ("json", "yaml"):
        print_document([row], style)
    else:
        print_rows([row], STATE_COLUMNS, style)


def fetch_lags(admin: "Admin", group: "GroupDescription") -> tuple[list["PartitionLag"], bool]:
    """The group's lags, and whether ZooKeeper is away: then without what is kept there, and that is said."""
    from muster.client.errors import Refused

    if not admin.zookeeper_away():
        try:
            return admin.group_lag(group.group_id), False
        except Refused as error:
            # It may have fallen silent meanwhile: the node notices after a while.
            if error.code != NOT_AVAILABLE or not admin.zookeeper_away():
                raise
    warn_of_stale_positions(group)
    return admin.group_lag(group.group_id, include_zookeeper=False), True


def warn_of_stale_positions(group: "GroupDescription") -> None:
    """On standard error, while ZooKeeper is away."""
    if group.protocol_type == ZOOKEEPER:
        notice(
            f"Warning: ZooKeeper is out of the node's reach. Consumer group '{group.group_id}' is shown as it was last "
            "seen; its positions are unknown."
        )
    else:
        notice("Warning: ZooKeeper is out of the node's reach. Positions that are kept there are left out.")


def print_highlights(group: "GroupDescription") -> None:
    """On standard error, in the words that people search for."""
    if group.watched:
        notice(f"Consumer group '{group.group_id}' is {watched_words(group.watched)}.")
    if not group.members:
        notice(f"Consumer group '{group.group_id}' has no active members.")
    print_hidden(group)
    if group.progress is not None:
        notice(f"Consumer group '{group.group_id}': {progress_words(group.progress)}.")
        if group.progress.health not in (WELL, IDLE):
            notice(f"Warning: Consumer group '{group.group_id}' is not well: {group.progress.reason}.")
    print_planner(group)
    if group.state in REBALANCING:
        names = Names.of_members(group.members)
        waits = ", ".join(names[member] for member in group.waiting_for) or "nobody in particular"
        until = f" until {moment(group.waiting_until_ms)}" if group.waiting_until_ms else ""
        notice(f"Warning: Consumer group '{group.group_id}' is rebalancing. It waits for {waits}{until}.")


def print_hidden(group: "GroupDescription") -> None:
    """On standard error: that what is shown is not all."""
    if group.hidden_topics:
        notice(f"Warning: Consumer group '{group.group_id}': {hidden_words(group.hidden_topics)}.")


def print_planner(group: "GroupDescription") -> None:
    """On standard error, where an operator has a word in it."""
    if group.assignor_is_set:
        notice(f"Consumer group '{group.group_id}' is planned by {planner_words(group)}.")
    if group.kept_out:
        notice(f"Warning: Consumer group '{group.group_id}' is planned by a member: {group.kept_out}.")


# `members`
# ---------

MEMBER_COLUMNS = columns(
    "GROUP, CONSUMER-ID:cyan, GROUP-INSTANCE-ID, HOST, CLIENT-ID, SOFTWARE=client_software+, #PARTITIONS=partitions, "
    "ASSIGNMENT+"
)


@click.command()
@watching_options
@client_options
@output_option
@group_argument
def members(bootstrap: str, overrides: dict[str, str], style: str, group: str) -> None:
    """Show the members of GROUP.

    With -o wide, also the partitions that each owns and its client software.
    """
    with connect_admin(bootstrap, overrides) as admin:
        found = admin.describe_group(group)
        warn_of_hidden_members(admin, found)
        if found.protocol_type == ZOOKEEPER and admin.zookeeper_away():
            warn_of_stale_positions(found)
    print_highlights(found)
    print_rows([member_row(found.group_id, member) for member in found.members], MEMBER_COLUMNS, style)
