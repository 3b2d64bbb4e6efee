"""`muster cluster status` and `nodes`."""

import click

from muster.cli.common.options import client_options, output_option
from muster.cli.common.output import Column, print_document, print_rows
from muster.cli.nodes.asking import connect_cluster_admin, report_age

STATUS_COLUMNS = [
    Column("CLUSTER", "cluster", style="cyan"),
    Column("CONTROLLER", "controller"),
    Column("NODES", "nodes"),
    Column("UP", "up"),
    Column("PARTITIONS", "partitions"),
    Column("OFFLINE", "offline", style="red"),
    Column("UNDER-MIN-ISR", "under_min_isr", style="red"),
    Column("UNDER-REPLICATED", "under_replicated", style="yellow"),
    Column("CONTROLLER-EPOCH", "controller_epoch", wide=True),
    Column("SEQUENCE", "sequence", wide=True),
]
NODE_COLUMNS = [
    Column("NODE", "node", style="cyan"),
    Column("STATE", "state"),
    Column("ADDRESS", "address"),
    Column("CONTROLLER", "controller"),
    Column("LEADS", "leads"),
    Column("COPIES", "copies"),
    Column("BEHIND", "behind", style="yellow"),
    Column("RACK", "rack", wide=True),
    Column("EPOCH", "epoch", wide=True),
    Column("KNOWS", "known", wide=True),
    Column("LISTENERS", "listeners", wide=True),
]


@click.command()
@client_options
@output_option
def status(bootstrap: str, overrides: dict[str, str], style: str) -> None:
    """Show who is controller, and how many partitions want for something.

    OFFLINE: nobody leads them. UNDER-MIN-ISR: they take no records with acks=all. UNDER-REPLICATED: a copy is behind
    or gone. `muster health` exits with 4 while one of the first two is not 0.

    A node that is cut off from the cluster tells how it stood when it last heard of it, and says so: exit code 4.
    """
    from muster.coordinator.observability.views.cluster import cluster_row

    with connect_cluster_admin(bootstrap, overrides) as admin:
        answer = admin.describe_cluster()
    row = cluster_row(answer)
    if style in ("json", "yaml"):
        print_document(row, style)
    else:
        print_rows([row], STATUS_COLUMNS, style)
    report_age(answer)


@click.command()
@client_options
@output_option
def nodes(bootstrap: str, overrides: dict[str, str], style: str) -> None:
    """List the nodes: up or gone, how many partitions each leads and has copies of, how many of these are behind.

    KNOWS: how many changes of the cluster it has taken in, where the controller is asked.
    """
    from muster.coordinator.observability.views.cluster import node_row

    with connect_cluster_admin(bootstrap, overrides) as admin:
        answer = admin.describe_cluster()
    print_rows([node_row(node, answer) for node in answer.nodes], NODE_COLUMNS, style)
    report_age(answer)
