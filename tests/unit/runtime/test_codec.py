"""Bytes derived by hand from Kafka's schemas (OffsetCommitKey/Value, GroupMetadataKey/Value)."""

from dataclasses import replace

import pytest

from muster.coordinator.core.model.records import (
    BalanceForgotten,
    BalanceStored,
    CanaryForgotten,
    FenceForgotten,
    FenceStored,
    GroupDeleted,
    GroupStored,
    HoldsEnded,
    HoldsStored,
    MemberRecord,
    OffsetDeleted,
    OffsetStored,
    Pin,
    Record,
    SettingsStored,
    SettingsUnset,
    Until,
)
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.runtime.kafka_records import decode_group, encode
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import MAX_STRING_BYTES, MalformedRecord, SkippedRecord

OFFSET_KEY = "0001 0001 67 0001 74 00000003"
GROUP_KEY = "0002 0001 67"
AT_42 = "000000000000002a"
NOTE = "0001 6d"
COMPACT_NOTE = "02 6d"
T100 = "0000000000000064"
T200 = "00000000000000c8"

MEMBER = MemberRecord("m1", None, "c", "/h", 60_000, 10_000, b"\x00\x01", b"")
GROUP = GroupStored("g", "consumer", 5, "range", "m1", 100, (MEMBER,))
MEMBER_V3 = "0002 6d31 ffff 0001 63 0002 2f68 0000ea60 00002710 00000002 0001 00000000"
CONSUMER, RANGE, M1 = "0008 636f6e73756d6572", "0005 72616e6765", "0002 6d31"
GROUP_V3 = f"0003 {CONSUMER} 00000005 {RANGE} {M1} {T100} 00000001 {MEMBER_V3}"
EMPTY_GROUP = GroupStored("g", "", 0, None, None, -1, ())
EMPTY_V3 = "0003 0000 00000000 ffff ffff ffffffffffffffff 00000000"


def stored(key: str, value: str | None) -> KeyValue:
    return KeyValue(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


def offset(
    leader_epoch: int = -1, expire: int | None = None, metadata: str = "m", topic_id: bytes = b""
) -> OffsetStored:
    return OffsetStored("g", "t", 3, StoredOffset(42, leader_epoch, metadata, 100, expire, topic_id))


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        pytest.param(
            offset(leader_epoch=7), OFFSET_KEY, f"0004 {AT_42} 00000007 {COMPACT_NOTE} {T100} 00", id="offset v4"
        ),
        pytest.param(
            offset(metadata=""), OFFSET_KEY, f"0004 {AT_42} ffffffff 01 {T100} 00", id="offset v4 without a note"
        ),
        pytest.param(
            offset(metadata="", topic_id=b"\xab" * 16),
            OFFSET_KEY,
            f"0004 {AT_42} ffffffff 01 {T100} 01 00 10 {'ab' * 16}",
            id="offset v4 of a topic, without a note",
        ),
        pytest.param(
            offset(topic_id=b"\xab" * 16),
            OFFSET_KEY,
            f"0004 {AT_42} ffffffff {COMPACT_NOTE} {T100} 01 00 10 {'ab' * 16}",
            id="offset v4 of a topic",
        ),
        pytest.param(
            offset(expire=200), OFFSET_KEY, f"0001 {AT_42} {NOTE} {T100} {T200}", id="offset v1 with an expiry"
        ),
        pytest.param(
            offset(expire=200, metadata=""),
            OFFSET_KEY,
            f"0001 {AT_42} 0000 {T100} {T200}",
            id="offset v1 with an expiry and no note",
        ),
        pytest.param(OffsetDeleted("g", "t", 3), OFFSET_KEY, None, id="offset tombstone"),
        pytest.param(GROUP, GROUP_KEY, GROUP_V3, id="group v3"),
        pytest.param(EMPTY_GROUP, GROUP_KEY, EMPTY_V3, id="simple group, nulls"),
        pytest.param(
            SettingsStored("g", 3, {"assignor.options": {"seed": 7}}),
            "7d03 0001 67",
            b'{"changes":3,"settings":{"assignor.options":{"seed":7}},"version":1}'.hex(),
            id="settings of a group",
        ),
        pytest.param(
            SettingsStored("g", 3, {"assignor": "lag"}, "m insists"),
            "7d03 0001 67",
            b'{"changes":3,"settings":{"assignor":"lag"},"suspended":"m insists","version":1}'.hex(),
            id="settings of a group, suspended",
        ),
        pytest.param(
            FenceStored("g", "t", 3, 1 << 62, 7, (5, 6), "m", 4, 100),
            "7d08 0001 67 0001 74 00000003",
            b'{"claimed_at_ms":100,"epoch":7,"former":[5,6],"generation":4,"id":4611686018427387904,"member":"m",'
            b'"version":1}'.hex(),
            id="fence",
        ),
        pytest.param(FenceForgotten("g", "t", 3), "7d08 0001 67 0001 74 00000003", None, id="fence tombstone"),
        pytest.param(
            HoldsStored("g", 4, pins=(Pin("t", 1, "web", Until(9, 5)),)),
            "7d05 0001 67",
            (
                b'{"holds":{"deploy":null,"drains":[],"freeze":null,"group_id":"g","pins":[{"name":"web","partition":1,'
                b'"topic":"t","until":{"after_ms":5,"at_ms":9}}],"shares":[],"version":4},"version":1}'
            ).hex(),
            id="what is held of a group",
        ),
        pytest.param(HoldsEnded("g"), "7d05 0001 67", None, id="nothing is held any more"),
        pytest.param(SettingsUnset("g"), "7d03 0001 67", None, id="settings tombstone"),
        pytest.param(
            BalanceStored("g", 5, ((7, (("t", (0, 2)), ("u", (1,)))), (9, (("t", (1,)),)))),
            "7d07 0001 67",
            b'{"moved":[[7,{"t":[0,2],"u":[1]}],[9,{"t":[1]}]],"version":1,"watched_at_ms":5}'.hex(),
            id="moves of a balanced group",
        ),
        pytest.param(BalanceForgotten("g"), "7d07 0001 67", None, id="moves tombstone"),
        pytest.param(CanaryForgotten("g"), "7d06 0001 67", None, id="canary tombstone"),
        pytest.param(GroupDeleted("g"), GROUP_KEY, None, id="group tombstone"),
    ],
)
def test_records_have_kafkas_bytes_and_come_back(record: Record, key: str, value: str | None) -> None:
    encoded = encode([record])
    assert encoded.ledger == []
    assert encoded.groups == [stored(key, value)]
    assert decode_group(encoded.groups[0]) == record


def test_a_group_instance_id_is_kept() -> None:
    record = replace(GROUP, members=(replace(MEMBER, group_instance_id="i"),))
    value = encode([record]).groups[0].value
    assert value == bytes.fromhex(GROUP_V3.replace("6d31 ffff", "6d31 0001 69"))
    assert decode_group(stored(GROUP_KEY, value.hex())) == record


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(f"0000 {AT_42} {NOTE} {T100}", offset(), id="v0"),
        pytest.param(f"0001 {AT_42} {NOTE} {T100} {T200}", offset(expire=200), id="v1"),
        pytest.param(f"0001 {AT_42} {NOTE} {T100} ffffffffffffffff", offset(), id="v1 without an expiry"),
        pytest.param(f"0002 {AT_42} {NOTE} {T100}", offset(), id="v2"),
        pytest.param(f"0003 {AT_42} 00000007 {NOTE} {T100}", offset(leader_epoch=7), id="v3"),
        pytest.param(
            f"0004 {AT_42} 00000007 {COMPACT_NOTE} {T100} 01 00 10 {'ab' * 16}",
            offset(leader_epoch=7, topic_id=b"\xab" * 16),
            id="v4, topic id",
        ),
        pytest.param(
            f"0004 {AT_42} 00000007 {COMPACT_NOTE} {T100} 02 00 10 {'00' * 16} 07 01 ff",
            offset(leader_epoch=7),
            id="v4, the topic id that is none, and a field nobody knows",
        ),
    ],
)
def test_every_version_of_an_offset_is_read(value: str, expected: OffsetStored) -> None:
    assert decode_group(stored(OFFSET_KEY, value)) == expected
    assert decode_group(stored("0000" + OFFSET_KEY[4:], value)) == expected


MEMBER_V0 = "0002 6d31 0001 63 0002 2f68 00002710 00000002 0001 00000000"
MEMBER_V1 = "0002 6d31 0001 63 0002 2f68 0000ea60 00002710 00000002 0001 00000000"
MEMBER_V4 = "03 6d31 00 02 63 03 2f68 0000ea60 00002710 03 0001 01 00"
AS_SESSION = replace(GROUP, members=(replace(MEMBER, rebalance_timeout_ms=10_000),))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(
            f"0000 {CONSUMER} 00000005 {RANGE} {M1} 00000001 {MEMBER_V0}",
            replace(AS_SESSION, state_timestamp_ms=-1),
            id="v0",
        ),
        pytest.param(
            f"0001 {CONSUMER} 00000005 {RANGE} {M1} 00000001 {MEMBER_V1}",
            replace(GROUP, state_timestamp_ms=-1),
            id="v1",
        ),
        pytest.param(f"0002 {CONSUMER} 00000005 {RANGE} {M1} {T100} 00000001 {MEMBER_V1}", GROUP, id="v2"),
        pytest.param(GROUP_V3.replace("0000ea60", "ffffffff"), AS_SESSION, id="v3, timeout -1"),
        pytest.param(
            f"0004 09 636f6e73756d6572 00000005 06 72616e6765 03 6d31 {T100} 02 {MEMBER_V4} 00", GROUP, id="v4"
        ),
        pytest.param("0004 01 00000000 00 00 ffffffffffffffff 01 00", EMPTY_GROUP, id="v4, nulls"),
    ],
)
def test_every_version_of_a_group_is_read(value: str, expected: GroupStored) -> None:
    assert decode_group(stored(GROUP_KEY, value)) == expected


@pytest.mark.parametrize("kind", [4, 9, 15, 23, 99, -1])
def test_other_kinds_of_keys_are_skipped_by_name(kind: int) -> None:
    key = kind.to_bytes(2, "big", signed=True) + b"whatever"
    assert decode_group(KeyValue(key, b"whatever")) == SkippedRecord(f"key type {kind}")


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("", None, r"field of 2 bytes at byte 0 with 0 bytes left"),
        ("0001 0001 67 ffff 00000003", None, r"null at byte 7; expected a string"),
        (f"{OFFSET_KEY} 00", None, r"1 bytes after the last field at byte 12"),
        ("0002 0001 ff", None, r"string before byte 5 is not UTF-8"),
        ("0002 fffe 67", None, r"field of -2 bytes"),
        (OFFSET_KEY, "0005", r"value version 5; this node reads 0 to 4"),
        (OFFSET_KEY, "ffff", r"value version -1"),
        (OFFSET_KEY, f"0003 {AT_42} 0000", r"field of 4 bytes at byte 10 with 2 bytes left"),
        (OFFSET_KEY, f"0003 {AT_42} 00000007 {NOTE} {T100} 00", r"1 bytes after the last field"),
        (OFFSET_KEY, f"0004 {AT_42} 00000007 ffffffffff00", r"varint before byte 19 is longer than 5 bytes"),
        (GROUP_KEY, f"0003 {CONSUMER} 00000005 {RANGE} {M1} {T100} 7fffffff", r"array of 2147483647 elements"),
        (GROUP_KEY, f"0003 {CONSUMER} 00000005 {RANGE} {M1} {T100} ffffffff", r"array of -1 elements"),
        (GROUP_KEY, GROUP_V3.replace("00000002 0001", "ffffffff"), r"expected bytes"),
    ],
)
def test_damage_is_one_error_that_says_where(key: str, value: str | None, complaint: str) -> None:
    with pytest.raises(MalformedRecord, match=complaint):
        decode_group(stored(key, value))


def test_every_cut_and_every_flip_is_an_error_or_a_record() -> None:
    whole = encode([GROUP]).groups[0]
    assert whole.value is not None
    for end in range(len(whole.value)):
        with pytest.raises(MalformedRecord):
            decode_group(KeyValue(whole.key, whole.value[:end]))
    outcomes = set()
    for at in range(len(whole.value)):
        flipped = bytes([*whole.value[:at], whole.value[at] ^ 0xFF, *whole.value[at + 1 :]])
        try:
            outcomes.add(type(decode_group(KeyValue(whole.key, flipped))))
        except MalformedRecord:
            outcomes.add(MalformedRecord)
    assert outcomes == {GroupStored, MalformedRecord}


def test_a_string_that_the_format_cannot_hold_is_refused_by_size() -> None:
    assert encode([GroupDeleted("g" * MAX_STRING_BYTES)]).groups[0].value is None
    with pytest.raises(ValueError, match=r"string of 32768 bytes .* the format allows 32767"):
        encode([GroupDeleted("g" * (MAX_STRING_BYTES + 1))])
