"""What the codec refuses, and how it says so; kio judges the rest (tests/property/kafka)."""

import pytest

from muster.coordinator.kafka.codec import codec
from muster.coordinator.kafka.codec.codec import (
    MAX_ELEMENTS,
    MAX_TAGS,
    MalformedFrame,
    Unencodable,
    decode,
    decode_frame,
    encode,
    encode_uvarint,
    struct,
)
from muster.coordinator.kafka.codec.messages import all_messages, parse_messages

BEAT = struct("HeartbeatRequest")(group_id="group", generation_id=7, member_id="member", group_instance_id="i")


def test_a_frame_that_ends_too_early_is_named_by_message_version_and_field() -> None:
    data = b"".join(encode("HeartbeatRequest", 4, BEAT))
    fields = [told(data[:size]) for size in range(len(data))]
    assert fields == ["group_id"] * 6 + ["generation_id"] * 4 + ["member_id"] * 7 + ["group_instance_id"] * 2 + [
        "HeartbeatRequest"
    ]


def told(data: bytes) -> str:
    with pytest.raises(MalformedFrame, match=r"HeartbeatRequest version 4, HeartbeatRequest") as refusal:
        decode_frame("HeartbeatRequest", 4, data)
    return str(refusal.value).partition(":")[0].rpartition(".")[2].rpartition(" ")[2]


def test_bytes_that_follow_a_message_are_refused() -> None:
    data = b"".join(encode("HeartbeatRequest", 4, BEAT))
    with pytest.raises(MalformedFrame, match="3 bytes follow it"):
        decode_frame("HeartbeatRequest", 4, data + b"\0\0\0")
    assert decode("HeartbeatRequest", 4, data + b"\0\0\0") == (BEAT, len(data))


@pytest.mark.parametrize(
    ("name", "version", "data", "what"),
    [
        ("HeartbeatRequest", 4, b"\x00", "group_id: it is null, which it must not be"),
        ("HeartbeatRequest", 0, b"\xff\xff" + bytes(8), "group_id: it is null, which it must not be"),
        ("HeartbeatRequest", 0, b"\x00\x02\xff\xfe" + bytes(8), "group_id: it is no UTF-8"),
        ("HeartbeatRequest", 4, b"\xff\xff\xff\xff\xff\x01", "group_id: its length is not a varint of 32 bits"),
        ("HeartbeatRequest", 4, b"\xff\xff\xff\xff\x1f", "group_id: its length is not a varint of 32 bits"),
        ("DeleteGroupsRequest", 1, b"\x7f\xff\xff\xff", "it announces 2147483647 elements"),
        ("DeleteGroupsRequest", 1, b"\x00\x00\x00\x05" + bytes(9), "it announces 5 elements, more than the frame"),
        ("DeleteGroupsRequest", 1, b"\x00\x00\x00\x01\xff\xff", "an element is null"),
        ("OffsetFetchRequest", 1, b"\x00\x00\xff\xff\xff\xff", "topics: it is null"),
        ("ConsumerGroupHeartbeatResponse", 1, bytes(16) + b"\x07", "its first byte is neither 1 nor -1"),
        ("HeartbeatResponse", 4, bytes(6) + b"\x02\x05\x00\x05\x00", "tag 5 is out of order"),
        ("HeartbeatResponse", 4, bytes(6) + b"\x01\x05\x09", "ends within a tagged field"),
        (
            "ApiVersionsResponse",
            3,
            bytes(2) + b"\x01" + bytes(4) + b"\x01\x01\x09" + bytes(9),
            "not as long as its tag",
        ),
    ],
)
def test_hostile_bytes_are_refused(name: str, version: int, data: bytes, what: str) -> None:
    with pytest.raises(MalformedFrame, match=what):
        decode_frame(name, version, data)


def test_all_arrays_of_an_answer_together_are_bounded() -> None:
    many = MAX_ELEMENTS // 2 + 1
    topic = b"\x02t" + encode_uvarint(many + 1) + bytes(7 * many) + b"\0"
    one, two = (bytes(4) + encode_uvarint(topics + 1) + topic * topics + b"\0" for topics in (1, 2))
    assert len(decode("OffsetCommitResponse", 8, one)[0].topics[0].partitions) == many
    with pytest.raises(MalformedFrame, match=f"it announces {many} elements"):
        decode("OffsetCommitResponse", 8, two)


@pytest.mark.parametrize(
    ("name", "version", "begin"),
    [("HeartbeatResponse", 4, bytes(6)), ("FetchRequest", 12, bytes(25) + b"\x01\x01\x01")],
    ids=["none known", "one known"],
)
def test_tagged_fields_count_like_elements(name: str, version: int, begin: bytes) -> None:
    """Each takes its time, though nobody knows it: 20 MB of them took thirteen seconds."""
    many = MAX_TAGS + 1
    rising = b"".join(encode_uvarint(tag) + b"\0" for tag in range(1, many + 1))
    with pytest.raises(MalformedFrame, match=f"it announces {many} tagged fields"):
        decode(name, version, begin + encode_uvarint(many) + rising)
    one_less = begin + encode_uvarint(many - 1) + rising
    assert decode(name, version, one_less)[1] == len(one_less) - len(encode_uvarint(many)) - 1


def test_tagged_fields_that_nobody_knows_are_passed_over() -> None:
    data = b"".join(encode("HeartbeatRequest", 4, BEAT))
    assert data[-1] == 0
    assert decode_frame("HeartbeatRequest", 4, data[:-1] + b"\x02\x07\x02xy\x09\x00") == BEAT


def test_record_batches_are_neither_joined_nor_copied() -> None:
    batch = memoryview(b"a batch of records")
    partition = struct("FetchResponse.responses.partitions")(records=batch)
    topic = struct("FetchResponse.responses")(topic="t", partitions=[partition, partition])
    buffers = encode("FetchResponse", 12, struct("FetchResponse")(responses=[topic]))
    assert [buffer for buffer in buffers if buffer is batch] == [batch, batch]
    data = b"".join(buffers)
    taken = decode_frame("FetchResponse", 12, data).responses[0].partitions[1].records
    assert isinstance(taken, memoryview)
    assert taken.obj is data


def test_what_an_object_lacks_has_its_default() -> None:
    class Bare:
        error_code = 25

    data = b"".join(encode("JoinGroupResponse", 5, Bare()))
    assert decode_frame("JoinGroupResponse", 5, data) == struct("JoinGroupResponse")(error_code=25)


def test_what_cannot_be_written_is_named_by_its_field() -> None:
    with pytest.raises(Unencodable, match=r"HeartbeatRequest version 4, HeartbeatRequest\.generation_id"):
        encode("HeartbeatRequest", 4, struct("HeartbeatRequest")(generation_id=1 << 40))
    with pytest.raises(Unencodable, match=r"HeartbeatRequest version 0, HeartbeatRequest\.member_id"):
        encode("HeartbeatRequest", 0, struct("HeartbeatRequest")(member_id="x" * 40_000))


def test_a_misspelt_field_is_no_field() -> None:
    with pytest.raises(TypeError, match=r"HeartbeatResponse\(\) got an unexpected keyword argument 'eror_code'"):
        struct("HeartbeatResponse")(eror_code=1)
    with pytest.raises(LookupError, match=r"'HeartbeatResponse\.members' is not a message or struct"):
        struct("HeartbeatResponse.members")
    with pytest.raises(LookupError, match="known in versions 0 to 4, not 5"):
        encode("HeartbeatRequest", 5, BEAT)


@pytest.mark.parametrize(
    "text", ["Heartbeat", "A 0-1\n  name: string", "A 0-1\n    name string", "A 0-1\n        a: int8"]
)
def test_what_is_not_in_the_notation_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ValueError, match="expected such as"):
        list(parse_messages(text))


def test_every_request_has_its_response() -> None:
    names = set(all_messages())
    for name, message in all_messages().items():
        if name.endswith("Request"):
            assert all_messages()[name.removesuffix("Request") + "Response"].versions == message.versions
    assert {"RequestHeader", "ResponseHeader"} <= names


def test_a_large_answer_is_joined_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [struct("ListGroupsResponse.groups")(group_id=f"g-{number}") for number in range(100)]
    answer = struct("ListGroupsResponse")(groups=rows)
    whole = encode("ListGroupsResponse", 4, answer)
    monkeypatch.setattr(codec, "JOINED_AT_ONCE", 7)
    assert encode("ListGroupsResponse", 4, answer) == whole
