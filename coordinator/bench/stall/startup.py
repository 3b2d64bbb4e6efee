"""What a start costs: many partitions after a kill, and many committed offsets."""

import asyncio
from collections.abc import Iterator

from muster.coordinator.bench.processes import LOAD_CORE, Stopwatch, node, pinned
from muster.coordinator.bench.rows import Row, less_is_better
from muster.coordinator.bench.stall.filling import days_ago, filled
from muster.coordinator.bench.stall.stranger import Stranger
from muster.coordinator.bench.wire.line import Line
from muster.coordinator.bench.wire.records import kafka_address

PARTITIONS, LIMIT_S = 10_000, 5.0
GROUPS, OFFSETS_EACH, LIMIT_CPU_S = 100_000, 10, 10.0
SETTINGS = {"kafka.listeners": "127.0.0.1:0"}


def measure(name: str, home: str) -> Iterator[Row]:
    yield after_a_kill(f"{name}: {PARTITIONS:,} partitions after a kill", f"{home}/partitions")
    yield with_offsets(f"{name}: {GROUPS * OFFSETS_EACH:,} offsets in {GROUPS:,} groups", f"{home}/offsets")


def after_a_kill(case: str, home: str) -> Row:
    """Wall seconds from the start of the process to its announcement, on both cores."""
    with node(home, SETTINGS) as server:
        asyncio.run(created(kafka_address(server)))
        server.kill()
    watch = Stopwatch()
    with node(home, SETTINGS):
        return less_is_better(case, watch.read(), "s", "limit", LIMIT_S, 1.0)


async def created(address: str) -> None:
    line = await Line.to(address)
    stranger = Stranger(line)
    await stranger.create("many", PARTITIONS)()
    stranger.look()
    line.close()


def with_offsets(case: str, home: str) -> Row:
    """Processor seconds until the node announces itself: all groups are loaded then."""
    with filled(home) as fill:
        fill({f"group-{number}": OFFSETS_EACH for number in range(GROUPS)}, days_ago(0))
    with pinned(LOAD_CORE), node(home, SETTINGS) as server:
        return less_is_better(case, server.cpu_s(), "s CPU", "limit", LIMIT_CPU_S, 1.0)
