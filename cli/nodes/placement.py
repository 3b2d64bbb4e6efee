"""`muster cluster drain`, `undrain`, `elect`, `reassign` and `spread`: which node leads and holds which partition.

`drain` moves leadership away from a node, `elect` gives it back to first replicas, `reassign` changes replicas one
by one, and `spread` plans the smallest set of moves that spreads replicas over all nodes.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from muster.cli.common.commands import CommandError
from muster.cli.common.options import COUNT, client_options, output_option, repeated_option
from muster.cli.common.output import columns, notice, print_rows
from muster.cli.nodes.cluster import (
    NODE,
    NUMBER,
    connect_cluster_admin,
    parse_partition,
    parse_partitions,
    report_age,
    report_outcomes,
)
from muster.coordinator.observability.views.formatting import plural

if TYPE_CHECKING:
    from muster.coordinator.rpc.v1.cluster_service_pb2 import DescribeClusterResponse


# `drain` and `undrain`
# ---------------------

MOST_NAMED = 10


@click.command()
@client_options
@click.argument("node", type=NODE)
def drain(bootstrap: str, overrides: dict[str, str], node: int) -> None:
    """Move leadership away from NODE, before maintenance for example.

    The node stays up, continues to replicate, and stays drained across restarts until `undrain`. Over a Kafka, the
    other nodes take over its groups; there a restart ends the drain.
    """
    with connect_cluster_admin(bootstrap, overrides) as admin:
        left = admin.drain_node(node)
    if not left:
        notice(f"node {node} is drained: it leads nothing")
        return
    named = ", ".join(f"{topic}-{number}" for topic, number in left[:MOST_NAMED])
    more = f" and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
    notice(
        f"node {node} is drained, and still leads {plural(len(left), 'partition')}, of which nobody else is in "
        f"sync, or which are on their way: {named}{more}"
    )


@click.command()
@client_options
@click.argument("node", type=NODE)
def undrain(bootstrap: str, overrides: dict[str, str], node: int) -> None:
    """Let NODE lead again.

    In a cluster, it gets back the partitions whose first replica it is at the next check of the balance
    (leader.imbalance.check.interval.seconds), or immediately by `muster cluster elect --all`.
    """
    with connect_cluster_admin(bootstrap, overrides) as admin:
        admin.drain_node(node, on=False)
    notice(f"node {node} may lead again")


# `elect`
# -------


@click.command()
@client_options
@click.option("--all", "everywhere", is_flag=True, help="Elect wherever a replica other than the first leads.")
@click.option(
    "--unclean", is_flag=True, help="Elect any live replica of one leaderless partition. RECORDS MAY BE LOST."
)
@click.argument("places", nargs=-1, metavar="[TOPIC:PARTITION]...", callback=parse_partitions)
def elect(
    bootstrap: str, overrides: dict[str, str], everywhere: bool, unclean: bool, places: list[tuple[str, int]]
) -> None:
    """Elect the first replica of each partition, if it is in sync.

    What an unclean election lost is counted once the other replicas are back; `muster cluster explain` shows it.
    """
    if everywhere == bool(places):
        raise click.UsageError("which partitions is not said, or said twice; expected TOPIC:PARTITION, or --all")
    if unclean and len(places) != 1:
        raise click.UsageError("--unclean may lose records; expected one TOPIC:PARTITION with it")
    with connect_cluster_admin(bootstrap, overrides) as admin:
        outcomes = admin.elect_leaders(places or None, unclean=unclean)
    report_outcomes("elected leaders of", outcomes)


# `reassign`
# ----------

CANCEL = "cancel"

REASSIGNMENT_COLUMNS = columns("TOPIC:cyan, PARTITION, LEADER, REPLICAS, ISR, ADDING, REMOVING")


def parse_reassignments(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> dict[tuple[str, int], tuple[int, ...] | None]:
    """TOPIC:PARTITION=1,2,3 or TOPIC:PARTITION=cancel."""
    plans: dict[tuple[str, int], tuple[int, ...] | None] = {}
    for word in given:
        place, equals, nodes = word.rpartition("=")
        ids = nodes.split(",")
        if not equals or not (nodes == CANCEL or all(NUMBER.fullmatch(each) for each in ids)):
            raise click.BadParameter(
                f"{word!r} is not a plan; expected TOPIC:PARTITION=NODE,NODE,... or TOPIC:PARTITION={CANCEL}",
                ctx,
                param,
            )
        plans[parse_partition(place, param.human_readable_name)] = None if nodes == CANCEL else tuple(map(int, ids))
    return plans


@click.command()
@client_options
@output_option
@click.argument("plans", nargs=-1, metavar="[TOPIC:PARTITION=NODE,...]...", callback=parse_reassignments)
def reassign(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    plans: dict[tuple[str, int], tuple[int, ...] | None],
) -> None:
    """Reassign replicas; without arguments, show the reassignments in progress.

    The first replica is the preferred leader; TOPIC:PARTITION=cancel cancels. New replicas copy first; once they are
    in sync, the replicas that are no longer named are removed. A shard of groups (__consumer_offsets and __rebalances
    of one number) moves as one.
    """
    from muster.coordinator.observability.views.cluster import partition_row

    with connect_cluster_admin(bootstrap, overrides) as admin:
        if plans:
            report_outcomes("reassigning", admin.reassign_partitions(plans))
            return
        under_way = admin.reassignments()
    if not under_way and style in ("table", "wide"):
        notice("no partition is being reassigned")
        return
    print_rows([partition_row(row) for row in under_way], REASSIGNMENT_COLUMNS, style)


# `spread`
# --------

AT_ONCE = 500
"""Partitions that one request reassigns."""

SPREAD_COLUMNS = columns("TOPIC:cyan, PARTITION, REPLICAS, WILL-BE, ADDING")


@click.command()
@client_options
@output_option
@click.option(
    "--node",
    "nodes",
    type=NODE,
    multiple=True,
    help="Place replicas on this node; may be repeated. Without it, on all live nodes.",
)
@repeated_option("--without", type=NODE, help="Move all replicas off this node, before it is removed")
@repeated_option("--topic", "topics", metavar="TOPIC", help="Only this topic")
@click.option("--replication-factor", type=COUNT, metavar="N", help="Replicas per partition; unchanged if not given.")
@click.option("--execute/--dry-run", default=False, help="Apply the change; without it, only show what would change.")
def spread(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    nodes: tuple[int, ...],
    without: tuple[int, ...],
    topics: tuple[str, ...],
    replication_factor: int | None,
    execute: bool,
) -> None:
    """Spread replicas evenly over all nodes, with few moves.

    Useful after a node was added, before one is removed, or where one node had everything. Replicas of a partition go
    to as many racks as there are. Internal topics are spread too. `muster cluster reassign` shows the progress. First
    replicas lead after the next check of the balance (leader.imbalance.check.interval.seconds), or by `muster cluster
    elect --all`.
    """
    with connect_cluster_admin(bootstrap, overrides) as admin:
        answer = admin.describe_cluster("all", topics)
        report_age(answer)
        plan = plan_spread(answer, set(nodes), set(without), replication_factor)
        print_rows(spread_rows(answer, plan), SPREAD_COLUMNS, style)
        copies = sum(len(set(after) - set(before)) for before, after in spread_pairs(answer, plan))
        notice(f"{plural(len(plan), 'partition')} to change, {plural(copies, 'replica')} to copy")
        if not execute:
            if plan:
                notice("Nothing was changed; add --execute to do it.")
            return
        places = list(plan)
        for start in range(0, len(places), AT_ONCE):
            report_outcomes(
                "reassigning", admin.reassign_partitions({at: plan[at] for at in places[start : start + AT_ONCE]})
            )


def plan_spread(
    answer: "DescribeClusterResponse", only: Collection[int], without: Collection[int], factor: int | None
) -> dict[tuple[str, int], tuple[int, ...]]:
    """Raises CommandError where it cannot be, or some of it moves already."""
    from muster.coordinator.errors import CoordinatorError
    from muster.coordinator.observability.views.cluster import state_word
    from muster.coordinator.replication.protocol.cluster_metadata import LEDGER, TopicPartition
    from muster.coordinator.replication.protocol.replica_placement import NodeRack
    from muster.coordinator.replication.protocol.replica_placement import spread_replicas as spread_out

    up = {node.node_id: node for node in answer.nodes if state_word(node.state) in ("live", "drained")}
    if unknown := sorted((set(only) | set(without)) - {node.node_id for node in answer.nodes}):
        raise CommandError(f"there is no node {unknown[0]}", f"expected one of {sorted(up)}")
    chosen = [
        NodeRack(node, up[node].rack or None)
        for node in sorted(up)
        if (not only or node in only) and node not in without
    ]
    moving = [row for row in answer.partitions if row.adding or row.removing]
    if moving:
        raise CommandError(
            f"{moving[0].topic}-{moving[0].partition} is being reassigned, and {len(moving) - 1} more are",
            "expected none",
            "wait (muster cluster reassign shows how far it is), or cancel it",
        )
    # The halves of a shard have the same replicas: the first speaks for both.
    assigned = {
        TopicPartition(row.topic, row.partition): tuple(row.replicas)
        for row in answer.partitions
        if row.topic != LEDGER
    }
    try:
        return {(at.topic, at.partition): to for at, to in spread_out(assigned, chosen, factor=factor).items()}
    except CoordinatorError as error:
        raise CommandError(str(error)) from None


def spread_rows(
    answer: "DescribeClusterResponse", plan: dict[tuple[str, int], tuple[int, ...]]
) -> list[dict[str, object]]:
    return [
        {
            "topic": row.topic,
            "partition": row.partition,
            "replicas": list(row.replicas),
            "will_be": list(after),
            "adding": [node for node in after if node not in row.replicas],
        }
        for row in answer.partitions
        if (after := plan.get((row.topic, row.partition))) is not None
    ]


def spread_pairs(
    answer: "DescribeClusterResponse", plan: dict[tuple[str, int], tuple[int, ...]]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    before = {(row.topic, row.partition): tuple(row.replicas) for row in answer.partitions}
    return [(before[place], after) for place, after in plan.items()]
