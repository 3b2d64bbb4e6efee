"""A hundred open pages while nothing changes: processor time of the node with their streams, and without."""

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator, Iterator
from typing import Final

from muster.coordinator.bench.processes import LOAD_CORE, BenchFailed, Server, Stopwatch, node, pinned
from muster.coordinator.bench.rows import BENCH, Row

PAGES = 100
ROUNDS = 3
ROUND_S = 10.0
SETTLED_S = 1.0
LIMIT: Final = 3.0
"""Percent of a core."""
SETTINGS: Final = {"http.listeners": "127.0.0.1:0"}


def measure(name: str, home: str) -> Iterator[Row]:
    with pinned(LOAD_CORE), node(home, SETTINGS) as server:
        yield asyncio.run(followed(name, server))


async def followed(name: str, server: Server) -> Row:
    """What the streams cost more than nothing does, in rounds of both."""
    more, idle = [], []
    for _ in range(ROUNDS):
        idle.append(await share_of_a_core(server))
        async with streams(server):
            more.append(await share_of_a_core(server) - idle[-1])
    value, before = max(statistics.median(more), 0.001), statistics.median(idle)
    case = f"{name}: {PAGES} open pages, nothing changes (a node alone: {before:.2f} %)"
    return Row(
        BENCH, case, round(value, 3), "% of a core", "limit", LIMIT, round(LIMIT / value, 2), 1.0, value <= LIMIT
    )


async def share_of_a_core(server: Server) -> float:
    await asyncio.sleep(SETTLED_S)
    watch, before = Stopwatch(), server.cpu_ns()
    await asyncio.sleep(ROUND_S)
    return (server.cpu_ns() - before) / 1e7 / watch.read()


@contextlib.asynccontextmanager
async def streams(server: Server) -> AsyncIterator[None]:
    """Half of them follow everything, the others a group each, as pages do."""
    opened = [await stream(server, "/events" if page % 2 else f"/events?group=g{page}") for page in range(PAGES)]
    try:
        yield
    finally:
        for writer in opened:
            writer.close()


async def stream(server: Server, path: str) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection(str(server.said["http_host"]), int(server.said["http_port"]))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    if not (await reader.readline()).startswith(b"HTTP/1.1 200"):
        raise BenchFailed(f"{path} is not followed; the node's log says why")
    await reader.readuntil(b"retry: ")
    return writer
