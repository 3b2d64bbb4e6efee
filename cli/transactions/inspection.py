"""`muster transactions list`, `describe` and `describe-producers`, with the columns of Kafka's tool."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.commands import Unhealthy
from muster.cli.common.options import client_options, connect_admin, output_option, repeated_option
from muster.cli.common.output import Column, columns, print_rows

if TYPE_CHECKING:
    from muster.client.described import ProducerDescription, TransactionDescription

NUMBER = click.IntRange(0, 2**31 - 1)
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")

LIST_COLUMNS = columns(
    "TransactionalId=transactional_id:cyan, Coordinator=coordinator_id, ProducerId=producer_id, TransactionState=state"
)
DESCRIBE_COLUMNS = columns(
    "CoordinatorId=coordinator_id, TransactionalId=transactional_id:cyan, ProducerId=producer_id, "
    "ProducerEpoch=producer_epoch, TransactionState=state, TransactionTimeoutMs=timeout_ms, "
    "CurrentTransactionStartTimeMs=start_time_ms, TransactionDurationMs=duration_ms, TopicPartitions=partitions, "
    "ClientAddress=client_address+, ClientSoftware=client_software+"
)
PRODUCER_COLUMNS = columns(
    "ProducerId=producer_id, ProducerEpoch=producer_epoch, LatestCoordinatorEpoch=coordinator_epoch, "
    "LastSequence=last_sequence, LastTimestamp=last_timestamp_ms, "
    "CurrentTransactionStartOffset=transaction_start_offset"
)


def print_with_none(rows: Sequence[dict[str, Any]], shown: Sequence[Column], style: str) -> None:
    """People read None where there is nothing, as Kafka prints it."""
    if style in ("table", "wide"):
        rows = [{key: "None" if value is None else value for key, value in row.items()} for row in rows]
    print_rows(rows, shown, style)


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@click.command("list")
@client_options
@output_option
@click.option(
    "--duration-filter",
    "open_longer_than_ms",
    type=click.IntRange(0),
    metavar="MS",
    help="Only ids with a transaction open for longer than MS milliseconds.",
)
@click.option(
    "--transactional-id-pattern",
    "pattern",
    default="",
    metavar="RE",
    help="Only ids that this regular expression (RE2) matches as a whole.",
)
@repeated_option("--state", "states", type=click.Choice(STATES, case_sensitive=False), help="Only ids in this state")
def list_(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    open_longer_than_ms: int | None,
    pattern: str,
    states: tuple[str, ...],
) -> None:
    """List transactional ids, of all nodes.

    Exit code 4 when a node cannot report some ids; these are missing from the list.
    """
    untold: list[str] = []
    with connect_admin(bootstrap, overrides) as admin:
        found = admin.list_transactions(
            states, open_longer_than_ms=open_longer_than_ms, pattern=pattern, missing=untold.append
        )
    print_rows(
        [{column.key: getattr(each, column.key) for column in LIST_COLUMNS} for each in found], LIST_COLUMNS, style
    )
    if untold:
        raise Unhealthy("\n".join(f"transactional ids are missing in this list: {sentence}" for sentence in untold))


@click.command()
@client_options
@output_option
@click.option("--transactional-id", required=True, metavar="ID", help="Transactional id.")
def describe(bootstrap: str, overrides: dict[str, str], style: str, transactional_id: str) -> None:
    """Show the state of a transactional id, and what it has open.

    With -o wide, json, yaml or csv, also shows the address and software of its producer.
    """
    with connect_admin(bootstrap, overrides) as admin:
        found = admin.describe_transaction(transactional_id)
    print_with_none([describe_row(found, wall_clock_ms(), style)], DESCRIBE_COLUMNS, style)


def describe_row(found: "TransactionDescription", now_ms: int, style: str) -> dict[str, Any]:
    """Partitions are one text for people, and a list for programs."""
    row = {column.key: getattr(found, column.key, None) for column in DESCRIBE_COLUMNS}
    row["duration_ms"] = None if found.start_time_ms is None else max(0, now_ms - found.start_time_ms)
    partitions = [f"{topic}-{number}" for topic, number in found.partitions]
    row["partitions"] = ",".join(partitions) if style in ("table", "wide") else partitions
    return row | {key: row[key] or None for key in ("client_address", "client_software")}


@click.command("describe-producers")
@client_options
@output_option
@click.option("--topic", required=True, metavar="T", help="Topic.")
@click.option("--partition", required=True, type=NUMBER, metavar="P", help="Partition.")
def describe_producers(bootstrap: str, overrides: dict[str, str], style: str, topic: str, partition: int) -> None:
    """Show the producers that a partition knows.

    A producer with an open transaction has a start offset.
    """
    with connect_admin(bootstrap, overrides) as admin:
        ((_, found),) = admin.describe_producers([(topic, partition)]).items()
    print_with_none([producer_row(each) for each in found], PRODUCER_COLUMNS, style)


def producer_row(producer: "ProducerDescription") -> dict[str, Any]:
    return {column.key: getattr(producer, column.key) for column in PRODUCER_COLUMNS}
