"""`muster cluster reassign`."""

import click

from muster.cli.common.options import client_options, output_option
from muster.cli.common.output import Column, notice, print_rows
from muster.cli.nodes.asking import NUMBER, connect_cluster_admin, parse_partition, report_outcomes

CANCEL = "cancel"

REASSIGNMENT_COLUMNS = [
    Column("TOPIC", "topic", style="cyan"),
    Column("PARTITION", "partition"),
    Column("LEADER", "leader"),
    Column("REPLICAS", "replicas"),
    Column("ISR", "isr"),
    Column("ADDING", "adding"),
    Column("REMOVING", "removing"),
]


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
                f"{word!r} is no plan; expected TOPIC:PARTITION=NODE,NODE,... or TOPIC:PARTITION={CANCEL}", ctx, param
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
    """Give partitions other replicas, the first of which is to lead; TOPIC:PARTITION=cancel leaves off.

    Those that are added copy first; when they are in sync, those that are no more named go. Without arguments: show
    what is under way. A shard of groups (__consumer_offsets and __rebalances of one number) moves as one.
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
