"""Records of `__transaction_state` as bytes, as Kafka keeps them (TransactionLogKey and TransactionLogValue).

Key: int16 0, then the transactional id as a plain string. Value, version 1 (flexible, KIP-482): producer id int64,
epoch int16, timeout int32 (ms), state int8, partitions by topic (null in Empty), last update int64, start int64, and
tagged fields: 0 the previous producer id, 1 the next one, 2 the client's `transaction.version`; each is left out where
it has its default (-1, -1, 0). Version 0 has plain lengths and no tags. A null value is a tombstone.

A node with `transaction.version=0` writes version 0, which brokers of every age read, unless that would lose a fact.

Kafka before KAFKA-20310 (4.1 among them) writes neither tag 0 nor 1; such records are read all the same.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import (
    INT16,
    INT32,
    INT64,
    FieldReader,
    MalformedRecord,
    SkippedRecord,
    compact_string,
    plain_string,
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

EMPTY: Final = TransactionState.EMPTY

# What each record has in the same place.
KEY_HEAD: Final = INT16.pack(KEY_VERSION)
VALUE_HEAD: Final = struct.Struct(">hqhib")
TIMES: Final = struct.Struct(">qq")
NULL_ARRAY, EMPTY_ARRAY = varint(0), varint(1)
TAGGED_ID: Final = struct.Struct(">BBq")
TAGGED_LEVEL: Final = struct.Struct(">BBh")
TAG_COUNTS: Final = tuple(map(varint, range(4)))

REMEMBERED_ROWS: Final = 4_096
MOST_IN_REMEMBERED_ROW: Final = 16
"""Producers write to the same partitions again and again, a few at a time: their bytes are kept, 2 MB at most."""

MAX_COMPLAINTS: Final = 20
"""Unreadable records that a report names one by one; the rest are counted."""


# To bytes
# --------


def encode_transaction(record: TransactionRecord, version: int = FLEXIBLE_VERSION) -> KeyValue:
    """One record, in this version of the value. Version 0 has no place for the two other producer ids and the level.

    Raises ValueError for a transactional id or topic that a record cannot hold.
    """
    key = KEY_HEAD + plain_string(record.transactional_id)
    if isinstance(record, TransactionExpired):
        return KeyValue(key, None)
    head = VALUE_HEAD.pack(version, record.producer_id, record.epoch, record.timeout_ms, record.state)
    times = TIMES.pack(record.updated_ms, record.started_ms)
    if version == FLEXIBLE_VERSION:
        return KeyValue(key, head + encode_partitions(record) + times + encode_tags(record))
    return KeyValue(key, head + encode_plain_partitions(record) + times)


def version_for(record: TransactionRecord, level: int) -> int:
    """The version of the value that a node with this `transaction.version` writes (TX-C16).

    A transaction that was begun or decided at a higher level, or whose producer id is replaced, needs version 1.
    """
    if level > 0 or isinstance(record, TransactionExpired):
        return FLEXIBLE_VERSION
    replaced = record.previous_producer_id not in (NO_PRODUCER_ID, record.producer_id)
    tagged_facts = replaced or record.next_producer_id != NO_PRODUCER_ID or record.client_level != 0
    return FLEXIBLE_VERSION if tagged_facts else PLAIN_VERSION


def encode_plain_partitions(record: TransactionStored) -> bytes:
    """The partitions by topic in version 0; null in Empty, as Kafka writes it, and an empty array in other states."""
    if record.state is EMPTY:
        return INT32.pack(-1)
    topics = [
        plain_string(topic) + INT32.pack(len(numbers)) + b"".join(INT32.pack(number) for number in numbers)
        for topic, numbers in record.partitions.items()
    ]
    return INT32.pack(len(topics)) + b"".join(topics)


def encode_partitions(record: TransactionStored) -> bytes:
    """The same in version 1."""
    if record.state is EMPTY:
        return NULL_ARRAY
    partitions = record.partitions
    if not partitions:
        return EMPTY_ARRAY
    rows = [
        remembered_row(topic, numbers) if len(numbers) <= MOST_IN_REMEMBERED_ROW else encode_row(topic, numbers)
        for topic, numbers in partitions.items()
    ]
    return varint(len(rows) + 1) + b"".join(rows)


def encode_row(topic: str, numbers: tuple[int, ...]) -> bytes:
    """One topic with its partitions, and no tags."""
    return compact_string(topic) + varint(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers) + b"\0"


remembered_row = lru_cache(maxsize=REMEMBERED_ROWS)(encode_row)


def encode_tags(record: TransactionStored) -> bytes:
    count, fields = 0, b""
    if record.previous_producer_id != NO_PRODUCER_ID:
        count, fields = 1, TAGGED_ID.pack(PREVIOUS_ID_TAG, INT64.size, record.previous_producer_id)
    if record.next_producer_id != NO_PRODUCER_ID:
        count, fields = count + 1, fields + TAGGED_ID.pack(NEXT_ID_TAG, INT64.size, record.next_producer_id)
    if record.client_level:
        count, fields = count + 1, fields + TAGGED_LEVEL.pack(CLIENT_LEVEL_TAG, INT16.size, record.client_level)
    return TAG_COUNTS[count] + fields


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
