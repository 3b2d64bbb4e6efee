"""Requests that may list much are read in a thread, in their place among the others; over a real socket."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import MessageReader, decoder_of, struct
from muster.coordinator.kafka.connections.connection import LARGE_READS_AT_ONCE
from tests.support.kafka.client import frame
from tests.support.kafka.listener import HeldHandlers, client, listening
from tests.support.kafka.memory_node import until
from tests.unit.kafka.test_kafka_early_refusals import answered

VERSION = 5
LONG_NAME = "g" * 20_000
"""So that the first bytes of a request do not say what it lists."""


class Watched(HeldHandlers):
    """Notes which threads read OffsetFetches."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[threading.Thread] = []

    def offset_fetch_reader(self, version: int) -> MessageReader:
        decode = decoder_of("OffsetFetchRequest", version)

        def read(buffer: Any, position: int = 0, end: int | None = None) -> tuple[Any, int]:
            self.readers.append(threading.current_thread())
            return decode(buffer, position, end)

        return read


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def fetch(count: int, group_id: str = "g") -> dict[str, Any]:
    topic = struct("OffsetFetchRequest.topics")(name="t", partition_indexes=list(range(count)))
    return {"group_id": group_id, "topics": [topic]}


def test_a_large_request_is_read_beside_the_loop_and_those_behind_it_wait() -> None:
    async def story() -> None:
        handlers = Watched()
        async with listening(handlers) as (_, port), client(port) as connection:
            connection.send("OffsetFetch", VERSION, **fetch(100_000))
            connection.send("Heartbeat", 4, group_id="g", generation_id=1, member_id="m")
            connection.send("OffsetFetch", VERSION, **fetch(10))
            for index, name in enumerate(("offset_fetch", "heartbeat", "offset_fetch")):
                await handlers.until_begun(index + 1)
                assert handlers.begun[index][0] == name
                handlers.answer(index, error_code=index)
                assert (await connection.receive()).error_code == index
            assert len(handlers.begun[0][1].topics[0].partition_indexes) == 100_000
            large, small = handlers.readers
            assert large is not threading.main_thread()
            assert small is threading.main_thread()

    run(story())


def test_what_the_first_bytes_do_not_tell_is_refused_when_it_is_read() -> None:
    async def story() -> None:
        handlers = Watched()
        async with listening(handlers) as (_, port), client(port) as connection:
            request = struct("OffsetFetchRequest")(**fetch(100_001, LONG_NAME))
            connection.writer.write(frame("OffsetFetch", VERSION, 7, request))
            assert await answered(connection) == (7, ErrorCode.INVALID_REQUEST)
            connection.send("Heartbeat", 4, group_id="g", generation_id=1, member_id="m")
            await handlers.until_begun(1)
            assert handlers.begun[0][0] == "heartbeat"

    run(story())


def test_a_large_request_that_is_none_ends_its_connection() -> None:
    async def story() -> None:
        async with listening(Watched()) as (_, port), client(port) as connection:
            request = struct("OffsetFetchRequest")(**fetch(50_000, LONG_NAME))
            data = frame("OffsetFetch", VERSION, 7, request)[4:-4]
            connection.writer.write(len(data).to_bytes(4, "big") + data)
            assert await connection.closed_by_node()

    run(story())


def test_a_client_that_is_gone_before_its_request_is_read_is_not_answered() -> None:
    async def story() -> None:
        handlers, go_on = Watched(), threading.Event()
        reader = handlers.offset_fetch_reader

        def slow(version: int) -> Any:
            read = reader(version)
            return lambda buffer, position=0, end=None: go_on.wait(30) and read(buffer, position, end)

        handlers.offset_fetch_reader = slow  # type: ignore[method-assign]
        async with listening(handlers) as (listener, port):
            async with client(port) as connection, client(port) as other:
                connection.send("OffsetFetch", VERSION, **fetch(100_000))
                await other.ask("ApiVersions", 0)
            await until(lambda: not listener.connections)
            go_on.set()
            await asyncio.get_running_loop().shutdown_default_executor()
            assert handlers.begun == []

    run(story())


def test_a_few_large_reads_are_served_at_a_time_and_small_requests_wait_for_none_of_them() -> None:
    async def story() -> None:
        handlers = Watched()
        async with AsyncExitStack() as stack:
            _, port = await stack.enter_async_context(listening(handlers))
            several = [await stack.enter_async_context(client(port)) for _ in range(LARGE_READS_AT_ONCE + 2)]
            small = await stack.enter_async_context(client(port))
            for connection in several:
                connection.send("OffsetFetch", VERSION, **fetch(30_000))
            await handlers.until_begun(LARGE_READS_AT_ONCE)
            small.send("OffsetFetch", VERSION, **fetch(10))
            await handlers.until_begun(LARGE_READS_AT_ONCE + 1)
            assert len(handlers.begun[-1][1].topics[0].partition_indexes) == 10
            handlers.answer(LARGE_READS_AT_ONCE)
            await small.receive()
            for index in (0, 1):  # each that is answered lets the next one in
                assert len(handlers.readers) == LARGE_READS_AT_ONCE + 1 + index
                handlers.answer(index)
                await handlers.until_begun(LARGE_READS_AT_ONCE + 2 + index)
            for index in (*range(2, LARGE_READS_AT_ONCE), LARGE_READS_AT_ONCE + 1, LARGE_READS_AT_ONCE + 2):
                handlers.answer(index)
            for connection in several:
                await connection.receive()

    run(story())


def test_clients_that_are_gone_leave_their_places_to_others() -> None:
    async def story() -> None:
        handlers = Watched()
        async with listening(handlers) as (listener, port), client(port) as patient:
            async with AsyncExitStack() as stack:
                for _ in range(LARGE_READS_AT_ONCE):
                    impatient = await stack.enter_async_context(client(port))
                    impatient.send("OffsetFetch", VERSION, **fetch(30_000))
                await handlers.until_begun(LARGE_READS_AT_ONCE)
                patient.send("OffsetFetch", VERSION, **fetch(30_000))
                await until(lambda: listener.connections == LARGE_READS_AT_ONCE + 1)
            await handlers.until_begun(LARGE_READS_AT_ONCE + 1)
            handlers.answer(LARGE_READS_AT_ONCE, error_code=5)
            assert (await patient.receive()).error_code == 5

    run(story())
