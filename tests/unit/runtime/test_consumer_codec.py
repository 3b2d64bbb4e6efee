"""Bytes derived by hand from Kafka's schemas of KIP-848 records (ConsumerGroup*Key/Value, version 0, flexible)."""

import pytest

from muster.coordinator.core.model.records import (
    ClassicSide,
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    ConsumerRecord,
    CurrentDeleted,
    CurrentStored,
    GroupEpochDeleted,
    GroupEpochStored,
    RegexDeleted,
    RegexStored,
    TargetDeleted,
    TargetEpochDeleted,
    TargetEpochStored,
    TargetStored,
)
from muster.coordinator.core.model.types import Protocol
from muster.coordinator.runtime.kafka_records import decode_group, encode
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import MalformedRecord

G, M = "0001 67", "0002 6d31"
TOPIC = bytes(range(16))
ID = "000102030405060708090a0b0c0d0e0f"
MEMBER = ConsumerMemberStored("g", "m1", None, None, "c", "/h", ("t", "u"), None, 60_000, None)
MEMBER_BYTES = "0000 00 00 02 63 03 2f68 03 02 74 02 75 00 0000ea60 00 00"
FULL = ConsumerMemberStored(
    "g", "m1", "i", "r", "c", "/h", (), "t.*", 1, "range", ClassicSide(10_000, (Protocol("range", b"\x01\x02"),))
)
# The tagged struct: tag 0, its size with the marker, the marker 1, the fields, no tags of its own.
CLASSIC = "00 11 01 00002710 02 06 72616e6765 03 0102 00 00"
FULL_BYTES = f"0000 02 69 02 72 02 63 03 2f68 01 04 742e2a 00000001 06 72616e6765 01 {CLASSIC}"


def pair(key: str, value: str | None) -> KeyValue:
    return KeyValue(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (GroupEpochStored("g", 11), f"0003 {G}", "0000 0000000b 00"),
        (GroupEpochStored("g", 11, 7), f"0003 {G}", "0000 0000000b 01 00 08 0000000000000007"),
        (GroupEpochDeleted("g"), f"0003 {G}", None),
        (MEMBER, f"0005 {G} {M}", MEMBER_BYTES),
        (FULL, f"0005 {G} {M}", FULL_BYTES),
        (ConsumerMemberDeleted("g", "m1"), f"0005 {G} {M}", None),
        (TargetEpochStored("g", 3, 0), f"0006 {G}", "0000 00000003 00"),
        (TargetEpochStored("g", 3, 100), f"0006 {G}", "0000 00000003 01 00 08 0000000000000064"),
        (TargetEpochDeleted("g"), f"0006 {G}", None),
        (
            TargetStored("g", "m1", {TOPIC: frozenset({2, 1})}),
            f"0007 {G} {M}",
            f"0000 02 {ID} 03 00000001 00000002 00 00",
        ),
        (TargetDeleted("g", "m1"), f"0007 {G} {M}", None),
        (
            CurrentStored("g", "m1", 11, 10, 1, {TOPIC: {0: 9}}, {TOPIC: {5: 10, 4: 8}}),
            f"0008 {G} {M}",
            f"0000 0000000b 0000000a 01"
            f" 02 {ID} 02 00000000 01 00 05 02 00000009"
            f" 02 {ID} 03 00000004 00000005 01 00 09 03 00000008 0000000a 00",
        ),
        (CurrentDeleted("g", "m1"), f"0008 {G} {M}", None),
        (
            RegexStored("g", "t.*", ("t", "tt"), 5, 100),
            f"0010 {G} 0003 742e2a",
            "0000 03 02 74 03 7474 0000000000000005 0000000000000064 00",
        ),
        (RegexDeleted("g", "t.*"), f"0010 {G} 0003 742e2a", None),
    ],
)
def test_records_have_kafkas_bytes_and_come_back(record: ConsumerRecord, key: str, value: str | None) -> None:
    encoded = encode([record])
    assert encoded.ledger == []
    assert encoded.groups == [pair(key, value)]
    assert decode_group(encoded.groups[0]) == record


def test_partitions_without_epochs_were_assigned_at_the_members_own() -> None:
    # Before KIP-1251 nobody wrote them.
    value = f"0000 0000000b 0000000a 00 02 {ID} 03 00000001 00000002 00 01 00"
    record = decode_group(pair(f"0008 {G} {M}", value))
    assert record == CurrentStored("g", "m1", 11, 10, 0, {TOPIC: {1: 11, 2: 11}}, {})


def test_tags_of_newer_versions_are_passed_over() -> None:
    # KIP-1282 adds the creation time as tag 1.
    value = "0000 0000000b 02 00 08 0000000000000007 01 08 0000000000000064"
    assert decode_group(pair(f"0003 {G}", value)) == GroupEpochStored("g", 11, 7)


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        (f"0003 {G}", "0001 0000000b 00", "value version 1; this node reads 0"),
        (f"0003 {G} 00", "0000 0000000b 00", "1 bytes after the last field"),
        (f"0008 {G} {M}", f"0000 0000000b 0000000a 00 02 {ID} 02 00000001 01 00 01 01 01 00", "1 partitions with 0"),
        (f"0007 {G} {M}", "0000 02 0001", "field of 16 bytes"),
    ],
)
def test_what_cannot_be_read_says_why(key: str, value: str, complaint: str) -> None:
    with pytest.raises(MalformedRecord, match=complaint):
        decode_group(pair(key, value))
