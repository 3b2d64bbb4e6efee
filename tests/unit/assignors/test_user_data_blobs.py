"""ConsumerProtocol, byte for byte, and what bad bytes do."""

import struct

import pytest

from muster.assignors.data.consumer_protocol import (
    Subscription,
    encode_assignment,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    encode_subscription,
    member_from_subscription,
    parse_assignment,
    parse_cooperative_user_data,
    parse_sticky_user_data,
    parse_subscription,
)

V0 = bytes.fromhex("0000 00000002 0001 74 0001 75 ffffffff")
V3 = bytes.fromhex(
    "0003 00000001 0001 74 00000002 abcd"  # version, topics [t], user data
    "00000001 0001 74 00000002 00000000 00000005"  # owned t: 0, 5
    "00000007 0002 7231"  # generation 7, rack r1
)


def test_version_0_is_topics_and_user_data():
    said = Subscription(0, ("t", "u"))
    assert encode_subscription(said) == V0
    assert parse_subscription(V0) == said


def test_version_3_carries_claims_generation_and_rack():
    said = Subscription(3, ("t",), b"\xab\xcd", {"t": [0, 5]}, 7, "r1")
    assert encode_subscription(said) == V3
    assert parse_subscription(V3) == said


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_version_survives_the_trip(version):
    said = Subscription(
        version,
        ("b", "a", "naïve-𝔘"),
        b"",
        {"a": [3, 1]} if version >= 1 else {},
        12 if version >= 2 else -1,
        None,
    )
    assert parse_subscription(encode_subscription(said)) == said


def test_a_newer_version_is_read_with_the_newest_layout_known():
    newer = struct.pack(">h", 9) + V3[2:] + b"a tail from the future"
    said = parse_subscription(newer)
    assert (said.version, said.owned, said.generation, said.rack) == (9, {"t": [0, 5]}, 7, "r1")


@pytest.mark.parametrize("blob", [V0, V3])
def test_every_truncation_is_refused(blob):
    for size in range(len(blob)):
        with pytest.raises(ValueError, match="subscription"):
            parse_subscription(blob[:size])


def test_a_huge_count_is_refused_before_anything_is_allocated():
    with pytest.raises(ValueError, match="2147483647 topics"):
        parse_subscription(bytes.fromhex("0001 7fffffff 0001 74"))
    with pytest.raises(ValueError, match="partitions"):
        parse_assignment(bytes.fromhex("0000 00000001 0001 74 7fffffff 00000000"))


def test_negative_counts_null_names_and_bad_text_are_refused():
    for blob in ("0000 ffffffff", "0000 00000001 ffff ffffffff", "0000 00000001 0001 ff ffffffff", "ffff"):
        with pytest.raises(ValueError):
            parse_subscription(bytes.fromhex(blob))


def test_assignments_are_the_same_in_all_versions_and_nothing_means_nothing():
    blob = encode_assignment({"t": [0, 2]}, None, version=1)
    assert blob == bytes.fromhex("0001 00000001 0001 74 00000002 00000000 00000002 ffffffff")
    read = parse_assignment(blob)
    assert (read.version, read.partitions, read.user_data) == (1, {"t": [0, 2]}, None)
    assert parse_assignment(b"").partitions == {}


def test_what_does_not_fit_is_refused_when_writing():
    with pytest.raises(ValueError, match="version 4"):
        encode_subscription(Subscription(4, ()))
    with pytest.raises(ValueError, match="32-bit"):
        encode_assignment({"t": [1 << 31]})
    with pytest.raises(ValueError, match="bytes long"):
        encode_subscription(Subscription(0, ("x" * 40_000,)))
    with pytest.raises(ValueError, match="32 bits"):
        encode_cooperative_user_data(1 << 40)


def test_sticky_user_data_version_1_adds_the_generation():
    old, new = encode_sticky_user_data({"t": [1]}), encode_sticky_user_data({"t": [1]}, 4)
    assert new == old + b"\x00\x00\x00\x04"
    assert parse_sticky_user_data(old) == ({"t": [1]}, -1)
    assert parse_sticky_user_data(new) == ({"t": [1]}, 4)
    assert parse_cooperative_user_data(encode_cooperative_user_data(9)) == 9


def test_eager_sticky_believes_user_data_alone():
    blob = encode_subscription(Subscription(3, ("t",), encode_sticky_user_data({"t": [1]}, 4), {"t": [0]}, 7))
    member = member_from_subscription("m", "i", blob, "sticky")
    assert (member.owned, member.generation, member.instance_id) == ({"t": [1]}, 4, "i")


def test_the_others_believe_the_owned_partitions():
    blob = encode_subscription(Subscription(3, ("t",), encode_sticky_user_data({"t": [1]}, 4), {"t": [0]}, 7))
    for assignor in ("cooperative-sticky", "uniform", "somebodys"):
        member = member_from_subscription("m", None, blob, assignor)
        assert (member.owned, member.generation) == ({"t": [0]}, 7)


def test_old_cooperative_members_keep_the_generation_in_user_data():
    blob = encode_subscription(Subscription(1, ("t",), encode_cooperative_user_data(5), {"t": [0]}))
    assert member_from_subscription("m", None, blob, "cooperative-sticky").generation == 5
    assert member_from_subscription("m", None, blob, "range").generation == -1


def test_unreadable_user_data_says_nothing_about_ownership():
    blob = encode_subscription(Subscription(1, ("t",), b"\x00\x01junk", {"t": [0]}))
    assert member_from_subscription("m", None, blob, "sticky").owned is None
    assert member_from_subscription("m", None, encode_subscription(Subscription(0, ("t",))), "sticky").owned is None
