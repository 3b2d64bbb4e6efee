"""Records of KIP-848 groups <-> bytes, byte for byte as Kafka keeps them (key types 3 and 5 to 8, and 16).

Schemas: Kafka's ConsumerGroup{Metadata,MemberMetadata,TargetAssignmentMetadata,TargetAssignmentMember,
CurrentMemberAssignment,RegularExpression}{Key,Value}. Keys are plain, values version 0 and flexible (KIP-482). Type 4
(partition metadata) is of an early version and skipped; it says nothing that the catalog does not know better.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from muster.coordinator.core.model.consumer_records import (
    ClassicSide,
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    ConsumerRecord,
    CurrentDeleted,
    CurrentStored,
    Epochs,
    GroupEpochDeleted,
    GroupEpochStored,
    RegexDeleted,
    RegexStored,
    TargetDeleted,
    TargetEpochDeleted,
    TargetEpochStored,
    TargetStored,
    TopicId,
)
from muster.coordinator.core.model.types import Protocol
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    FieldReader,
    MalformedRecord,
    compact_array,
    compact_bytes,
    compact_string,
    plain_string,
    tagged,
    varint,
)

GROUP_EPOCH = 3
MEMBER = 5
TARGET_EPOCH = 6
TARGET = 7
CURRENT = 8
REGEX = 16

VERSION = 0
HASH_TAG = CLASSIC_TAG = TIMESTAMP_TAG = EPOCHS_TAG = 0
PRESENT = 1
"""Stands before a nullable struct that is there."""
NO_TAGGED_FIELDS = b"\x00"

Stored: TypeAlias = (
    GroupEpochStored | ConsumerMemberStored | TargetEpochStored | TargetStored | CurrentStored | RegexStored
)


@dataclass(frozen=True, slots=True)
class ConsumerRecordKind:
    """One key type: whether a member or a regular expression follows the group, and how to read the rest."""

    second: bool
    tombstone: Callable[[str, str], ConsumerRecord]
    read: Callable[[str, str, FieldReader], ConsumerRecord]


def encode_consumer(record: ConsumerRecord) -> KeyValue:
    """Raises ValueError for a string that Kafka's format cannot hold."""
    match record:
        case GroupEpochStored() | GroupEpochDeleted():
            key = consumer_key(GROUP_EPOCH, record.group_id)
        case TargetEpochStored() | TargetEpochDeleted():
            key = consumer_key(TARGET_EPOCH, record.group_id)
        case ConsumerMemberStored() | ConsumerMemberDeleted():
            key = consumer_key(MEMBER, record.group_id, record.member_id)
        case TargetStored() | TargetDeleted():
            key = consumer_key(TARGET, record.group_id, record.member_id)
        case CurrentStored() | CurrentDeleted():
            key = consumer_key(CURRENT, record.group_id, record.member_id)
        case RegexStored() | RegexDeleted():
            key = consumer_key(REGEX, record.group_id, record.regex)
        case _:
            assert_never(record)
    if isinstance(record, Stored):
        return KeyValue(key, INT16.pack(VERSION) + consumer_value(record))
    return KeyValue(key, None)


def consumer_key(kind: int, *names: str) -> bytes:
    return INT16.pack(kind) + b"".join(plain_string(name) for name in names)


def consumer_value(record: Stored) -> bytes:
    match record:
        case GroupEpochStored():
            tags = {HASH_TAG: INT64.pack(record.metadata_hash)} if record.metadata_hash else {}
            return INT32.pack(record.epoch) + tagged(tags)
        case TargetEpochStored():
            tags = {TIMESTAMP_TAG: INT64.pack(record.timestamp_ms)} if record.timestamp_ms else {}
            return INT32.pack(record.epoch) + tagged(tags)
        case ConsumerMemberStored():
            return member_value(record)
        case TargetStored():
            return (
                compact_array([topic_share(topic, record.partitions[topic]) for topic in record.partitions])
                + NO_TAGGED_FIELDS
            )
        case CurrentStored():
            head = INT32.pack(record.epoch) + INT32.pack(record.previous_epoch) + INT8.pack(record.state)
            return head + topic_epochs(record.assigned) + topic_epochs(record.revoking) + NO_TAGGED_FIELDS
        case RegexStored():
            topics = compact_array([compact_string(topic) for topic in record.topics])
            return topics + INT64.pack(record.version) + INT64.pack(record.timestamp_ms) + NO_TAGGED_FIELDS
        case _:
            assert_never(record)


def member_value(record: ConsumerMemberStored) -> bytes:
    return b"".join(
        (
            compact_string(record.instance_id),
            compact_string(record.rack_id),
            compact_string(record.client_id),
            compact_string(record.client_host),
            compact_array([compact_string(topic) for topic in record.topic_names]),
            compact_string(record.topic_regex),
            INT32.pack(record.rebalance_timeout_ms),
            compact_string(record.server_assignor),
            tagged({CLASSIC_TAG: varint(PRESENT) + classic_side(record.classic)} if record.classic else {}),
        )
    )


def classic_side(classic: ClassicSide) -> bytes:
    protocols = [compact_string(p.name) + compact_bytes(p.metadata) + NO_TAGGED_FIELDS for p in classic.protocols]
    return INT32.pack(classic.session_timeout_ms) + compact_array(protocols) + NO_TAGGED_FIELDS


def topic_share(topic: TopicId, partitions: Iterable[int]) -> bytes:
    return topic + partition_numbers(sorted(partitions)) + NO_TAGGED_FIELDS


def topic_epochs(epochs: Epochs) -> bytes:
    """Each topic with its partitions, and beside them the epochs at which they were assigned (KIP-1251)."""
    rows = []
    for topic, partitions in epochs.items():
        assigned_at = partition_numbers(partitions[partition] for partition in sorted(partitions))
        rows.append(topic + partition_numbers(sorted(partitions)) + tagged({EPOCHS_TAG: assigned_at}))
    return compact_array(rows)


def partition_numbers(values: Iterable[int]) -> bytes:
    return compact_array([INT32.pack(value) for value in values])


def decode_consumer(kind: int, key: FieldReader, data: bytes | None) -> ConsumerRecord:
    """The fact behind the rest of a key and a value. Raises MalformedRecord."""
    row = CONSUMER_KINDS[kind]
    group_id = key.string()
    second = key.string() if row.second else ""
    key.end()
    if data is None:
        return row.tombstone(group_id, second)
    value = FieldReader(data)
    version = value.int16()
    if version != VERSION:
        raise MalformedRecord(f"value version {version}; this node reads {VERSION}")
    value.compact = True
    record = row.read(group_id, second, value)
    value.end()
    return record


def read_group_epoch(group_id: str, _: str, value: FieldReader) -> GroupEpochStored:
    epoch = value.int32()
    return GroupEpochStored(group_id, epoch, tagged_int64(value.tags(), HASH_TAG))


def read_target_epoch(group_id: str, _: str, value: FieldReader) -> TargetEpochStored:
    epoch = value.int32()
    return TargetEpochStored(group_id, epoch, tagged_int64(value.tags(), TIMESTAMP_TAG))


def tagged_int64(tags: dict[int, bytes], tag: int) -> int:
    if tag not in tags:
        return 0
    field = FieldReader(tags[tag])
    number = field.int64()
    field.end()
    return number


def read_consumer_member(group_id: str, member_id: str, value: FieldReader) -> ConsumerMemberStored:
    return ConsumerMemberStored(
        group_id=group_id,
        member_id=member_id,
        instance_id=value.nullable_string(),
        rack_id=value.nullable_string(),
        client_id=value.string(),
        client_host=value.string(),
        topic_names=tuple(value.string() for _ in range(value.count())),
        topic_regex=value.nullable_string(),
        rebalance_timeout_ms=value.int32(),
        server_assignor=value.nullable_string(),
        classic=read_classic_side(value.tags()),
    )


def read_classic_side(tags: dict[int, bytes]) -> ClassicSide | None:
    if CLASSIC_TAG not in tags:
        return None
    field = FieldReader(tags[CLASSIC_TAG])
    field.compact = True
    if field.varint() != PRESENT:
        return None
    session_timeout_ms = field.int32()
    protocols = tuple(read_protocol(field) for _ in range(field.count()))
    field.skip_tags()
    field.end()
    return ClassicSide(session_timeout_ms, protocols)


def read_protocol(field: FieldReader) -> Protocol:
    protocol = Protocol(field.string(), field.blob())
    field.skip_tags()
    return protocol


def read_target(group_id: str, member_id: str, value: FieldReader) -> TargetStored:
    shares: dict[TopicId, frozenset[int]] = {}
    for _ in range(value.count()):
        topic = value.uuid()
        shares[topic] = frozenset(read_numbers(value))
        value.skip_tags()
    value.skip_tags()
    return TargetStored(group_id, member_id, shares)


def read_current(group_id: str, member_id: str, value: FieldReader) -> CurrentStored:
    epoch, previous_epoch, state = value.int32(), value.int32(), value.int8()
    assigned = read_epochs(value, epoch)
    revoking = read_epochs(value, epoch)
    value.skip_tags()
    return CurrentStored(group_id, member_id, epoch, previous_epoch, state, assigned, revoking)


def read_epochs(value: FieldReader, member_epoch: int) -> Epochs:
    """Records from before KIP-1251 do not say when a partition was assigned: then the member's epoch counts."""
    epochs: dict[TopicId, dict[int, int]] = {}
    for _ in range(value.count()):
        topic = value.uuid()
        partitions = read_numbers(value)
        tags = value.tags()
        assigned_at = [member_epoch] * len(partitions)
        if EPOCHS_TAG in tags:
            field = FieldReader(tags[EPOCHS_TAG])
            field.compact = True
            assigned_at = read_numbers(field)
            field.end()
        if len(assigned_at) != len(partitions):
            raise MalformedRecord(f"{len(partitions)} partitions with {len(assigned_at)} assignment epochs")
        epochs[topic] = dict(zip(partitions, assigned_at, strict=True))
    return epochs


def read_numbers(value: FieldReader) -> list[int]:
    return [value.int32() for _ in range(value.count())]


def read_regex(group_id: str, regex: str, value: FieldReader) -> RegexStored:
    topics = tuple(value.string() for _ in range(value.count()))
    version, timestamp_ms = value.int64(), value.int64()
    value.skip_tags()
    return RegexStored(group_id, regex, topics, version, timestamp_ms)


CONSUMER_KINDS = {
    GROUP_EPOCH: ConsumerRecordKind(False, lambda group_id, _: GroupEpochDeleted(group_id), read_group_epoch),
    MEMBER: ConsumerRecordKind(True, ConsumerMemberDeleted, read_consumer_member),
    TARGET_EPOCH: ConsumerRecordKind(False, lambda group_id, _: TargetEpochDeleted(group_id), read_target_epoch),
    TARGET: ConsumerRecordKind(True, TargetDeleted, read_target),
    CURRENT: ConsumerRecordKind(True, CurrentDeleted, read_current),
    REGEX: ConsumerRecordKind(True, RegexDeleted, read_regex),
}
