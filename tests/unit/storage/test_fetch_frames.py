"""The hand-made frames of fetch answers are protobuf's, and theirs are read as ours."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from muster.storage.rpc.v1 import broker_service_pb2 as pb
from muster.storage.service.fetch_frames import FetchResultFrame, MultiFetchFrames, fetch_response, multi_fetch_response

results = st.builds(
    pb.FetchPartitionResult,
    partition_index=st.integers(-1, 2**31 - 1),
    error_code=st.sampled_from([0, 1, 3]),
    error_message=st.text(max_size=20),
    high_watermark=st.integers(-1, 2**63 - 1),
    last_stable_offset=st.integers(-1, 2**63 - 1),
    log_start_offset=st.integers(-1, 2**63 - 1),
    aborted_transactions=st.lists(
        st.builds(pb.AbortedTransaction, producer_id=st.integers(-1, 9), first_offset=st.integers(-1, 9)), max_size=2
    ),
)
records = st.binary(max_size=40) | st.integers(0, 70_000).map(bytes)
parts = st.lists(st.builds(FetchResultFrame, st.text(max_size=10), results, records), max_size=4)


def in_full(part: FetchResultFrame) -> pb.FetchPartitionResult:
    full = pb.FetchPartitionResult(records=bytes(part.records))
    full.MergeFrom(part.result)
    return full


def as_message(given_parts: list[FetchResultFrame]) -> pb.MultiFetchResponse:
    return pb.MultiFetchResponse(
        results=[pb.MultiFetchResult(topic=part.topic, result=in_full(part)) for part in given_parts]
    )


@given(parts)
def test_protobuf_reads_what_is_framed_here(given_parts: list[FetchResultFrame]) -> None:
    assert pb.MultiFetchResponse.FromString(multi_fetch_response(given_parts)) == as_message(given_parts)


@given(parts)
def test_what_protobuf_frames_is_read_here(given_parts: list[FetchResultFrame]) -> None:
    data = as_message(given_parts).SerializeToString()
    assert MultiFetchFrames.FromString(data).parts == given_parts


@given(st.lists(st.tuples(st.text(max_size=10), parts), max_size=3))
def test_answers_by_topic_keep_the_shape_of_the_request(topics: list[tuple[str, list[FetchResultFrame]]]) -> None:
    expected = pb.FetchResponse(
        responses=[pb.FetchTopicResult(topic=name, partitions=map(in_full, inner)) for name, inner in topics]
    )
    assert pb.FetchResponse.FromString(fetch_response(topics)) == expected


def test_records_are_views_of_what_came() -> None:
    data = multi_fetch_response([FetchResultFrame("t", pb.FetchPartitionResult(), b"records")])
    (part,) = MultiFetchFrames.FromString(data).parts
    assert isinstance(part.records, memoryview)
    assert part.records.obj is data


def test_fields_of_later_versions_are_passed_over() -> None:
    later = b"\x08\x00" + b"\x51" + bytes(8) + b"\x55" + bytes(4) + b"\x5a\x02hi"
    data = later + multi_fetch_response([FetchResultFrame("t", pb.FetchPartitionResult(partition_index=3), b"r")])
    (part,) = MultiFetchFrames.FromString(data).parts
    assert (part.topic, part.result.partition_index, bytes(part.records)) == ("t", 3, b"r")


@given(st.binary(max_size=60) | parts.map(multi_fetch_response), st.integers(0, 60), st.integers(0, 255))
def test_other_bytes_are_refused_or_read_as_protobuf_does(data: bytes, place: int, byte: int) -> None:
    data = data[:place] + bytes([byte]) + data[place + 1 :]
    try:
        found = [(part.topic, bytes(part.records)) for part in MultiFetchFrames.FromString(data).parts]
    except DecodeError:
        return
    expected = pb.MultiFetchResponse.FromString(data)
    assert found == [(part.topic, part.result.records) for part in expected.results]


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_cut_answer_is_refused_wherever_protobuf_refuses_it(cut: int) -> None:
    whole = multi_fetch_response([FetchResultFrame("topic", pb.FetchPartitionResult(high_watermark=7), b"the records")])
    with pytest.raises(DecodeError):
        MultiFetchFrames.FromString(whole[:cut])
