"""What is written into the state topic: a shard's batches as bytes, and what no batch has room for (KB-S1, KB-S3)."""

import asyncio
import json
from collections.abc import Sequence
from typing import Final

from muster.coordinator.kafka_backend.shard_ownership.append_queues import RECORD_BYTES
from muster.coordinator.kafka_backend.shard_ownership.facts import MeasuredRecords, ShardBatch
from muster.coordinator.runtime.ports import Entry, LogFailed
from muster.storage.records.batch import encode_written

COMPRESSED_FROM: Final = 1 << 10
CODEC: Final = "zstd"
LARGE_BYTES: Final = 256 << 10
MANY_RECORDS: Final = 1_000
"""From so much, or so many, on batches are made in a thread."""
LEFT_OUT: Final = frozenset({"snapshot", "plan"})
"""Of a ledger entry that is too large: the most of it, and what can be done without."""


def wire_of(batch: ShardBatch, timestamp_ms: int) -> bytes:
    """The batch's bytes: made once, for the same must be sent again (KB-A2)."""
    if batch.wire is None:
        codec = CODEC if batch.size >= COMPRESSED_FROM else "none"
        batch.wire = encode_written(
            batch.records,
            timestamp_ms,
            producer=(*batch.producer, batch.sequence),
            codec=codec,
            transactional=bool(batch.transactional_id),
        )
    return batch.wire


def are_large(batches: Sequence[ShardBatch]) -> bool:
    """Whether making their bytes takes so long that a thread should."""
    records = size = 0
    for batch in batches:
        if batch.wire is None:
            records, size = records + len(batch.records), size + batch.size
    return records > MANY_RECORDS or size > LARGE_BYTES


def wires_of(batches: Sequence[ShardBatch], stamp_ms: int) -> dict[int, bytes]:
    """Their bytes, by shard."""
    return {batch.shard: wire_of(batch, stamp_ms) for batch in batches}


async def encode_batches(batches: Sequence[ShardBatch], stamp_ms: int) -> dict[int, bytes]:
    """The same, of any size."""
    return await asyncio.to_thread(wires_of, batches, stamp_ms) if are_large(batches) else wires_of(batches, stamp_ms)


def size_of(entry: Entry) -> int:
    return len(entry[0]) + len(entry[1] or b"")


class RecordTooLarge(LogFailed):
    """Records of these groups have no room in any batch (KB-S3)."""

    def __init__(self, sentence: str, groups: frozenset[str]) -> None:
        super().__init__(sentence)
        self.groups = groups


def fit_turn(shard: int, groups: Sequence[Entry], ledger: Sequence[Entry], most: int) -> MeasuredRecords:
    """What one turn writes, the ledger's records first and the group's last (KB-S1).

    An entry of the ledger that alone is too large is cut short. Raises TooLarge for a group's record that is: nothing
    of the turn is kept then.
    """
    check_room(shard, groups, most)
    turn = MeasuredRecords(
        [each if size_of(each) + RECORD_BYTES <= most else cut_ledger_entry(each, most) for each in ledger]
    )
    turn.extend(groups)
    return turn


def check_room(shard: int, groups: Sequence[Entry], most: int) -> None:
    """Raises TooLarge."""
    if isinstance(groups, MeasuredRecords) and groups.largest + RECORD_BYTES <= most:
        return
    large = [entry for entry in groups if size_of(entry) + RECORD_BYTES > most]
    if large:
        names = frozenset(map(group_of, large))
        raise RecordTooLarge(
            f"a record of group {min(names)!r} of shard {shard} takes {size_of(large[0])} bytes, and the state topic "
            f"has room for {most - RECORD_BYTES} in one; raise max.message.bytes of that topic, or keep groups smaller",
            names,
        )


def group_of(entry: Entry) -> str:
    """Whose record it is: each key of a group's says so behind its kind.

    >>> group_of((b"\\0\\2\\0\\1g", None, -1)), group_of((b"\\0", None, -1))
    ('g', '')
    """
    key = entry[0]
    size = int.from_bytes(key[2:4], "big")
    return key[4 : 4 + size].decode("utf-8", "replace")


def cut_ledger_entry(entry: Entry, most: int) -> Entry:
    """A ledger's entry without snapshot and plan; one that cannot be cut so far is left out as a whole."""
    key, value, _ = entry
    told = json.loads(value or b"{}")
    body = told.get("entry")
    if isinstance(body, dict):
        told["entry"] = {name: each for name, each in body.items() if name not in LEFT_OUT}
    short = json.dumps(told | {"cut": True}, separators=(",", ":")).encode()
    return key, short if len(key) + len(short) + RECORD_BYTES <= most else None, -1
