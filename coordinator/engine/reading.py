"""What is read from the state topic: batches as the rules want to see them (S4)."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from muster.coordinator.ownership.facts import Producer
from muster.coordinator.ownership.voids import Seen
from muster.storage.records.batch import BatchView

ABORT, COMMIT = 0, 1
"""Types of control records that end transactions."""

LARGE_BYTES: Final = 256 << 10
MANY_RECORDS: Final = 1_000
"""From so much, or so many, on batches are decoded in a thread."""


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


async def decoded(batches: Sequence[BatchView]) -> list[Seen]:
    if sum(batch.size for batch in batches) > LARGE_BYTES or sum(batch.count for batch in batches) > MANY_RECORDS:
        return await asyncio.to_thread(lambda: list(seen(batches)))
    return list(seen(batches))


def portion(batches: Sequence[Seen], most: int) -> int:
    """How many of them have so many records together, about; one at least."""
    count = 0
    for at, batch in enumerate(batches):
        count += len(batch.records) + 1
        if count > most:
            return max(at, 1)
    return len(batches)


def control_type(batch: BatchView) -> int:
    """Of the one record of a control batch: its key has a version, then a type, of two bytes each; -1: none."""
    for record in batch.records():
        if record.key is not None and len(record.key) >= 4:
            return int.from_bytes(record.key[2:4], "big")
    return -1
