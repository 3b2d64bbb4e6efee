"""`muster groups describe`: positions and lag; with --state, the group itself and whom it waits for."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import Column, notice, print_document, print_rows
from muster.cli.groups.both import ZOOKEEPER, warn_of_hidden_members
from muster.cli.groups.which import group_argument
from muster.coordinator.observability.views.controls import control_lines
from muster.coordinator.observability.views.formatting import Names, moment
from muster.coordinator.observability.views.groups import offset_row, planner_words, progress_words, state_row
from muster.coordinator.observability.views.holds import hold_lines

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.client.described import GroupDescription, PartitionLag

OFFSET_COLUMNS = [
    Column("GROUP", "group"),
    Column("TOPIC", "topic", style="cyan"),
    Column("PARTITION", "partition"),
    Column("CURRENT-OFFSET", "current_offset"),
    Column("LOG-END-OFFSET", "log_end_offset"),
    Column("LAG", "lag"),
    Column("CONSUMER-ID", "consumer_id"),
    Column("HOST", "host"),
    Column("CLIENT-ID", "client_id"),
]
STATE_COLUMNS = [
    Column("GROUP", "group", style="cyan"),
    Column("COORDINATOR", "coordinator"),
    Column("ASSIGNMENT-STRATEGY", "assignment_strategy"),
    Column("STATE", "state"),
    Column("#MEMBERS", "members"),
    Column("GENERATION", "generation"),
    Column("LEADER", "leader", wide=True),
    Column("PLANNED-BY", "planned_by", wide=True),
    Column("SETTING-KEPT-OUT", "kept_out", wide=True),
    Column("WAITS-FOR", "waiting_for"),
    Column("UNTIL", "waiting_until"),
    Column("LAG", "lag", wide=True),
    Column("TREND/S", "trend", wide=True),
    Column("ETA-S", "eta_s", wide=True),
    Column("HEALTH", "health", wide=True),
    Column("REASON", "health_reason", wide=True),
]
NOT_AVAILABLE = 15
"""COORDINATOR_NOT_AVAILABLE, which is also said of positions that ZooKeeper does not give."""
WELL = "OK"
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Waiting", "Stopping", "Starting", "BackingOff")


@click.command()
@client_options
@output_option
@click.option("--state", "state_only", is_flag=True, help="The group's state, and whom a rebalance waits for.")
@group_argument
def describe(bootstrap: str, overrides: dict[str, str], style: str, state_only: bool, group: str) -> None:
    """Show positions and lag of GROUP by partition.

    From a node that samples its groups also where that leads (on standard error; with --state -o wide in columns).
    """
    with connect_admin(bootstrap, overrides) as admin:
        found = admin.describe_group(group)
        warn_of_hidden_members(admin, found)
        holds = admin.group_holds(group)
        for line in (*hold_lines(holds), *control_lines(found.controls)):
            notice(line)
        if state_only:
            print_planner(found)
            if admin.zookeeper_away():
                warn_of_stale_positions(found)
            print_state(state_row(found, holds), style)
            return
        lags, away = fetch_lags(admin, found)
    print_highlights(found)
    owners = {member.member_id: member for member in found.members}
    known = not (away and found.protocol_type == ZOOKEEPER)
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
    if not group.members:
        notice(f"Consumer group '{group.group_id}' has no active members.")
    if group.progress is not None:
        notice(f"Consumer group '{group.group_id}': {progress_words(group.progress)}.")
        if group.progress.health != WELL:
            notice(f"Warning: Consumer group '{group.group_id}' is not well: {group.progress.reason}.")
    print_planner(group)
    if group.state in REBALANCING:
        names = Names(member.member_id for member in group.members)
        waits = ", ".join(names[member] for member in group.waiting_for) or "nobody in particular"
        until = f" until {moment(group.waiting_until_ms)}" if group.waiting_until_ms else ""
        notice(f"Warning: Consumer group '{group.group_id}' is rebalancing. It waits for {waits}{until}.")


def print_planner(group: "GroupDescription") -> None:
    """On standard error, where an operator has a word in it."""
    if group.assignor_is_set:
        notice(f"Consumer group '{group.group_id}' is planned by {planner_words(group)}.")
    if group.kept_out:
        notice(f"Warning: Consumer group '{group.group_id}' is planned by a member: {group.kept_out}.")
