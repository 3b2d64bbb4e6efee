"""`muster cluster partitions`."""

from typing import Any

import click

from muster.cli.common.options import client_options, output_option
from muster.cli.common.output import Column, print_rows
from muster.cli.nodes.asking import connect_cluster_admin, report_age

PARTITION_COLUMNS = [
    Column("TOPIC", "topic", style="cyan"),
    Column("PARTITION", "partition"),
    Column("LEADER", "leader"),
    Column("REPLICAS", "replicas"),
    Column("ISR", "isr"),
    Column("ELR", "elr"),
    Column("OFFLINE", "offline", style="red"),
    Column("LEADER-EPOCH", "leader_epoch", wide=True),
    Column("MIN-ISR", "min_isr", wide=True),
    Column("ADDING", "adding", wide=True),
    Column("REMOVING", "removing", wide=True),
]
"""Kafka's, as `topics describe` has them."""


@click.command()
@client_options
@output_option
@click.option("--under-replicated", "wanted", flag_value="under-replicated", help="Those with a copy behind or gone.")
@click.option("--under-min-isr", "wanted", flag_value="under-min-isr", help="Those that take no records with acks=all.")
@click.option("--offline", "wanted", flag_value="offline", help="Those that nobody leads.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Of this topic; may be repeated.")
def partitions(bootstrap: str, overrides: dict[str, str], style: str, wanted: Any, topics: tuple[str, ...]) -> None:
    """Show who leads each partition, who has copies, and who of them is in sync (ISR).

    ELR: in sync no more, and with all that was committed; they may lead.
    """
    from muster.coordinator.observability.views.cluster import partition_row

    with connect_cluster_admin(bootstrap, overrides) as admin:
        answer = admin.describe_cluster(wanted or "all", topics)
    print_rows([partition_row(row) for row in answer.partitions], PARTITION_COLUMNS, style)
    report_age(answer)
