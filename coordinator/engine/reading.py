"""What is read from the state topic: batches as the rules want to see them (S4)."""

from collections.abc import Iterable, Iterator

from muster.coordinator.ownership.facts import Producer
from muster.coordinator.ownership.voids import Seen
from muster.storage.records.batch import BatchView

ABORT, COMMIT = 0, 1
"""Types of control records that end transactions."""


def seen(batches: Iterable[BatchView]) -> Iterator[Seen]:
    """Raises storage's CorruptMessage for records that do not add up."""
    for batch in batches:
        producer = Producer(batch.producer_id, batch.producer_epoch)
        if not batch.control:
            yield Seen(
                batch.base_offset, batch.next_offset, producer, batch.records(), transactional=batch.transactional
            )
        elif (kind := control_type(batch)) in (ABORT, COMMIT):
            yield Seen(batch.base_offset, batch.next_offset, producer, marker=kind == COMMIT)
        else:
            yield Seen(batch.base_offset, batch.next_offset, producer)


def control_type(batch: BatchView) -> int:
    """Of the one record of a control batch: its key has a version, then a type, of two bytes each; -1: none."""
    for record in batch.records():
        if record.key is not None and len(record.key) >= 4:
            return int.from_bytes(record.key[2:4], "big")
    return -1
