"""Which of the transactions that logs have open nobody will end.

A coordinator ends what is in its transaction. What a log has open hangs if no coordinator knows the producer, if the
producer's transaction does not have this partition, or if the producer has an epoch by now that is not the log's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.client.described import ProducerState, TransactionDescription
    from muster.client.types import TopicPartition

MINUTE_MS = 60_000
ONGOING = "Ongoing"
DECIDED = frozenset({"PrepareCommit", "PrepareAbort"})


@dataclass(frozen=True)
class OpenTransaction:
    """What a producer has open in one partition. `described`: what the coordinator of its id says, if one knows it."""

    place: "TopicPartition"
    producer: "ProducerState"
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
    producers: "Mapping[TopicPartition, Iterable[ProducerState]]", now_ms: int, timeout_ms: int
) -> list[OpenTransaction]:
    """Open ones whose producer has written nothing there for `timeout_ms`, by partition and beginning."""
    return sorted(
        (
            OpenTransaction(place, each)
            for place, known in producers.items()
            for each in known
            if each.transaction_start_offset is not None and now_ms - each.last_timestamp_ms >= timeout_ms
        ),
        key=lambda found: (found.place, found.producer.transaction_start_offset),
    )


def ask_coordinators(admin: "Admin", found: Iterable[OpenTransaction]) -> list[OpenTransaction]:
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
    return [OpenTransaction(each.place, each.producer, described.get(each.producer.producer_id)) for each in waiting]
