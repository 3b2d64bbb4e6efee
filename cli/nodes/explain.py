"""`muster cluster explain`: the ledger of elections."""

from typing import TYPE_CHECKING

import click

from muster.cli.common.options import COUNT, client_options, output_option
from muster.cli.common.output import Column, notice, print_document, print_rows
from muster.cli.nodes.asking import connect_cluster_admin
from muster.coordinator.observability.views.formatting import host_and_port

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.coordinator.rpc.v1.cluster_service_pb2 import Election

NOT_HERE = 6
LEDGER = "__elections"

ELECTION_COLUMNS = [
    Column("DECIDED", "decided"),
    Column("UNIT", "unit", style="cyan"),
    Column("FROM", "from"),
    Column("TO", "to"),
    Column("HOW", "clean"),
    Column("TOOK", "took"),
    Column("LOST", "lost", style="red"),
    Column("CAUSE", "cause", style="yellow"),
    Column("EPOCH", "epoch", wide=True),
    Column("ISR", "isr", wide=True),
    Column("ELR", "elr", wide=True),
]


@click.command()
@client_options
@output_option
@click.option("--limit", type=COUNT, default=50, show_default=True, help="The last N elections.")
@click.option("--topic", default="", metavar="TOPIC", help="Of this topic only.")
def explain(bootstrap: str, overrides: dict[str, str], style: str, limit: int, topic: str) -> None:
    """Tell why leaders changed, the youngest election first.

    HOW: isr, the new leader was in sync; elr, it had all that was committed; last known, it was the last in sync and
    may lack what it had not flushed; unclean, records may be lost; offline, nobody could lead. LOST: records that were
    cut off afterwards. A shard of groups goes by the name of its first half, __consumer_offsets-N.
    """
    from muster.coordinator.observability.views.cluster import election_document, election_row, lost_lines

    with connect_cluster_admin(bootstrap, overrides) as admin:
        found = fetch_elections(admin, limit, topic)
    if style in ("json", "yaml"):
        print_document([election_document(one) for one in found], style)
        return
    print_rows([election_row(one) for one in found], ELECTION_COLUMNS, style)
    for line in lost_lines(found):
        notice(line)


def fetch_elections(admin: "Admin", limit: int, topic: str) -> "list[Election]":
    """Of the node that is asked, or of another, if that has no copy of the ledger."""
    from muster.client.errors import Refused

    try:
        return admin.explain_elections(limit, topic)
    except Refused as error:
        if error.code != NOT_HERE:
            raise
        answer = admin.describe_cluster("all", [LEDGER])
        addresses = {node.node_id: host_and_port(node.host, node.port) for node in answer.nodes if node.host}
        leaders = [row.leader_id for row in answer.partitions if row.leader_id in addresses]
        if not leaders:
            raise
    return admin.explain_elections(limit, topic, address=addresses[leaders[0]])
