"""Requests to produce into one partition are read and answered as by way of the schema, and so are all others."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from muster.coordinator.kafka.codec.codec import MalformedFrame, decode, encode, struct
from muster.coordinator.kafka.handlers.produce_and_fetch import make_produce_response
from muster.coordinator.kafka.handlers.single_batch_produce import ProduceReader, SingleBatch
from muster.storage.types import Appended

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.sampled_from(["", "t", "ünïcödé ☃", "x" * 126, "x" * 127, "x" * 200])
RECORDS = st.none() | st.sampled_from([b"", b"r", bytes(126), bytes(127), bytes(20_000)])
BEHIND = st.sampled_from([b"", b"\0", b"behind"])
"""Kafka passes over what follows a request."""

PARTS = st.lists(st.tuples(INT32, RECORDS), max_size=2)
TOPICS = st.lists(st.tuples(NAMES, PARTS), max_size=2)
SINGLE = st.tuples(NAMES, st.tuples(INT32, RECORDS).map(lambda part: [part])).map(lambda topic: [topic])


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, bytes]:
    version = draw(st.sampled_from([9, 9, 10, 11, 12, 8, 3]))
    row, topic = struct("ProduceRequest.topic_data.partition_data"), struct("ProduceRequest.topic_data")
    request = struct("ProduceRequest")(
        transactional_id=draw(st.sampled_from([None, None, None, "", "t"])),
        acks=draw(INT16),
        timeout_ms=draw(INT32),
        topic_data=[
            topic(name=name, partition_data=[row(index=index, records=records) for index, records in parts])
            for name, parts in draw(SINGLE | TOPICS)
        ],
    )
    return version, b"".join(encode("ProduceRequest", version, request)) + draw(BEHIND)


def plain(request: Any) -> tuple[object, ...]:
    """All that it says."""
    topics = [
        (topic.name, [(data.index, None if data.records is None else bytes(data.records)) for data in parts])
        for topic in request.topic_data
        for parts in [topic.partition_data]
    ]
    return request.transactional_id, request.acks, request.timeout_ms, topics


@settings(deadline=None)
@given(requests(), st.sampled_from([bytes, bytearray]), st.binary(max_size=9))
def test_each_request_says_what_the_schema_makes_of_it(
    sent: tuple[int, bytes], as_type: type[bytes] | type[bytearray], before: bytes
) -> None:
    version, frame = sent
    request, _ = ProduceReader(version)(as_type(before + frame), len(before))
    assert plain(request) == plain(decode("ProduceRequest", version, frame)[0])


@settings(deadline=None)
@given(requests(), st.data())
def test_a_damaged_request_is_read_or_refused_as_by_the_schema(sent: tuple[int, bytes], data: st.DataObject) -> None:
    version, frame = sent
    damaged = bytearray(frame)
    damaged[data.draw(st.integers(0, min(len(damaged) - 1, 300)))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.sampled_from([len(damaged), None, data.draw(st.integers(0, len(damaged)))]))]
    read_as_by_the_schema(version, damaged)


def single(name: str = "t", index: int = 3, records: bytes | None = b"records") -> bytes:
    row, topic = struct("ProduceRequest.topic_data.partition_data"), struct("ProduceRequest.topic_data")
    told = struct("ProduceRequest")(
        acks=-1, timeout_ms=5000, topic_data=[topic(name=name, partition_data=[row(index=index, records=records)])]
    )
    return b"".join(encode("ProduceRequest", 9, told))


def read_as_by_the_schema(version: int, frame: bytes | bytearray) -> None:
    try:
        request, _ = decode("ProduceRequest", version, frame)
    except MalformedFrame:
        with pytest.raises(MalformedFrame, match="ProduceRequest"):
            ProduceReader(version)(frame, 0)
    else:
        assert plain(ProduceReader(version)(frame, 0)[0]) == plain(request)


def test_every_byte_of_a_single_batch_counts() -> None:
    frame = single()
    for at in range(len(frame)):
        for value in range(256):
            read_as_by_the_schema(9, frame[:at] + bytes([value]) + frame[at + 1 :])


def test_a_single_batch_that_is_cut_short_is_refused_as_by_the_schema() -> None:
    for frame in (single(), single(records=None)):
        for end in range(len(frame)):
            read_as_by_the_schema(9, frame[:end])
    read_as_by_the_schema(9, single().replace(b"\x08records", b"\xff" * 5 + b"\x08records"))


def test_a_long_name_is_no_short_one_with_what_follows() -> None:
    """Its length has two bytes: read as one, the name's last byte would be the count of partitions, and so on."""
    read_as_by_the_schema(9, single("x" * 126 + "\2", 12, bytes(10)))


@settings(deadline=None)
@given(NAMES, INT32, st.tuples(INT64, INT64, INT64, INT64))
@example("x" * 126, 0, (0, 0, -1, 0))
def test_an_answer_has_the_bytes_of_the_schema(topic: str, index: int, numbers: tuple[int, int, int, int]) -> None:
    if len(topic.encode()) > 126:
        return  # not read as a single batch
    request, result = SingleBatch(-1, 0, topic, index, memoryview(b"")), Appended(*numbers)
    told = make_produce_response(request, [result])
    for version in range(9, 13):
        assert request.answer(result) == b"".join(encode("ProduceResponse", version, told))


def test_what_librdkafka_sends_is_a_single_batch() -> None:
    request, _ = ProduceReader(9)(single(records=bytes(16_000)), 0)
    assert isinstance(request, SingleBatch)
