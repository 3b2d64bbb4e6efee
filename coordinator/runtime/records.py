"""Records <-> bytes. Groups and offsets byte for byte as Kafka keeps them in `__consumer_offsets`.

Schemas: Kafka's OffsetCommitKey/Value and GroupMetadataKey/Value; those of KIP-848 groups are in `consumer`.
Read: key types 0 to 2, values version 0 to 4.
Written: offset values version 1 when they carry an expire timestamp (it has no place for the topic's id), otherwise 4,
with the topic's id as its tagged field 0; group values version 3. What Kafka has no record for is in `own`, the
ledger's JSON in `ledger`.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from muster.coordinator.core.model.balance_records import BalanceForgotten, BalanceStored
from muster.coordinator.core.model.core_records import (
    DelayForgotten,
    DelayStored,
    GroupDeleted,
    GroupRecord,
    GroupStored,
    LedgerRecord,
    LossMended,
    MemberRecord,
    OffsetDeleted,
    OffsetsStored,
    OffsetStored,
    Record,
    SettingsStored,
    SettingsUnset,
)
from muster.coordinator.core.model.fences_records import FenceForgotten, FenceStored
from muster.coordinator.core.model.records import CentralDeleted, CentralStored
from muster.coordinator.core.model.trial_records import CanaryForgotten, CanaryStored
from muster.coordinator.core.model.types import NO_TOPIC_ID, StoredOffset
from muster.coordinator.core.model.values import HoldsEnded, HoldsStored
from muster.coordinator.runtime.consumer import CONSUMER_KINDS, decode_consumer, encode_consumer
from muster.coordinator.runtime.fences import FENCE_KEY, decode_fence, encode_fence
from muster.coordinator.runtime.ledger import encode_ledger, tombstones_of_moved_records
from muster.coordinator.runtime.own import OWN_KINDS, PROBE_KEY, decode_own, encode_own
from muster.coordinator.runtime.ports import Entry, KeyValue
from muster.coordinator.runtime.record_fields import (
    INT16,
    INT32,
    INT64,
    FieldReader,
    MalformedRecord,
    SkippedRecord,
    compact_string,
    plain_bytes,
    plain_string,
)

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
    return [
        plain_string(member.member_id),
        plain_string(member.group_instance_id),
        plain_string(member.client_id),
        plain_string(member.client_host),
        INT32.pack(member.rebalance_timeout_ms),
        INT32.pack(member.session_timeout_ms),
        plain_bytes(member.subscription),
        plain_bytes(member.assignment),
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
        raise MalformedRecord(f"value version {version}; this node reads 0 to {NEWEST_VALUE}")
    value.compact = version == NEWEST_VALUE
    return value, version


def close_value(value: FieldReader) -> None:
    if value.compact:
        value.skip_tags()
    value.end()
