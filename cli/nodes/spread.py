"""`muster cluster spread`."""

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from muster.cli.common.errors import CommandError
from muster.cli.common.options import COUNT, client_options, output_option
from muster.cli.common.output import Column, notice, print_rows
from muster.cli.nodes.asking import NODE, connect_cluster_admin, report_age, report_outcomes
from muster.coordinator.observability.views.formatting import plural

if TYPE_CHECKING:
    from muster.coordinator.rpc.v1.cluster_service_pb2 import DescribeClusterResponse

AT_ONCE = 500
"""Partitions that one request reassigns."""

SPREAD_COLUMNS = [
    Column("TOPIC", "topic", style="cyan"),
    Column("PARTITION", "partition"),
    Column("REPLICAS", "replicas"),
    Column("WILL-BE", "will_be"),
    Column("ADDING", "adding"),
]


@click.command()
@client_options
@output_option
@click.option("--node", "nodes", type=NODE, multiple=True, help="Onto these nodes only; may be repeated. Else: all up.")
@click.option("--without", type=NODE, multiple=True, help="Off this node, before it goes for good; may be repeated.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Of this topic only; may be repeated.")
@click.option("--replication-factor", type=COUNT, metavar="N", help="So many replicas each. Else: as many as now.")
@click.option("--execute/--dry-run", default=False, help="Do it; without, only show what would be done.")
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
    """Spread replicas over all nodes: after a node came, before one goes, or where one node had everything.

    As little moves as that takes, and replicas of a partition go to as many racks as there are. Internal topics are
    spread too. `muster cluster reassign` shows how far it is. First replicas lead with the next look at the balance
    (leader.imbalance.check.interval.seconds), or by `muster cluster elect --all`.
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
    from muster.coordinator.replication.protocol.facts import LEDGER, TopicPartition
    from muster.coordinator.replication.protocol.placement import NodeRack
    from muster.coordinator.replication.protocol.spreading import spread_replicas as spread_out

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
