"""`muster transactions find-hanging`: which of the transactions that logs have open nobody will end.

Readers of committed records stop in front of them. A coordinator ends what is in its transaction. What a log has open
hangs if no coordinator knows the producer, if the producer's transaction does not have this partition, or if the
producer has an epoch by now that is not the log's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.commands import CommandError, Exit
from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import columns
from muster.cli.transactions.inspection import NUMBER, print_with_none, producer_row, wall_clock_ms

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.client.described import ProducerDescription, TransactionDescription
    from muster.client.errors import Refused
    from muster.client.types import TopicPartition

DEFAULT_TIMEOUT_MIN = 15
MINUTE_MS = 60_000
ONGOING = "Ongoing"
DECIDED = frozenset({"PrepareCommit", "PrepareAbort"})

HANGING_COLUMNS = columns(
    "Topic=topic:cyan, Partition=partition, ProducerId=producer_id, ProducerEpoch=producer_epoch, "
    "CoordinatorEpoch=coordinator_epoch, StartOffset=transaction_start_offset, LastTimestamp=last_timestamp_ms, "
    "Duration(min)=duration_min, TransactionalId=transactional_id+"
)


@dataclass(frozen=True)
class PartitionTransaction:
    """What a producer has open in one partition. `described`: what the coordinator of its id says, if one knows it."""

    place: "TopicPartition"
    producer: "ProducerDescription"
    described: "TransactionDescription | None" = None

    @property
    def hangs(self) -> bool:
        return self.keeper is None

    @property
    def keeper(self) -> "TransactionDescription | None":
        """The transaction that it belongs to; None: nobody will end it."""
        found = self.described
        if found is None or self.place not in found.partitions:
            return None
        if found.state in DECIDED:  # Its markers are on their way, with this epoch or the next one.
            return found
        return found if found.state == ONGOING and found.producer_epoch == self.producer.producer_epoch else None


def open_for_long(
    producers: "Mapping[TopicPartition, Iterable[ProducerDescription]]", now_ms: int, timeout_ms: int
) -> list[PartitionTransaction]:
    """Open ones whose producer has written nothing there for `timeout_ms`, by partition and beginning."""
    return sorted(
        (
            PartitionTransaction(place, each)
            for place, known in producers.items()
            for each in known
            if each.transaction_start_offset is not None and now_ms - each.last_timestamp_ms >= timeout_ms
        ),
        key=lambda found: (found.place, found.producer.transaction_start_offset),
    )


def ask_coordinators(admin: "Admin", found: Iterable[PartitionTransaction]) -> list[PartitionTransaction]:
    """The same, with what the coordinators of their producers say. Raises where one does not answer."""
    from muster.client.errors import TransactionalIdNotFound

    waiting = list(found)
    if not waiting:
        return []
    listed = admin.list_transactions(producer_ids=sorted({each.producer.producer_id for each in waiting}))
    described: dict[int, TransactionDescription] = {}
    for listing in listed:
        try:
            told = admin.describe_transaction(listing.transactional_id)
        except TransactionalIdNotFound:
            continue  # It has expired meanwhile.
        described[told.producer_id] = described[listing.producer_id] = told
    return [
        PartitionTransaction(each.place, each.producer, described.get(each.producer.producer_id)) for each in waiting
    ]


@click.command("find-hanging")
@client_options
@output_option
@click.option("--broker-id", type=NUMBER, metavar="N", help="Only partitions that node N leads.")
@click.option("--topic", metavar="T", help="Only partitions of this topic.")
@click.option("--partition", type=NUMBER, metavar="P", help="With --topic: only this partition.")
@click.option(
    "--max-transaction-timeout",
    "timeout_min",
    type=NUMBER,
    default=DEFAULT_TIMEOUT_MIN,
    show_default=True,
    metavar="MIN",
    help="Only transactions without a new record for MIN minutes.",
)
def find_hanging(
    bootstrap: str,
    overrides: dict[str, str],
    style: str,
    broker_id: int | None,
    topic: str | None,
    partition: int | None,
    timeout_min: int,
) -> None:
    """Find hanging transactions: open in a log, and unknown to every coordinator.

    Searches all partitions unless options limit them. `muster transactions abort` ends one.
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic, which says of what")
    unseen: dict[TopicPartition, Refused] = {}
    with connect_admin(bootstrap, overrides) as admin:
        places = places_to_search(admin, broker_id, topic, partition)
        known = admin.describe_producers(places, unseen.__setitem__)
        now_ms = wall_clock_ms()
        candidates = open_for_long(known, now_ms, timeout_min * MINUTE_MS)
        hanging = [each for each in ask_coordinators(admin, candidates) if each.hangs]
    print_with_none([hanging_row(each, now_ms) for each in hanging], HANGING_COLUMNS, style)
    if unseen:
        raise incomplete(unseen)


def places_to_search(
    admin: "Admin", broker_id: int | None, topic: str | None, partition: int | None
) -> "list[TopicPartition]":
    """All partitions that the options mean. Raises CommandError for a node that there is not, UnknownTopic."""
    from muster.client.types import TopicPartition

    counts = admin.list_topics(include_internal=True)
    if topic is not None:
        counts = {topic: counts[topic] if topic in counts else admin.describe_topic(topic).partitions}
    places = [TopicPartition(name, number) for name, count in sorted(counts.items()) for number in range(count)]
    if partition is not None:
        places = [TopicPartition(str(topic), partition)]
    if broker_id is None:
        return places
    led = partitions_led_by(admin, broker_id)
    return places if led is None else [place for place in places if place in led]


def partitions_led_by(admin: "Admin", broker_id: int) -> "set[tuple[str, int]] | None":
    """None: all, on a node of its own. Raises CommandError for a node that there is not."""
    from muster.client.errors import TransportRefused

    nodes = sorted(admin.nodes().values())
    if broker_id not in nodes:
        known = ", ".join(map(str, nodes))
        raise CommandError(f"there is no node {broker_id}", f"expected one of {known}", code=Exit.NOT_FOUND)
    try:
        told = admin.describe_cluster("all")
    except TransportRefused as error:
        if error.status != "UNIMPLEMENTED":
            raise
        return None
    return {(each.topic, each.partition) for each in told.partitions if each.leader_id == broker_id}


def hanging_row(found: PartitionTransaction, now_ms: int) -> dict[str, Any]:
    return {
        **producer_row(found.producer),
        "topic": found.place.topic,
        "partition": found.place.partition,
        "duration_min": (now_ms - found.producer.last_timestamp_ms) // MINUTE_MS,
        "transactional_id": None if found.described is None else found.described.transactional_id,
    }


def incomplete(unseen: "Mapping[TopicPartition, Refused]") -> CommandError:
    """What was not looked at may hang all the same."""
    (place, why), others = next(iter(unseen.items())), len(unseen) - 1
    more = f", nor at {others} others" if others else ""
    return CommandError(
        f"could not look at {place.topic}-{place.partition}{more}", str(why), "what hangs there is not shown"
    )
