"""`muster cluster status`, `nodes`, `partitions` and `explain`: the state of a cluster, and why leaders changed.

The rest of the commands of `muster cluster` take from here how they connect to a node, how partitions are named
(TOPIC:PARTITION), and how they report what was done and what was refused. `explain` reads the ledger of elections.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

from muster.cli.common.commands import CommandError, Exit, Unhealthy
from muster.cli.common.options import COUNT, client_options, connect_admin, output_option, repeated_option
from muster.cli.common.output import columns, notice, print_document, print_rows
from muster.coordinator.observability.views.formatting import host_and_port, plural

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.coordinator.rpc.v1.cluster_service_pb2 import DescribeClusterResponse, Election


# Connection, names and outcomes
# ------------------------------

NODE = click.IntRange(0, 2**31 - 1)
NUMBER = re.compile("[0-9]{1,10}", re.ASCII)


class PartitionOutcome(Protocol):
    """What became of one partition."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str: ...


@contextmanager
def connect_cluster_admin(bootstrap: str, overrides: dict[str, str]) -> "Iterator[Admin]":
    """An admin client of a node that is one of a cluster. Raises CommandError (3) if it is on its own."""
    from muster.client.errors import TransportRefused

    try:
        with connect_admin(bootstrap, overrides) as admin:
            yield admin
    except TransportRefused as error:
        if error.status != "UNIMPLEMENTED":
            raise
        raise CommandError(
            f"{error.address} is no part of a cluster",
            "expected a node with inter.broker.listeners and zookeeper.connect",
            "name one with --bootstrap; over a Kafka ask `muster engine status`",
            code=Exit.NOT_FOUND,
        ) from None


def parse_partition(word: str, param_hint: str | None = None) -> tuple[str, int]:
    """TOPIC:PARTITION. Raises BadParameter.

    >>> parse_partition("orders:3")
    ('orders', 3)
    """
    topic, colon, number = word.rpartition(":")
    if not (topic and colon and NUMBER.fullmatch(number)):
        raise click.BadParameter(f"{word!r} names no partition; expected TOPIC:PARTITION", param_hint=param_hint)
    return topic, int(number)


def parse_partitions(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> list[tuple[str, int]]:
    return list(dict.fromkeys(parse_partition(word, param.human_readable_name) for word in given))


def report_age(answer: "DescribeClusterResponse") -> None:
    """Say how old it is, where that is worth a word. Raises Unhealthy (4) where the node that told it is cut off."""
    from muster.coordinator.observability.views.cluster import age_words

    if answer.cut_off:
        raise Unhealthy(age_words(answer))
    if age := age_words(answer):
        notice(age)


def report_outcomes(done: str, outcomes: Iterable[PartitionOutcome]) -> None:
    """What was done, and what was refused. Raises CommandError (1) if anything was."""
    outcomes = list(outcomes)
    refused = [each for each in outcomes if each.error_code]
    if len(outcomes) > len(refused) or not outcomes:
        notice(f"{done} {plural(len(outcomes) - len(refused), 'partition')}")
    if refused:
        raise CommandError("\n".join(each.error_message for each in refused))


# `status` and `nodes`
# --------------------

STATUS_COLUMNS = columns(
    "CLUSTER:cyan, CONTROLLER, NODES, UP, PARTITIONS, OFFLINE:red, UNDER-MIN-ISR:red, UNDER-REPLICATED:yellow, "
    "CONTROLLER-EPOCH+, SEQUENCE+"
)
LEFT_OUT = "topic-left-out:"
"""Conditions whose names begin so are about topics in ZooKeeper that no controller can take in."""
NODE_COLUMNS = columns(
    "NODE:cyan, STATE, ADDRESS, CONTROLLER, LEADS, COPIES, BEHIND:yellow, RACK+, EPOCH+, KNOWS=known+, LISTENERS+"
)


@click.command()
@client_options
@output_option
def status(bootstrap: str, overrides: dict[str, str], style: str) -> None:
    """Show the controller and the number of unhealthy partitions.

    OFFLINE: partitions without a leader. UNDER-MIN-ISR: partitions that take no records with acks=all.
    UNDER-REPLICATED: a replica is behind or gone. `muster health` exits with 4 while one of the first two is not 0.

    Topics that are in ZooKeeper and cannot be taken in are named on standard error.

    A node that is cut off from the cluster shows the state that it last knew, and exits with 4.
    """
    from muster.coordinator.observability.views.cluster import cluster_row

    with connect_cluster_admin(bootstrap, overrides) as admin:
        answer = admin.describe_cluster()
        wrong = admin.conditions()
    row = cluster_row(answer)
    if style in ("json", "yaml"):
        print_document(row, style)
    else:
        print_rows([row], STATUS_COLUMNS, style)
    for condition in wrong:
        if condition.name.startswith(LEFT_OUT):
            notice(condition.sentence)
    report_age(answer)


@click.command()
@client_options
@output_option
def nodes(bootstrap: str, overrides: dict[str, str], style: str) -> None:
    """List nodes and what they lead, hold and lag behind on.

    KNOWS: how many changes of the cluster the node has applied, where the controller is asked.
    """
    from muster.coordinator.observability.views.cluster import node_row

    with connect_cluster_admin(bootstrap, overrides) as admin:
        answer = admin.describe_cluster()
    print_rows([node_row(node, answer) for node in answer.nodes], NODE_COLUMNS, style)
    report_age(answer)


# `partitions`
# ------------

PARTITION_COLUMNS = columns(
    "TOPIC:cyan, PARTITION, LEADER, REPLICAS, ISR, ELR, OFFLINE:red, LEADER-EPOCH+, MIN-ISR+, ADDING+, REMOVING+"
)
"""Kafka's, as `topics describe` has them."""


@click.command()
@client_options
@output_option
@click.option(
    "--under-replicated", "wanted", flag_value="under-replicated", help="Only partitions with a replica behind or gone."
)
@click.option("--under-min-isr", "wanted", flag_value="under-min-isr", help="Only partitions that refuse acks=all.")
@click.option("--offline", "wanted", flag_value="offline", help="Only partitions without a leader.")
@repeated_option("--topic", "topics", metavar="TOPIC", help="Only this topic")
def partitions(bootstrap: str, overrides: dict[str, str], style: str, wanted: Any, topics: tuple[str, ...]) -> None:
    """Show leader, replicas and ISR of each partition.

    ELR: replicas that left the ISR and still have everything that is committed; they may be elected.
    """
    from muster.coordinator.observability.views.cluster import partition_row

    with connect_cluster_admin(bootstrap, overrides) as admin:
        answer = admin.describe_cluster(wanted or "all", topics)
    print_rows([partition_row(row) for row in answer.partitions], PARTITION_COLUMNS, style)
    report_age(answer)


# `explain`
# ---------

NOT_HERE = 6
LEDGER = "__elections"

ELECTION_COLUMNS = columns("DECIDED, UNIT:cyan, FROM, TO, HOW=clean, TOOK, LOST:red, CAUSE:yellow, EPOCH+, ISR+, ELR+")


@click.command()
@client_options
@output_option
@click.option("--limit", type=COUNT, default=50, show_default=True, help="Show the last N elections.")
@click.option("--topic", default="", metavar="TOPIC", help="Only this topic.")
def explain(bootstrap: str, overrides: dict[str, str], style: str, limit: int, topic: str) -> None:
    """Explain leader changes, newest first.

    HOW: isr, the new leader was in sync; elr, it had everything that was committed; last known, it was the last in
    sync and may lack what it had not flushed; unclean, records may be lost; offline, no replica could lead. LOST:
    records that were truncated afterwards. A shard of groups has the name of its first half, __consumer_offsets-N.
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
