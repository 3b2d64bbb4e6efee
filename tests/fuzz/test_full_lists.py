"""As many entries as a frame holds, in every list of every request on both doors: refused before they are built."""

import asyncio
import re
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from google.protobuf import message_factory
from google.protobuf.message import Message

from muster.coordinator.edge.request_limits import MAX_ENTRIES, MAX_STRAY_FIELDS, MalformedGroupRequest, max_entries
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import RequestTooLong, decode, decode_frame, fields_in_version, is_flexible
from muster.coordinator.kafka.codec.messages import all_messages
from muster.coordinator.kafka.connections.connection import ServerConnection
from muster.coordinator.kafka.connections.received_requests import ConnectionLimits
from muster.coordinator.server.grpc.adapter import request_reader
from muster.coordinator.server.rpc_dispatch import ServiceMethod, kind_of
from tests.fuzz import full_grpc, full_kafka
from tests.fuzz.targets import Wire
from tests.support.kafka.client import frame
from tests.support.kafka.memory_node import MemoryNode

FRAME = 4 << 20
PIECE = 1 << 16
"""Of a frame comes in one turn."""
LIMITS = ConnectionLimits(
    max_frame=2 * FRAME, max_in_flight=5, max_in_flight_bytes=2 * FRAME, max_unsent_bytes=1 << 16, max_idle_ms=60_000
)


@contextmanager
def peak_below(most_bytes: int) -> Iterator[None]:
    """What Python allocates meanwhile never exceeds so much."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most_bytes, f"{peak} bytes were taken, at most {most_bytes} are allowed"


KAFKA = list(full_kafka.listings())
GRPC = list(full_grpc.listings())


def test_there_are_lists_on_both_doors() -> None:
    """The generators would find none if the schema's classes changed under them."""
    assert {listing.path for listing in KAFKA} >= {"MetadataRequest.topics", "OffsetFetchRequest.groups.topics"}
    assert {listing.word for listing in GRPC} >= {
        "OffsetFetch topics.partition_indexes packed",
        "Session register_consumer.owned",
    }


@pytest.mark.parametrize("listing", KAFKA, ids=lambda one: one.word)
def test_kafkas_door_refuses_a_full_list_before_it_builds_one(listing: full_kafka.Listing) -> None:
    body, limit = listing.frame(FRAME), max_entries(listing.path)
    name = f"{listing.api}Request"
    decode(name, listing.version, listing.frame(60))  # compiles it; and the shape is that of a request
    with peak_below(FRAME // 8), pytest.raises(RequestTooLong) as refusal:
        decode(name, listing.version, body)
    field = listing.path.partition(".")[2]
    assert f"{name} version {listing.version}: {field} has " in str(refusal.value)
    assert f"at most {limit} are accepted in one request" in str(refusal.value)


@pytest.mark.parametrize("listing", KAFKA, ids=lambda one: one.word)
def test_kafkas_door_says_so_where_an_answer_can(listing: full_kafka.Listing) -> None:
    asyncio.run(refused(listing))


async def refused(listing: full_kafka.Listing) -> None:
    name, version = listing.api, listing.version
    few = decode(f"{name}Request", version, listing.frame(0))[0]
    head = frame(name, version, 7, few)[4 : -len(listing.frame(0))]
    body = head + listing.frame(FRAME)
    async with MemoryNode({"a": 1}) as node:
        wire = Wire()
        talk = wire.protocol = ServerConnection(node.dispatch, LIMITS, lambda one: True, lambda one: None)
        talk.connection_made(wire)  # type: ignore[arg-type]
        stream = len(body).to_bytes(4, "big") + body
        with peak_below(FRAME // 4):
            for at in range(0, len(stream), PIECE):
                talk.data_received(stream[at : at + PIECE])
        wire.close()
        await asyncio.sleep(0)
    response = all_messages()[f"{name}Response"]
    if any(one.name == "error_code" for one in fields_in_version(response.fields, version)):
        answer = decode_frame(response.name, version, bytes(wire.sent), 8 + is_flexible(response.name, version))
        assert (answer.error_code, talk.fault) == (ErrorCode.INVALID_REQUEST, "")
    else:
        assert "are accepted in one request" in talk.fault
        assert not wire.sent


def reader_of(listing: full_grpc.Listing) -> Callable[[bytes], Message]:
    method = listing.method
    request, response = map(message_factory.GetMessageClass, (method.input_type, method.output_type))
    read = request_reader(
        ServiceMethod(method.full_name, kind_of(method), request, response, lambda request, call: None)
    )
    return lambda data: asyncio.run(read(data))


@pytest.mark.parametrize("listing", GRPC, ids=lambda one: one.word)
def test_grpcs_door_refuses_a_full_list_before_it_builds_one(listing: full_grpc.Listing) -> None:
    read, data = reader_of(listing), listing.message(FRAME)
    # One entry is stepped over, or counted, at a time: nothing is kept of it.
    with peak_below(FRAME // 2), pytest.raises(MalformedGroupRequest) as refusal:
        read(data)
    if listing.fields:
        field = ".".join(one.name for one in listing.fields)
        limit = max_entries(f"{listing.method.input_type.name}.{field}")
        told = re.fullmatch(
            rf"{field} has (\d+) entries or more; at most {limit} are accepted in one request", str(refusal.value)
        )
        assert told is not None
        assert int(told[1]) > limit
    else:
        assert "besides its lists" in str(refusal.value)


@pytest.mark.parametrize("listing", [one for one in GRPC if one.packed], ids=lambda one: one.word)
def test_as_many_as_are_allowed_are_read(listing: full_grpc.Listing) -> None:
    assert len(listing.message(MAX_ENTRIES)) > 1 << 16, "it is counted"
    read: object = reader_of(listing)(listing.message(MAX_ENTRIES))
    *above, last = listing.fields
    for one in above:
        found = getattr(read, one.name)
        read = found[0] if one.is_repeated else found
    assert len(getattr(read, last.name)) == MAX_ENTRIES
    with pytest.raises(MalformedGroupRequest):
        reader_of(listing)(listing.message(MAX_ENTRIES + 1))


def test_fields_of_later_versions_are_passed_over_in_large_requests_too() -> None:
    stray = next(one for one in GRPC if not one.fields and one.method.name == "JoinGroup")
    known = stray.message(4 * MAX_STRAY_FIELDS)
    metadata = full_grpc.tagged(stray.method.input_type.fields_by_name["group_id"], b"g" * (1 << 17))
    assert reader_of(stray)(known + metadata).group_id == "g" * (1 << 17)
