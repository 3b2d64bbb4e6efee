"""Records of `__consumer_offsets` as bytes: groups, offsets and KIP-848 groups, byte for byte as Kafka keeps them.

Schemas: Kafka's OffsetCommitKey/Value, GroupMetadataKey/Value, and ConsumerGroup{Metadata,MemberMetadata,
TargetAssignmentMetadata,TargetAssignmentMember,CurrentMemberAssignment,RegularExpression}{Key,Value}.

Read: key types 0 to 2, values version 0 to 4. Written: offset values version 1 when they carry an expire timestamp
(it has no place for the topic's id), otherwise 4, with the topic's id as its tagged field 0; group values version 3.

KIP-848 groups: key types 3, 5 to 8 and 16. Keys are plain, values version 0 and flexible (KIP-482). Type 4 (partition
metadata) is of an early version and skipped; the catalog knows better.

`encode` and `decode_group` also cover the records in `own_records.py`.
"""

import struct
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from muster.coordinator.core.model.records import (
    BalanceForgotten,
    BalanceStored,
    CanaryForgotten,
    CanaryStored,
    CentralDeleted,
    CentralStored,
    ClassicSide,
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    ConsumerRecord,
    CurrentDeleted,
    CurrentStored,
    DelayForgotten,
    DelayStored,
    Epochs,
    FenceForgotten,
    FenceStored,
    GroupDeleted,
    GroupEpochDeleted,
    GroupEpochStored,
    GroupRecord,
    GroupStored,
    HoldsEnded,
    HoldsStored,
    LedgerRecord,
    LossMended,
    MemberRecord,
    OffsetDeleted,
    OffsetsStored,
    OffsetStored,
    Record,
    RegexDeleted,
    RegexStored,
    SettingsStored,
    SettingsUnset,
    TargetDeleted,
    TargetEpochDeleted,
    TargetEpochStored,
    TargetStored,
    TopicId,
    TxnMarked,
    TxnOffsetsStored,
)
from muster.coordinator.core.model.types import NO_TOPIC_ID, Protocol, StoredOffset
from muster.coordinator.runtime.own_records import (
    FENCE_KEY,
    OWN_KINDS,
    PROBE_KEY,
    LongRecord,
    decode_fence,
    decode_own,
    encode_fence,
    encode_ledger,
    encode_long_record,
    encode_own,
    tombstones_of_moved_records,
)
from muster.coordinator.runtime.ports import Entry, KeyValue
from muster.coordinator.runtime.record_fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    MAX_STRING_BYTES,
    FieldReader,
    MalformedRecord,
    SkippedRecord,
    UnknownVersion,
    compact_array,
    compact_bytes,
    compact_string,
    plain_string,
    tagged,
    varint,
)

# KIP-848 groups
# --------------

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
        raise UnknownVersion(version, VERSION)
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


# Groups and offsets
# ------------------

OFFSET_KEYS = (0, 1)
OFFSET_KEY_WRITTEN = 1
GROUP_KEY = 2
NEWEST_VALUE = 4
"""The newest version of both values, and the first flexible one."""
GROUP_VALUE_WRITTEN = 3
OFFSET_KEY_HEADS = (INT16.pack(0), INT16.pack(1))
NO_TAGS = b"\x00"
TOPIC_ID_TAG = 0
TOPIC_ID_BYTES = 16
TAGS_OF_TOPIC = b"\x01\x00\x10"
"""One tagged field, the topic's id, and its length."""
NO_STRING = INT16.pack(-1)
UNANNOTATED = struct.Struct(">hqiBqB")
"""A value of the newest version without metadata (a compact string of length 1 - 1) and without tagged fields."""
OF_TOPIC = struct.Struct(">hqiBq3s16s")
"""The same with the topic's id."""

PlainOffset: TypeAlias = tuple[str, str, int, StoredOffset]

made = tuple.__new__
"""What a NamedTuple's own constructor does, without its argument names."""


@dataclass(frozen=True, slots=True)
class EncodedTurn:
    """One turn's records of one shard, by topic."""

    groups: list[Entry] = field(default_factory=list)
    ledger: list[KeyValue] = field(default_factory=list)


def encode(records: Iterable[Record]) -> EncodedTurn:
    """Raises ValueError for a string that Kafka's format cannot hold."""
    out = EncodedTurn()
    heads = OffsetHeads()
    for record in records:
        match record:
            case OffsetsStored():  # most records are
                out.groups.extend(offset_records(record, heads))
            case TxnOffsetsStored():  # its batch says whose they are
                out.groups.extend(offset_records(OffsetsStored(record.group_id, record.offsets), heads))
            case TxnMarked():
                pass  # the log makes the control batch
            case OffsetStored():
                key = heads[record.group_id, record.topic] + INT32.pack(record.partition)
                out.groups.append(KeyValue(key, offset_value(record.value)))
            case OffsetDeleted():
                key = heads[record.group_id, record.topic] + INT32.pack(record.partition)
                out.groups.append(KeyValue(key, None))
            case GroupStored():
                out.groups.append(KeyValue(group_key(record.group_id), group_value(record)))
            case GroupDeleted():
                out.groups.append(KeyValue(group_key(record.group_id), None))
            case SettingsStored() | SettingsUnset() | BalanceStored() | BalanceForgotten() | LossMended():
                out.groups.append(encode_own(record))
            case HoldsStored() | HoldsEnded() | CanaryStored() | CanaryForgotten():
                out.groups.append(encode_own(record))
            case CentralStored() | CentralDeleted() | DelayStored() | DelayForgotten():
                out.groups.append(encode_own(record))
                if isinstance(record, CentralDeleted | DelayForgotten):
                    out.ledger.extend(tombstones_of_moved_records(record))
            case FenceStored() | FenceForgotten():
                out.groups.append(encode_fence(record))
            case _ if isinstance(record, LedgerRecord):
                out.ledger.extend(encode_ledger(record))
            case _:
                out.groups.append(encode_consumer(record))
    return out


def encode_in_portions(record: LongRecord, at_once: int) -> Generator[None, None, EncodedTurn]:
    """What `encode` makes of a record that lists very many, with a pause behind each `at_once` of its rows."""
    stored = yield from encode_long_record(record, at_once)
    if isinstance(record, CentralStored):
        return EncodedTurn(groups=[stored])
    return EncodedTurn(ledger=[stored])


def decode_group(stored: KeyValue) -> GroupRecord | SkippedRecord:
    """The fact behind one record of `__consumer_offsets`. Raises MalformedRecord."""
    key = FieldReader(stored.key)
    kind = key.int16()
    if kind in OFFSET_KEYS:
        group_id, topic, partition = key.string(), key.string(), key.int32()
        key.end()
        if stored.value is None:
            return OffsetDeleted(group_id, topic, partition)
        return OffsetStored(group_id, topic, partition, read_offset_value(stored.value))
    if kind == GROUP_KEY:
        group_id = key.string()
        key.end()
        return GroupDeleted(group_id) if stored.value is None else read_group_value(group_id, stored.value)
    if kind in CONSUMER_KINDS:
        return decode_consumer(kind, key, stored.value)
    if kind in OWN_KINDS:
        return decode_own(kind, key, stored.value)
    if kind == FENCE_KEY:
        return decode_fence(key, stored.value)
    if kind == PROBE_KEY:
        return SkippedRecord("room probe")
    return SkippedRecord(f"key type {kind}")


class PlainOffsets:
    """The short way of `decode_group` for what most records of a log are: a position without metadata.

    How a key begins, its group and topic, is read once; the same bytes before a partition's number mean the same again.
    """

    def __init__(self) -> None:
        self._places: dict[bytes, tuple[str, str]] = {}
        self._topic_ids: dict[bytes, bytes] = {bytes(TOPIC_ID_BYTES): NO_TOPIC_ID}

    def read(self, stored: KeyValue) -> PlainOffset | None:
        """Group, topic, partition and position; None for a record that has to be decoded the long way."""
        key, value, _ = stored
        if value is None or key[:2] not in OFFSET_KEY_HEADS:
            return None
        if len(value) == OF_TOPIC.size:
            version, offset, leader_epoch, length, commit_timestamp_ms, tags, topic_id = OF_TOPIC.unpack(value)
            if version != NEWEST_VALUE or length != 1 or tags != TAGS_OF_TOPIC:
                return None
            topic_id = self._topic_ids.setdefault(topic_id, topic_id)
        elif len(value) == UNANNOTATED.size:
            version, offset, leader_epoch, length, commit_timestamp_ms, tagged = UNANNOTATED.unpack(value)
            if version != NEWEST_VALUE or length != 1 or tagged:
                return None
            topic_id = NO_TOPIC_ID
        else:
            return None
        place = self._places.get(key[:-4])
        if place is None:
            whole = decode_group(stored)
            assert isinstance(whole, OffsetStored), "a key of this kind with a value is a position"
            place = self._places[key[:-4]] = whole.group_id, whole.topic
        (partition,) = INT32.unpack_from(key, len(key) - 4)
        return *place, partition, made(StoredOffset, (offset, leader_epoch, "", commit_timestamp_ms, None, topic_id))


def offset_records(commit: OffsetsStored, heads: "OffsetHeads") -> list[Entry]:
    """A record for each partition."""
    records: list[Entry] = []
    head, of_topic = b"", None
    for (topic, partition), value in commit.offsets.items():
        if topic is not of_topic:  # one string for all partitions of a topic
            head, of_topic = heads[commit.group_id, topic], topic
        offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id = value
        if topic_id and not metadata and expire_timestamp_ms is None:  # as nearly all are: `offset_value` at once
            encoded = OF_TOPIC.pack(NEWEST_VALUE, offset, leader_epoch, 1, commit_timestamp_ms, TAGS_OF_TOPIC, topic_id)
        else:
            encoded = offset_value(value)
        records.append((head + INT32.pack(partition), encoded, -1))
    return records


class OffsetHeads(dict[tuple[str, str], bytes]):
    """How the keys of a group's offsets of one topic begin; a turn's offsets share a few."""

    def __missing__(self, place: tuple[str, str]) -> bytes:
        group_id, topic = place
        head = self[place] = INT16.pack(OFFSET_KEY_WRITTEN) + plain_string(group_id) + plain_string(topic)
        return head


def group_key(group_id: str) -> bytes:
    return INT16.pack(GROUP_KEY) + plain_string(group_id)


def offset_value(value: StoredOffset) -> bytes:
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id = value
    if expire_timestamp_ms is not None:
        # Only version 1 can hold the expiry; it has no place for the leader epoch.
        times = INT64.pack(commit_timestamp_ms) + INT64.pack(expire_timestamp_ms)
        return INT16.pack(1) + INT64.pack(offset) + plain_string(metadata) + times
    tags = TAGS_OF_TOPIC + topic_id if topic_id else NO_TAGS
    rest = compact_string(metadata) + INT64.pack(commit_timestamp_ms) + tags
    return INT16.pack(NEWEST_VALUE) + INT64.pack(offset) + INT32.pack(leader_epoch) + rest


def group_value(group: GroupStored) -> bytes:
    parts = [
        INT16.pack(GROUP_VALUE_WRITTEN),
        plain_string(group.protocol_type),
        INT32.pack(group.generation),
        plain_string(group.protocol),
        plain_string(group.leader),
        INT64.pack(group.state_timestamp_ms),
        INT32.pack(len(group.members)),
    ]
    for member in group.members:
        parts += member_fields(member)
    return b"".join(parts)


def member_fields(member: MemberRecord) -> list[bytes]:
    """In one go: a rebalance writes all members, and there would be six calls for each."""
    member_id, client_id, host = member.member_id.encode(), member.client_id.encode(), member.client_host.encode()
    if len(member_id) > MAX_STRING_BYTES or len(client_id) > MAX_STRING_BYTES or len(host) > MAX_STRING_BYTES:
        for text in (member.member_id, member.client_id, member.client_host):
            plain_string(text)  # it says which one is too long
    instance = NO_STRING if member.group_instance_id is None else plain_string(member.group_instance_id)
    return [
        INT16.pack(len(member_id)),
        member_id,
        instance,
        INT16.pack(len(client_id)),
        client_id,
        INT16.pack(len(host)),
        host,
        INT32.pack(member.rebalance_timeout_ms),
        INT32.pack(member.session_timeout_ms),
        INT32.pack(len(member.subscription)),
        member.subscription,
        INT32.pack(len(member.assignment)),
        member.assignment,
    ]


def read_offset_value(data: bytes) -> StoredOffset:
    value, version = open_value(data)
    offset = value.int64()
    leader_epoch = value.int32() if version >= 3 else -1
    metadata = value.string()
    commit_timestamp_ms = value.int64()
    expire_timestamp_ms = value.int64() if version == 1 else -1
    topic_id = read_topic_id(value) if value.compact else NO_TOPIC_ID
    value.end()
    expiry = None if expire_timestamp_ms == -1 else expire_timestamp_ms
    return StoredOffset(offset, leader_epoch, metadata, commit_timestamp_ms, expiry, topic_id)


def read_topic_id(value: FieldReader) -> bytes:
    topic_id = value.tags().get(TOPIC_ID_TAG, NO_TOPIC_ID)
    if len(topic_id) not in (0, TOPIC_ID_BYTES):
        raise MalformedRecord(f"a topic id of {len(topic_id)} bytes; expected {TOPIC_ID_BYTES}")
    return topic_id if any(topic_id) else NO_TOPIC_ID  # Kafka's Uuid.ZERO_UUID is none


def read_group_value(group_id: str, data: bytes) -> GroupStored:
    value, version = open_value(data)
    protocol_type = value.string()
    generation = value.int32()
    protocol = value.nullable_string()
    leader = value.nullable_string()
    state_timestamp_ms = value.int64() if version >= 2 else -1
    members = tuple(read_member(value, version) for _ in range(value.count()))
    close_value(value)
    return GroupStored(group_id, protocol_type, generation, protocol, leader, state_timestamp_ms, members)


def read_member(value: FieldReader, version: int) -> MemberRecord:
    """A rebalance timeout of -1 (always so in version 0) means: as long as the session timeout."""
    member_id = value.string()
    group_instance_id = value.nullable_string() if version >= 3 else None
    client_id = value.string()
    client_host = value.string()
    stored_timeout_ms = value.int32() if version >= 1 else -1
    session_timeout_ms = value.int32()
    rebalance_timeout_ms = session_timeout_ms if stored_timeout_ms == -1 else stored_timeout_ms
    subscription = value.blob()
    assignment = value.blob()
    if value.compact:
        value.skip_tags()
    return MemberRecord(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


def open_value(data: bytes) -> tuple[FieldReader, int]:
    value = FieldReader(data)
    version = value.int16()
    if not 0 <= version <= NEWEST_VALUE:
        raise UnknownVersion(version, NEWEST_VALUE)
    value.compact = version == NEWEST_VALUE
    return value, version


def close_value(value: FieldReader) -> None:
    if value.compact:
        value.skip_tags()
    value.end()


__all__ = ["PlainOffsets", "decode_group", "encode"]
