"""A scrape of very many series: processor time for each, compression included, and the longest stretch of the loop."""

import asyncio
import gc
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from muster.coordinator.bench.processes import BenchFailed
from muster.coordinator.bench.rows import Row, less_is_better
from muster.coordinator.config import load_settings
from muster.coordinator.core.records import OffsetsStored
from muster.coordinator.core.shard import Shard
from muster.coordinator.core.types import StoredOffset
from muster.coordinator.runtime.router import partition_for
from muster.coordinator.server.journal.logs import configure_logs
from muster.coordinator.server.node.app import Node
from muster.coordinator.server.node.main import YOUNG_OBJECTS
from muster.coordinator.web.metrics_route import zipped

GROUPS = 1_000
PARTITIONS = 100
TIMES = 5
LIMIT_US: Final = 3.0
LIMIT_MS: Final = 5.0
FORMATS: Final = {"text": "", "OpenMetrics": "application/openmetrics-text;version=1.0.0"}


@dataclass(slots=True)
class Cost:
    """Of one scrape. `stretch_ms`: the most processor time that the loop's thread took between two turns of others."""

    cpu_s: float
    stretch_ms: float
    series: int

    @property
    def us(self) -> float:
        return self.cpu_s / self.series * 1e6


def measure(name: str, home: str) -> Iterator[Row]:
    configure_logs("error", "console")
    for word, accept in FORMATS.items():
        costs = asyncio.run(scraped(str(Path(home) / word), accept))
        case = f"{name}: {costs[0].series:,} series as {word}"
        first, rest = costs[0], costs[1:]
        yield less_is_better(f"{case}, the first", first.us, "us CPU/series", "limit", LIMIT_US, 1.0)
        later = statistics.median(cost.us for cost in rest)
        yield less_is_better(f"{case}, later ones", later, "us CPU/series", "limit", LIMIT_US, 1.0)
        longest = max(cost.stretch_ms for cost in costs)
        yield less_is_better(f"{case}, longest stretch", longest, "ms CPU", "limit", LIMIT_MS, 1.0)


async def scraped(home: str, accept: str) -> list[Cost]:
    """A node in this process, whose groups have committed to all partitions of one topic."""
    given = {"log.dirs": home, "listeners": "127.0.0.1:0", "http.listeners": "127.0.0.1:0", "logging.level": "error"}
    node = Node(load_settings(None, given | {"metrics.max.series": str(10 * GROUPS * PARTITIONS)}))
    await node.start()
    try:
        node.broker.create_topic("t", PARTITIONS, {})
        for number in range(GROUPS):
            commit(node, f"group-{number}")
        as_a_node_does()
        return [await once(node, accept) for _ in range(TIMES)]
    finally:
        await node.stop()


def as_a_node_does() -> None:
    """The collector of garbage passes over what is there, and looks at what is new as seldom as in a node."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def commit(node: Node, group_id: str) -> None:
    """In memory only: what a scrape looks at."""
    core = node.engine.core(partition_for(group_id, node.engine.shards))
    if not isinstance(core, Shard):
        raise BenchFailed(f"the shard of {group_id!r} is not loaded; the node's log says why")
    offsets = {("t", partition): StoredOffset(partition, -1, "", 0) for partition in range(PARTITIONS)}
    core.apply(OffsetsStored(group_id, offsets))


async def once(node: Node, accept: str) -> Cost:
    if node.measuring is None:
        raise BenchFailed("the node does not count; http.listeners is needed for it")
    going = asyncio.ensure_future(watched())
    await asyncio.sleep(0)
    began_s = time.process_time()
    exposition = await node.measuring.scrape(accept)
    await zipped(exposition.pieces)
    cpu_s = time.process_time() - began_s
    going.cancel()
    series = sum(piece.count(b"\n") - piece.count(b"\n#") for piece in exposition.pieces)
    return Cost(cpu_s, max(await going), series)


async def watched() -> list[float]:
    """What the loop's thread computed between two turns of this one, in ms, until it is cancelled."""
    stretches = []
    try:
        while True:
            began_s = time.thread_time()
            await asyncio.sleep(0)
            stretches.append((time.thread_time() - began_s) * 1e3)
    except asyncio.CancelledError:
        return stretches
