"""The connection that benchmarks load servers by: whoever waits hears of it when it is lost."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from muster.workshop.bench import kafka_load as lines
from muster.workshop.bench.kafka_load import LoadConnection


async def with_line(server: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> LoadConnection:
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    return await LoadConnection.to(f"127.0.0.1:{listening.sockets[0].getsockname()[1]}")


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(1)
    writer.close()


def test_who_waits_hears_that_the_server_closed_the_connection() -> None:
    async def story() -> None:
        line = await with_line(hangs_up)
        both = await asyncio.gather(line.pass_on(b"a"), line.pass_on(b"b"), return_exceptions=True)
        assert [type(each) for each in both] == [ConnectionResetError] * 2
        with pytest.raises(ConnectionResetError, match="the server closed the connection"):
            await line.pass_on(b"c")

    asyncio.run(story())


def test_a_load_that_is_repeated_ends_with_its_connection() -> None:
    async def story() -> None:
        line = await with_line(hangs_up)
        with pytest.raises(ConnectionResetError):
            await line.repeat(b"a", 3, lambda: True)

    asyncio.run(story())


def test_a_server_that_says_nothing_is_told_of_with_the_time_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def story() -> None:
        line = await with_line(says_nothing)
        with pytest.raises(TimeoutError, match=r"^no answer within 0 s$"):
            await line.pass_on(b"a")

    monkeypatch.setattr(lines, "CALL_S", 0.01)
    asyncio.run(story())
