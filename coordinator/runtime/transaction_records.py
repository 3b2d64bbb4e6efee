"""Records of `__transaction_state` as bytes, as Kafka keeps them (TransactionLogKey and TransactionLogValue).

Key: int16 0, then the transactional id as a plain string. Value, version 1 (flexible, KIP-482): producer id int64,
epoch int16, timeout int32 (ms), state int8, partitions by topic (null in Empty), last update int64, start int64, and
tagged fields: 0 the previous producer id, 1 the next one, 2 the client's `transaction.version`; each is left out where
it has its default (-1, -1, 0). Version 0 has plain lengths and no tags. A null value is a tombstone.

A node with `transaction.version=0` writes version 0, which brokers of every age read, unless that would lose a fact.

Kafka before KAFKA-20310 (4.1 among them) writes neither tag 0 nor 1; such records are read all the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    FieldReader,
    MalformedRecord,
    SkippedRecord,
    compact_array,
    compact_string,
    plain_string,
    tagged,
    varint,
)
from muster.coordinator.transactions.records import (
    NO_PRODUCER_ID,
    NO_TIME,
    TransactionExpired,
    TransactionRecord,
    TransactionState,
    TransactionStored,
)

TRANSACTIONS_TOPIC: Final = "__transaction_state"

KEY_VERSION: Final = 0
PLAIN_VERSION: Final = 0
FLEXIBLE_VERSION: Final = 1

PREVIOUS_ID_TAG: Final = 0
NEXT_ID_TAG: Final = 1
CLIENT_LEVEL_TAG: Final = 2

NULL_ARRAY: Final = {PLAIN_VERSION: INT32.pack(-1), FLEXIBLE_VERSION: varint(0)}

MAX_COMPLAINTS: Final = 20
"""Unreadable records that a report names one by one; the rest are counted."""


# To bytes
# --------


def encode_transaction(record: TransactionRecord, version: int = FLEXIBLE_VERSION) -> KeyValue:
    """One record, in this version of the value. Version 0 has no place for the two other producer ids and the level.

    Raises ValueError for a transactional id or topic that a record cannot hold.
    """
    key = INT16.pack(KEY_VERSION) + plain_string(record.transactional_id)
    if isinstance(record, TransactionExpired):
        return KeyValue(key, None)
    head = INT16.pack(version) + INT64.pack(record.producer_id) + INT16.pack(record.epoch)
    head += INT32.pack(record.timeout_ms) + INT8.pack(record.state)
    times = INT64.pack(record.updated_ms) + INT64.pack(record.started_ms)
    return KeyValue(key, head + encode_partitions(record, version) + times + encode_tags(record, version))


def version_for(record: TransactionRecord, level: int) -> int:
    """The version of the value that a node with this `transaction.version` writes (TX-C16).

    A transaction that was begun or decided at a higher level, or whose producer id is replaced, needs version 1.
    """
    if level > 0 or isinstance(record, TransactionExpired):
        return FLEXIBLE_VERSION
    replaced = record.previous_producer_id not in (NO_PRODUCER_ID, record.producer_id)
    tagged_facts = replaced or record.next_producer_id != NO_PRODUCER_ID or record.client_level != 0
    return FLEXIBLE_VERSION if tagged_facts else PLAIN_VERSION


def encode_partitions(record: TransactionStored, version: int) -> bytes:
    """The partitions by topic; null in Empty, as Kafka writes it, and an empty array in the other states."""
    if record.state is TransactionState.EMPTY:
        return NULL_ARRAY[version]
    if version == PLAIN_VERSION:
        topics = [
            plain_string(topic) + INT32.pack(len(numbers)) + b"".join(INT32.pack(number) for number in numbers)
            for topic, numbers in record.partitions.items()
        ]
        return INT32.pack(len(topics)) + b"".join(topics)
    return compact_array(
        [
            compact_string(topic) + compact_array([INT32.pack(number) for number in numbers]) + tagged({})
            for topic, numbers in record.partitions.items()
        ]
    )


def encode_tags(record: TransactionStored, version: int) -> bytes:
    if version == PLAIN_VERSION:
        return b""
    fields: dict[int, bytes] = {}
    if record.previous_producer_id != NO_PRODUCER_ID:
        fields[PREVIOUS_ID_TAG] = INT64.pack(record.previous_producer_id)
    if record.next_producer_id != NO_PRODUCER_ID:
        fields[NEXT_ID_TAG] = INT64.pack(record.next_producer_id)
    if record.client_level:
        fields[CLIENT_LEVEL_TAG] = INT16.pack(record.client_level)
    return tagged(fields)


# From bytes
# ----------


def decode_transaction(item: KeyValue) -> TransactionRecord | SkippedRecord:
    """One record; SkippedRecord where its key or value has a version that is not known here.

    Raises MalformedRecord for bytes that their version does not explain.
    """
    key = FieldReader(item.key)
    version = key.int16()
    if version != KEY_VERSION:
        return SkippedRecord(f"key version {version}")
    transactional_id = key.string()
    key.end()
    if item.value is None:
        return TransactionExpired(transactional_id)
    value = FieldReader(item.value)
    version = value.int16()
    if version not in (PLAIN_VERSION, FLEXIBLE_VERSION):
        return SkippedRecord(f"value version {version}")
    return decode_value(transactional_id, value, version)


def decode_value(transactional_id: str, value: FieldReader, version: int) -> TransactionStored:
    value.compact = version == FLEXIBLE_VERSION
    producer_id, epoch, timeout_ms = value.int64(), value.int16(), value.int32()
    state = read_state(value.int8())
    partitions = decode_partitions(value)
    updated_ms, started_ms = value.int64(), value.int64()
    tags = value.tags() if value.compact else {}
    value.end()
    return TransactionStored(
        transactional_id,
        producer_id,
        epoch,
        timeout_ms,
        state,
        partitions,
        updated_ms,
        max(started_ms, NO_TIME),
        read_tag(tags, PREVIOUS_ID_TAG, FieldReader.int64, NO_PRODUCER_ID),
        read_tag(tags, NEXT_ID_TAG, FieldReader.int64, NO_PRODUCER_ID),
        read_tag(tags, CLIENT_LEVEL_TAG, FieldReader.int16, 0),
    )


def read_state(number: int) -> TransactionState:
    try:
        return TransactionState(number)
    except ValueError:
        raise MalformedRecord(f"state {number}; expected 0 to {max(TransactionState)}") from None


def decode_partitions(value: FieldReader) -> dict[str, tuple[int, ...]]:
    """The partitions by topic; none where the array is null."""
    partitions: dict[str, tuple[int, ...]] = {}
    for _ in range(value.nullable_count() or 0):
        topic = value.string()
        numbers = [value.int32() for _ in range(value.count())]
        if value.compact:
            value.skip_tags()
        partitions[topic] = tuple(sorted({*numbers, *partitions.get(topic, ())}))
    return partitions


def read_tag(tags: Mapping[int, bytes], tag: int, read: Callable[[FieldReader], int], default: int) -> int:
    if tag not in tags:
        return default
    found = FieldReader(tags[tag])
    number = read(found)
    found.end()
    return number


# Reading a whole partition
# -------------------------


@dataclass(slots=True)
class TransactionReadReport:
    """What a replay of one partition of `__transaction_state` met, beside the facts that it applied."""

    facts: int = 0
    malformed: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    """Records of unknown versions, by what is unknown."""
    complaints: list[str] = field(default_factory=list)
    """One sentence for each of the first MAX_COMPLAINTS malformed records."""

    def read(self, item: KeyValue, place: str) -> TransactionRecord | None:
        """The fact in a record; None, and an entry in the report, where there is none to be read."""
        try:
            record = decode_transaction(item)
        except MalformedRecord as error:
            self.malformed += 1
            if len(self.complaints) < MAX_COMPLAINTS:
                self.complaints.append(f"{place} offset {item.offset}: {error}; the record is passed over")
            return None
        if isinstance(record, SkippedRecord):
            self.skipped[record.kind] = self.skipped.get(record.kind, 0) + 1
            return None
        self.facts += 1
        return record
