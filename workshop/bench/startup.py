"""What a start costs: many partitions after a kill, and many committed offsets."""

import asyncio
from collections.abc import Iterator

from muster.workshop.bench.filling import days_ago, fill_directory
from muster.workshop.bench.line import LoadConnection
from muster.workshop.bench.processes import LOAD_CORE, Stopwatch, pinned, run_node
from muster.workshop.bench.records import kafka_address
from muster.workshop.bench.rows import BenchRow, less_is_better
from muster.workshop.bench.stranger import LargeRequestClient

STARTUP_PARTITIONS, LIMIT_S = 10_000, 5.0
GROUPS, STARTUP_OFFSETS_EACH, LIMIT_CPU_S = 100_000, 10, 10.0
STARTUP_SETTINGS = {"kafka.listeners": "127.0.0.1:0"}


def measure_startup(name: str, home: str) -> Iterator[BenchRow]:
    yield measure_start_after_kill(f"{name}: {STARTUP_PARTITIONS:,} partitions after a kill", f"{home}/partitions")
    yield measure_start_with_offsets(
        f"{name}: {GROUPS * STARTUP_OFFSETS_EACH:,} offsets in {GROUPS:,} groups", f"{home}/offsets"
    )


def measure_start_after_kill(case: str, home: str) -> BenchRow:
    """Wall seconds from the start of the process to its announcement, on both cores."""
    with run_node(home, STARTUP_SETTINGS) as server:
        asyncio.run(create_partitions(kafka_address(server)))
        server.kill()
    watch = Stopwatch()
    with run_node(home, STARTUP_SETTINGS):
        return less_is_better(case, watch.read(), "s", "limit", LIMIT_S, 1.0)


async def create_partitions(address: str) -> None:
    line = await LoadConnection.to(address)
    stranger = LargeRequestClient(line)
    await stranger.create("many", STARTUP_PARTITIONS)()
    stranger.look()
    line.close()


def measure_start_with_offsets(case: str, home: str) -> BenchRow:
    """Processor seconds until the node announces itself: all groups are loaded then."""
    with fill_directory(home) as fill:
        fill({f"group-{number}": STARTUP_OFFSETS_EACH for number in range(GROUPS)}, days_ago(0))
    with pinned(LOAD_CORE), run_node(home, STARTUP_SETTINGS) as server:
        return less_is_better(case, server.cpu_s(), "s CPU", "limit", LIMIT_CPU_S, 1.0)
