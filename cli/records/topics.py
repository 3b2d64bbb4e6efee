"""`muster topics`: create, list, describe, alter, delete and widen topics."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from muster.cli.common.options import COUNT, client_options, connect_admin, key_values, output_option, repeated_option
from muster.cli.common.output import Column, columns, notice, print_document, print_rows
from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.observability.views.topics import PartitionRow, partition_rows, topic_document, topic_row

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.client.types import TopicPartition

EARLIEST, LATEST = -2, -1
TOPIC_COLUMNS = [Column("TOPIC", "topic", style="cyan"), Column("#PARTITIONS", "partitions")]
PARTITION_COLUMNS = columns("TOPIC:cyan, PARTITION, LOG-START-OFFSET, LOG-END-OFFSET, RECORDS")
COPY_COLUMNS = columns("LEADER, REPLICAS, ISR, ELR, OFFLINE:red")
"""Kafka's, on a node of a cluster."""


@click.group()
def topics() -> None:
    """Manage topics."""


@topics.command()
@client_options
@click.argument("name")
@click.option("--partitions", type=COUNT, default=1, show_default=True, metavar="N")
@repeated_option(
    "--config",
    "configs",
    metavar="KEY=VALUE",
    callback=key_values,
    help="Setting of the topic, such as retention.ms=3600000",
)
@click.option(
    "--replication-factor",
    type=COUNT,
    metavar="N",
    help="Replicas of each partition in a cluster; default.replication.factor if not given.",
)
def create(
    bootstrap: str,
    overrides: dict[str, str],
    name: str,
    partitions: int,
    configs: dict[str, str],
    replication_factor: int | None,
) -> None:
    """Create topic NAME."""
    with connect_admin(bootstrap, overrides) as admin:
        made = admin.create_topic(name, partitions, configs, replication_factor=replication_factor)
    notice(f"created {made.name} with {plural(made.partitions, 'partition')}")


@topics.command("list")
@client_options
@output_option
@click.option("--internal", is_flag=True, help="Include internal topics.")
def list_(bootstrap: str, overrides: dict[str, str], style: str, internal: bool) -> None:
    """List topics and their partition counts."""
    with connect_admin(bootstrap, overrides) as admin:
        counts = admin.list_topics(internal)
    print_rows([topic_row(topic, count) for topic, count in counts.items()], TOPIC_COLUMNS, style)


@topics.command()
@client_options
@output_option
@click.argument("name")
def describe(bootstrap: str, overrides: dict[str, str], style: str, name: str) -> None:
    """Show the partitions of topic NAME.

    With -o wide, json or yaml, also shows its settings; in a cluster, also each partition's leader, replicas, ISR, ELR
    and offline replicas. Names the transactions that hold back read_committed readers for too long.
    """
    with connect_admin(bootstrap, overrides) as admin:
        topic = admin.describe_topic(name)
        numbers = range(topic.partitions)
        starts = admin.list_offsets({(name, number): EARLIEST for number in numbers})
        ends = admin.list_offsets({(name, number): LATEST for number in numbers})
        copies = admin.topic_copies(name)
        standing = admin.describe_cluster() if copies else None
        late = who_holds_readers_back(admin, {tp: end.offset for tp, end in ends.items()})
    rows: Sequence[PartitionRow] = partition_rows(
        name, ((tp.partition, start.offset, ends[tp].offset) for tp, start in starts.items())
    )
    columns = PARTITION_COLUMNS
    if copies:
        from muster.coordinator.observability.views.cluster import add_replicas

        rows, columns = add_replicas(rows, copies), [*PARTITION_COLUMNS, *COPY_COLUMNS]
    if style in ("json", "yaml"):
        print_document(topic_document(name, topic.topic_id, topic.internal, rows, topic.configs), style)
    else:
        print_rows(rows, columns, style)
    if style == "wide":
        settings = [{"setting": key, "value": value} for key, value in sorted(topic.configs.items())]
        print_rows(settings, [Column("SETTING", "setting"), Column("VALUE", "value")], style)
    for sentence in late:
        notice(sentence)
    if standing is not None:
        from muster.cli.nodes.cluster import report_age

        report_age(standing)


def who_holds_readers_back(admin: "Admin", ends: "dict[TopicPartition, int]") -> list[str]:
    """In sentences; nothing where the node tells no last stable offsets."""
    from muster.cli.transactions.explain import late_holders
    from muster.cli.transactions.inspection import wall_clock_ms
    from muster.client.errors import ClientError

    try:
        stable = admin.list_offsets(dict.fromkeys(ends, LATEST), "read_committed")
    except ClientError:
        return []
    try:
        return late_holders(admin, ends, {tp: found.offset for tp, found in stable.items()}, wall_clock_ms())
    except ClientError as error:
        return [f"transactions hold readers of committed records back; whether for long is not known: {error}"]


@topics.command()
@client_options
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def delete(bootstrap: str, overrides: dict[str, str], names: tuple[str, ...]) -> None:
    """Delete topics and all their records."""
    with connect_admin(bootstrap, overrides) as admin:
        admin.delete_topics(names)
    notice(f"deleted {', '.join(names)}")


@topics.command()
@client_options
@click.argument("name")
@repeated_option(
    "--config",
    "configs",
    metavar="KEY=VALUE",
    callback=key_values,
    help="New value of a setting, such as retention.ms=3600000",
)
@repeated_option("--unset", metavar="KEY", help="Reset a setting to the node's default")
@click.option("--dry-run", is_flag=True, help="Check the change without applying it.")
def alter(
    bootstrap: str, overrides: dict[str, str], name: str, configs: dict[str, str], unset: tuple[str, ...], dry_run: bool
) -> None:
    """Change settings of topic NAME.

    `muster topics describe NAME -o wide` lists them.
    """
    if not configs and not unset:
        raise click.UsageError("there is nothing to change; expected --config KEY=VALUE or --unset KEY")
    both = sorted(set(configs) & set(unset))
    if both:
        raise click.UsageError(f"{both[0]} is both set and unset; expected one of --config and --unset")
    with connect_admin(bootstrap, overrides) as admin:
        before = admin.describe_configs(name)
        admin.alter_topic(name, configs, unset, validate_only=dry_run)
        after = before | configs if dry_run else admin.describe_configs(name)
    for key in (*configs, *unset):
        was, is_now = before.get(key), "the node's value" if dry_run and key in unset else after.get(key)
        notice(f"{name}: {key} {'would be' if dry_run else 'is'} {is_now}, was {was}")


@topics.command("add-partitions")
@client_options
@click.argument("name")
@click.argument("total", type=COUNT, metavar="N")
def add_partitions(bootstrap: str, overrides: dict[str, str], name: str, total: int) -> None:
    """Increase topic NAME to N partitions.

    From then on, keys go to other partitions.
    """
    with connect_admin(bootstrap, overrides) as admin:
        now = admin.create_partitions(name, total)
    notice(f"{name} has {plural(now, 'partition')} now")
