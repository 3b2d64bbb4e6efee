"""`muster groups members`: who is in the group, and with what."""

import click

from muster.coordinator.cli.common.options import admin_of, client_options, output_option
from muster.coordinator.cli.common.output import Column, show
from muster.coordinator.cli.groups.both import ZOOKEEPER, say_who_else
from muster.coordinator.cli.groups.describe import say_what_is_old, say_what_stands_out
from muster.coordinator.cli.groups.which import group_argument

COLUMNS = [
    Column("GROUP", "group"),
    Column("CONSUMER-ID", "consumer_id", style="cyan"),
    Column("GROUP-INSTANCE-ID", "group_instance_id"),
    Column("HOST", "host"),
    Column("CLIENT-ID", "client_id"),
    Column("SOFTWARE", "client_software", wide=True),
    Column("#PARTITIONS", "partitions"),
    Column("ASSIGNMENT", "assignment", wide=True),
]


@click.command()
@client_options
@output_option
@group_argument
def members(bootstrap: str, overrides: dict[str, str], style: str, group: str) -> None:
    """Show the members of GROUP; wide adds what each owns, and what its client runs."""
    with admin_of(bootstrap, overrides) as admin:
        found = admin.describe_group(group)
        say_who_else(admin, found)
        if found.protocol_type == ZOOKEEPER and admin.zookeeper_away():
            say_what_is_old(found)
    say_what_stands_out(found)
    rows = [
        {
            "group": found.group_id,
            "consumer_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            "host": member.client_host,
            "client_id": member.client_id,
            "client_software": member.client_software or None,
            "partitions": len(member.assignment),
            "assignment": assignment_text(member.assignment),
        }
        for member in found.members
    ]
    show(rows, COLUMNS, style)


def assignment_text(partitions: tuple[tuple[str, int], ...]) -> str | None:
    """As Kafka's tool writes it.

    >>> assignment_text((("a", 0), ("a", 2), ("b", 1)))
    'a(0,2), b(1)'
    """
    by_topic: dict[str, list[str]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(str(number))
    return ", ".join(f"{topic}({','.join(numbers)})" for topic, numbers in by_topic.items()) or None
