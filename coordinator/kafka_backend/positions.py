"""Between records of the state topic and what the core is told of clients' transactions. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from muster.coordinator.core.model.core_records import OffsetDeleted, OffsetsStored, OffsetStored
from muster.coordinator.core.model.txn_events import Key, Place, TxnEnded, TxnOffsetsWritten
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.kafka_backend.shard_ownership.effects import TransactionEnded, TransactionPending
from muster.coordinator.kafka_backend.shard_ownership.facts import ShardRecord
from muster.coordinator.runtime.codec_init import PlainOffsets, decode_group, encode
from muster.coordinator.runtime.ports import Entry, KeyValue
from muster.coordinator.runtime.record_fields import MalformedRecord

PARTITION_BYTES = 4
UNKNOWN_EPOCH = -1
"""A replay keeps what waits by producer ids; nobody needs more."""


def entries(group_id: str, offsets: Mapping[Place, StoredOffset]) -> list[Entry]:
    """One record for each, in their order. Raises ValueError for a string that Kafka's format cannot hold."""
    return encode([OffsetsStored(group_id, offsets)]).groups


def decode_offset(record: ShardRecord) -> OffsetStored | None:
    """None for what is no position: whoever may write to the topic may have put it there."""
    if record.key is None:
        return None
    try:
        found = decode_group(KeyValue(record.key, record.value, record.offset))
    except MalformedRecord:
        return None
    return found if isinstance(found, OffsetStored) else None


def pending_events(effect: TransactionPending) -> Iterator[TxnOffsetsWritten]:
    """What a replay met, and found no marker of: neighbours of one group together."""
    group_id, at, plain = "", -1, PlainOffsets()
    offsets: dict[Place, StoredOffset] = {}
    for record in effect.records:
        found = decode_plain_offset(record, plain)
        if found is None:
            continue
        group, topic, partition, value = found
        if group != group_id or record.offset != at + len(offsets):
            if offsets:
                yield TxnOffsetsWritten(effect.producer_id, UNKNOWN_EPOCH, group_id, offsets, at)
            group_id, at, offsets = group, record.offset, {}
        offsets[topic, partition] = value
    if offsets:
        yield TxnOffsetsWritten(effect.producer_id, UNKNOWN_EPOCH, group_id, offsets, at)


def ended_event(effect: TransactionEnded) -> TxnEnded:
    return TxnEnded(*effect.producer, effect.committed, split_keys(effect.records), effect.offset)


def decode_plain_offset(record: ShardRecord, plain: PlainOffsets) -> tuple[str, str, int, StoredOffset] | None:
    """As `decode_offset`, most by the short way."""
    try:
        short = plain.read(KeyValue(record.key or b"", record.value, record.offset))
    except MalformedRecord:
        return None
    found = decode_offset(record) if short is None else None
    return short if found is None else (found.group_id, found.topic, found.partition, found.value)


def group_and_topic_of(key: bytes) -> tuple[str, str] | None:
    """The group and the topic of a position's key; None: it is none."""
    try:
        found = decode_group(KeyValue(key, None, 0))
    except MalformedRecord:
        return None
    return (found.group_id, found.topic) if isinstance(found, OffsetDeleted) else None


def split_keys(records: Iterable[ShardRecord]) -> frozenset[Key]:
    """What they are about. How a key begins, its group and topic, is read once; the partition's number ends it."""
    places: dict[bytes, tuple[str, str] | None] = {}
    found: set[Key] = set()
    for record in records:
        key = record.key or b""
        begins = key[:-PARTITION_BYTES]
        if begins not in places:
            places[begins] = group_and_topic_of(key)
        if (place := places[begins]) is not None:
            found.add((*place, int.from_bytes(key[-PARTITION_BYTES:], "big", signed=True)))
    return frozenset(found)
