"""A hundred open pages while nothing changes: processor time of the node with their streams, and without."""

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator, Iterator
from typing import Final

from muster.workshop.bench.processes import LOAD_CORE, BenchFailed, ServerProcess, Stopwatch, pinned, run_node
from muster.workshop.bench.rows import BENCH, BenchRow

PAGES = 100
FOLLOWING_ROUNDS = 3
ROUND_S = 10.0
SETTLED_S = 1.0
LIMIT: Final = 3.0
"""Percent of a core."""
SETTINGS: Final = {"http.listeners": "127.0.0.1:0"}


def measure_open_pages(name: str, home: str) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, SETTINGS) as server:
        yield asyncio.run(measure_streams(name, server))


async def measure_streams(name: str, server: ServerProcess) -> BenchRow:
    """What the streams cost more than nothing does, in rounds of both."""
    more, idle = [], []
    for _ in range(FOLLOWING_ROUNDS):
        idle.append(await measure_core_share(server))
        async with open_streams(server):
            more.append(await measure_core_share(server) - idle[-1])
    value, before = max(statistics.median(more), 0.001), statistics.median(idle)
    case = f"{name}: {PAGES} open pages, nothing changes (a node alone: {before:.2f} %)"
    return BenchRow(
        BENCH, case, round(value, 3), "% of a core", "limit", LIMIT, round(LIMIT / value, 2), 1.0, value <= LIMIT
    )


async def measure_core_share(server: ServerProcess) -> float:
    await asyncio.sleep(SETTLED_S)
    watch, before = Stopwatch(), server.cpu_ns()
    await asyncio.sleep(ROUND_S)
    return (server.cpu_ns() - before) / 1e7 / watch.read()


@contextlib.asynccontextmanager
async def open_streams(server: ServerProcess) -> AsyncIterator[None]:
    """Half of them follow everything, the others a group each, as pages do."""
    opened = [await open_stream(server, "/events" if page % 2 else f"/events?group=g{page}") for page in range(PAGES)]
    try:
        yield
    finally:
        for writer in opened:
            writer.close()


async def open_stream(server: ServerProcess, path: str) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection(str(server.said["http_host"]), int(server.said["http_port"]))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    if not (await reader.readline()).startswith(b"HTTP/1.1 200"):
        raise BenchFailed(f"{path} is not followed; the node's log says why")
    await reader.readuntil(b"retry: ")
    return writer
