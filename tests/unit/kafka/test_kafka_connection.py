"""One connection over a real socket: order, parking, limits, and what happens when either side goes away."""

import asyncio
import socket
import tracemalloc
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
import structlog.testing

from muster.coordinator.kafka.codec.codec import decode_frame, encode_uvarint, struct
from muster.coordinator.kafka.connections import listener as listener_module
from muster.coordinator.kafka.connections.received_requests import KEEPALIVE
from muster.coordinator.kafka.dispatch import KafkaCall, snake_case
from muster.coordinator.kafka.protocol import APIS, without_old_clients
from tests.support.kafka.client import KafkaClient, frame
from tests.support.kafka.listener import CONNECTION, LIMITS, HeldHandlers, client, listening
from tests.support.kafka.memory_node import until

UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
JOIN = {"group_id": "g", "session_timeout_ms": 10_000}


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def heartbeat(connection: KafkaClient, member: str) -> None:
    connection.send("Heartbeat", 4, group_id="g", generation_id=1, member_id=member)


def test_answers_leave_in_the_order_of_the_requests_whichever_is_ready_first() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (_, port), client(port) as connection:
            for member in "abc":
                heartbeat(connection, member)
            await handlers.until_begun(3)
            assert [request.member_id for _, request, _ in handlers.begun] == ["a", "b", "c"]
            for index in (2, 1, 0):
                handlers.answer(index, error_code=index)
            assert [(await connection.receive()).error_code for _ in range(3)] == [0, 1, 2]

    run(story())


PARKED = [("JoinGroup", 7), ("SyncGroup", 3), ("Fetch", 11)]
LARGE = [
    ("FindCoordinator", 4),
    ("OffsetFetch", 7),
    ("DescribeGroups", 5),
    ("ListGroups", 4),
    ("DescribeConfigs", 4),
    ("ConsumerGroupDescribe", 1),
]
IN_TURNS = [("Metadata", 9), ("CreateTopics", 5), ("CreatePartitions", 1), ("DeleteTopics", 5), ("DeleteRecords", 1)]


@pytest.mark.parametrize(("api", "version"), PARKED + LARGE + IN_TURNS)
def test_a_parked_request_holds_those_behind_it_and_no_other_connection(api: str, version: int) -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (_, port), client(port) as connection, client(port) as another:
            connection.send(api, version)
            heartbeat(connection, "behind")
            await handlers.until_begun(1)
            heartbeat(another, "beside")
            await handlers.until_begun(2)
            assert [name for name, _, _ in handlers.begun] == [snake_case(api), "heartbeat"]
            assert handlers.begun[1][1].member_id == "beside"
            handlers.answer(0, throttle_time_ms=5)
            assert (await connection.receive()).throttle_time_ms == 5
            await handlers.until_begun(3)
            assert handlers.begun[2][1].member_id == "behind"

    run(story())


def test_a_request_without_answer_does_not_hold_up_the_next() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (_, port), client(port) as connection:
            connection.send("Produce", 7, acks=0)
            heartbeat(connection, "a")
            await handlers.until_begun(1)
            handlers.answer_nothing(0)
            await handlers.until_begun(2)
            handlers.answer(1)
            del connection._asked[0]
            assert (await connection.receive()).error_code == 0

    run(story())


def test_a_client_that_vanishes_cancels_what_it_was_waiting_for() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (listener, port):
            async with client(port) as connection:
                connection.send("JoinGroup", 7, **JOIN)
                connection.send("JoinGroup", 7, **JOIN)
                await handlers.until_begun(1)
            await handlers.until_cancelled(1)
            call = handlers.begun[0][2]
            async with asyncio.timeout(30):
                await call.eof
            assert len(handlers.begun) == 1, "what was behind it is never begun"
            assert listener.connections == 0

    run(story())


def test_a_failing_handler_closes_its_connection_only() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (_, port), client(port) as connection, client(port) as another:
            heartbeat(connection, "a")
            heartbeat(another, "b")
            await handlers.until_begun(2)
            handlers.fail(0, RuntimeError("a bug"))
            assert await connection.closed_by_node()
            handlers.answer(1)
            assert (await another.receive()).error_code == 0

    run(story())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x05hello",
        b"\xff\xff\xff\xff",
        (20).to_bytes(4, "big") + b"\x00\x0c\x00\x04" + b"\xff" * 16,
        (8).to_bytes(4, "big") + b"\x7f\xff\x00\x00\x00\x00\x00\x01",
        frame("Heartbeat", 4, 1, struct("HeartbeatRequest")())[:-1] + b"\xff",
        (30).to_bytes(4, "big") + frame("Heartbeat", 4, 1, struct("HeartbeatRequest")())[4:] + b"more and more",
    ],
)
def test_garbage_closes_one_connection_and_nothing_else(garbage: bytes) -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (_, port), client(port) as connection, client(port) as another:
            connection.writer.write(garbage)
            connection.writer.write_eof()
            assert await connection.closed_by_node()
            heartbeat(another, "still served")
            await handlers.until_begun(1)
            handlers.answer(0)
            assert (await another.receive()).error_code == 0

    run(story())


def test_an_unknown_version_of_api_versions_is_answered_in_version_0_on_the_same_connection() -> None:
    async def story() -> None:
        async with listening(HeldHandlers()) as (_, port), client(port) as connection:
            newer = (18).to_bytes(2, "big") + (9).to_bytes(2, "big") + (7).to_bytes(4, "big") + b"\x00\x04next\x00more"
            connection.writer.write(len(newer).to_bytes(4, "big") + newer)
            size = int.from_bytes(await connection.reader.readexactly(4), "big")
            answer = await connection.reader.readexactly(size)
            assert int.from_bytes(answer[:4], "big") == 7
            told = decode_frame("ApiVersionsResponse", 0, answer, 4)
            assert told.error_code == UNSUPPORTED_VERSION
            assert {(row.api_key, row.max_version) for row in told.api_keys} == {(api.key, api.last) for api in APIS}
            assert (await connection.ask("ApiVersions", 0)).error_code == 0

    run(story())


def test_without_old_clients_produce_is_told_of_from_0_on_but_served_from_3_on_only() -> None:
    async def story() -> None:
        served = listening(HeldHandlers(), apis=without_old_clients(APIS))
        async with served as (_, port), client(port) as connection:
            told = await connection.ask("ApiVersions", 2)
            assert next(row.min_version for row in told.api_keys if row.api_key == 0) == 0
            body = b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"
            old = b"\x00\x00\x00\x02" + bytes(4) + b"\x00\x01a" + body
            connection.writer.write(len(old).to_bytes(4, "big") + old)
            assert await connection.closed_by_node()

    run(story())


def test_what_the_client_is_comes_with_api_versions() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (_, port), client(port) as connection:
            await connection.ask("ApiVersions", 3, client_software_name="librdkafka", client_software_version="2.16.0")
            heartbeat(connection, "a")
            await handlers.until_begun(1)
            call = handlers.begun[0][2]
            assert (call.client_software_name, call.client_software_version) == ("librdkafka", "2.16.0")
            assert (call.client_id, call.peer_host, call.api_version) == ("test", "127.0.0.1", 4)
            handlers.answer(0)
            await connection.receive()
            for name in ("a b", "", "a" * 256):  # it stays as long as the connection, and goes into the ledger
                bad = await connection.ask("ApiVersions", 3, client_software_name=name, client_software_version="1")
                assert bad.error_code == INVALID_REQUEST

    run(story())


def test_a_long_header_is_not_kept() -> None:
    """Tagged fields that nobody knows may fill a frame, and some sixty forms of requests may have them."""

    async def story() -> None:
        async with listening(HeldHandlers()) as (_, port), client(port) as connection:
            who = {"client_software_name": "a", "client_software_version": "1"}
            await connection.ask("ApiVersions", 3, **who)
            tracemalloc.start()
            try:
                unknown = b"\1\1" + encode_uvarint(900_000) + bytes(900_000)
                connection.send_with(unknown, "ApiVersions", 3, struct("ApiVersionsRequest")(**who))
                del unknown
                assert (await connection.receive()).error_code == 0
                held, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert held < 100_000 < 900_000 < most

    run(story())


def test_reading_stops_at_the_limit_of_requests_in_flight_and_goes_on_when_some_are_answered() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        limits = replace(LIMITS, connection=replace(CONNECTION, max_in_flight=3))
        async with listening(handlers, limits) as (listener, port), client(port) as connection:
            connection.send("JoinGroup", 7, **JOIN)
            await handlers.until_begun(1)
            # More than any buffer of the kernel takes: it can only leave if the node reads.
            connection.writer.transport.set_write_buffer_limits(high=0)
            for _ in range(2_000):
                connection.send("SyncGroup", 3, group_id="g" * 4_000)
            blocked = asyncio.ensure_future(connection.writer.drain())
            heartbeat_elsewhere = client(port)
            async with heartbeat_elsewhere as another:
                heartbeat(another, "b")
                await handlers.until_begun(2)
                handlers.answer(1)
                await another.receive()
            assert not blocked.done()
            assert listener.in_flight < 2_000
            blocked.cancel()

    run(story())


def test_a_client_that_does_not_read_is_given_no_further_answers() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (listener, port), client(port) as connection:
            size, asked, answered = 1 << 20, 40, 0
            for _ in range(asked):
                connection.send("SyncGroup", 3, group_id="g")
            while not listener.choked:
                if len(handlers.begun) > answered:
                    handlers.answer(answered, assignment=bytes(size))
                    answered += 1
                await asyncio.sleep(0)
            assert len(handlers.begun) < asked, "what nobody reads is not even made"
            for number in range(asked):
                if number >= answered:
                    await handlers.until_begun(number + 1)
                    handlers.answer(number, assignment=bytes(size))
                assert len((await connection.receive()).assignment) == size

    run(story())


class Prompt:
    """Answers every Fetch at once, with as much as it asks for."""

    def __init__(self) -> None:
        self.made = 0

    def fetch_now(self, request: Any, call: KafkaCall) -> Any:
        self.made += 1
        part = struct("FetchResponse.responses.partitions")(records=bytes(request.max_bytes))
        return struct("FetchResponse")(responses=[struct("FetchResponse.responses")(topic="t", partitions=[part])])

    def __getattr__(self, name: str) -> Any:
        return getattr(HeldHandlers(), name)


def test_answers_that_are_ready_at_once_are_made_no_faster_than_the_client_reads() -> None:
    async def story() -> None:
        handlers = Prompt()
        async with listening(handlers) as (listener, port), client(port) as connection:
            size, asked = 1 << 20, 60
            connection.writer.writelines(
                [frame("Fetch", 11, number, struct("FetchRequest")(max_bytes=size)) for number in range(asked)]
            )
            await until(lambda: listener.choked)
            assert handlers.made < asked / 2, "what nobody reads is not even made"
            for _ in range(asked):
                await connection.reader.readexactly(int.from_bytes(await connection.reader.readexactly(4), "big"))
            assert handlers.made == asked

    run(story())


def test_more_connections_than_allowed_are_turned_away() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        for limits in (replace(LIMITS, max_connections=1), replace(LIMITS, max_connections_per_host=1)):
            async with listening(handlers, limits) as (_, port), client(port) as connection:
                await connection.ask("ApiVersions", 0)
                async with client(port) as another:
                    assert await another.closed_by_node()
                await connection.ask("ApiVersions", 0)

    run(story())


def test_of_many_connections_that_are_turned_away_few_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "TELL_EVERY_S", 3600.0)

    async def story() -> None:
        limits = replace(LIMITS, max_connections=1)
        async with listening(HeldHandlers(), limits) as (_, port), client(port) as connection:
            await connection.ask("ApiVersions", 0)
            with structlog.testing.capture_logs() as lines:
                for _ in range(20):
                    async with client(port) as another:
                        assert await another.closed_by_node()
            assert [line["event"] for line in lines] == ["connection refused"]

    run(story())


def test_of_many_clients_that_send_garbage_few_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "TELL_EVERY_S", 3600.0)

    async def story() -> None:
        async with listening(HeldHandlers()) as (listener, port):
            with structlog.testing.capture_logs() as lines:
                for _ in range(20):
                    async with client(port) as stranger:
                        stranger.writer.write(b"GET / HTTP/1.1\r\n\r\n")
                        assert await stranger.closed_by_node()
                await until(lambda: not listener.connections)
            assert [(line["event"], line["untold"]) for line in lines] == [("connection closed", 0)]
            assert "1195725856 bytes" in lines[0]["why"], "the length that the first four letters are"

    run(story())


def test_idle_connections_are_closed_and_parked_ones_are_not() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (listener, port), client(port) as idle, client(port) as parked:
            await idle.ask("ApiVersions", 0)
            parked.send("JoinGroup", 7, **JOIN)
            await handlers.until_begun(1)
            now_s = asyncio.get_running_loop().time()
            listener.reap(now_s + CONNECTION.max_idle_ms / 1000 - 1)
            await idle.ask("ApiVersions", 0)
            listener.reap(now_s + CONNECTION.max_idle_ms / 1000 + 10)
            assert await idle.closed_by_node()
            handlers.answer(0, generation_id=3)
            assert (await parked.receive()).generation_id == 3

    run(story())


def test_a_client_that_is_gone_without_reading_its_answers_is_found_out_and_costs_nothing_more() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (listener, port), client(port) as gone:
            size, answered = 1 << 20, 0
            for _ in range(40):
                gone.send("SyncGroup", 3, group_id="g")
            while not listener.choked:
                if len(handlers.begun) > answered:
                    handlers.answer(answered, assignment=bytes(size))
                    answered += 1
                await asyncio.sleep(0)
            assert listener.in_flight > 0
            now_s = asyncio.get_running_loop().time()
            listener.reap(now_s + CONNECTION.max_idle_ms / 1000 - 1)
            assert listener.connections == 1
            listener.reap(now_s + CONNECTION.max_idle_ms / 1000 + 10)
            await until(lambda: not listener.connections)
            assert listener.in_flight == 0

    run(story())


def test_a_frame_that_never_ends_is_given_up() -> None:
    async def story() -> None:
        async with listening(HeldHandlers()) as (listener, port), client(port) as slow:
            await slow.ask("ApiVersions", 0)
            slow.writer.write((1 << 19).to_bytes(4, "big") + bytes(1000))
            await slow.writer.drain()
            listener.reap(asyncio.get_running_loop().time() + CONNECTION.max_idle_ms / 1000 + 10)
            assert await slow.closed_by_node()

    run(story())


def test_the_kernel_asks_after_peers_that_say_nothing() -> None:
    async def story() -> None:
        async with listening(HeldHandlers()) as (listener, port), client(port) as connection:
            await connection.ask("ApiVersions", 0)
            (ours,) = listener._connections
            sock = ours._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            for name, value in KEEPALIVE.items():
                assert sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value

    run(story())


def test_a_draining_listener_answers_what_is_under_way_and_lets_nobody_in() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (listener, port), client(port) as connection, client(port) as idle:
            await idle.ask("ApiVersions", 0)
            connection.send("JoinGroup", 7, **JOIN)
            await handlers.until_begun(1)
            listener.drain()
            assert await idle.closed_by_node()
            handlers.answer(0, error_code=16)
            assert (await connection.receive()).error_code == 16
            assert await connection.closed_by_node()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)

    run(story())
