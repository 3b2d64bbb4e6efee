"""A scrape of very many series: processor time for each, compression included, and the longest stretch of the loop."""

import asyncio
import gc
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from muster.coordinator.config import load_settings
from muster.coordinator.core.model.core_records import OffsetsStored
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.router import partition_for
from muster.coordinator.server.logs import configure_logs
from muster.coordinator.server.node.app import CoordinatorNode
from muster.coordinator.server.node.main import YOUNG_OBJECTS
from muster.coordinator.web.http.metrics_route import gzip_pieces
from muster.workshop.bench.processes import BenchFailed
from muster.workshop.bench.rows import BenchRow, less_is_better

SCRAPED_GROUPS = 1_000
SCRAPED_PARTITIONS = 100
SCRAPE_TIMES = 5
LIMIT_US: Final = 3.0
LIMIT_MS: Final = 5.0
FORMATS: Final = {"text": "", "OpenMetrics": "application/openmetrics-text;version=1.0.0"}


@dataclass(slots=True)
class ScrapeCost:
    """Of one scrape. `stretch_ms`: the most processor time that the loop's thread took between two turns of others."""

    cpu_s: float
    stretch_ms: float
    series: int

    @property
    def us(self) -> float:
        return self.cpu_s / self.series * 1e6


def measure_scrape(name: str, home: str) -> Iterator[BenchRow]:
    configure_logs("error", "console")
    for word, accept in FORMATS.items():
        costs = asyncio.run(measure_format(str(Path(home) / word), accept))
        case = f"{name}: {costs[0].series:,} series as {word}"
        first, rest = costs[0], costs[1:]
        yield less_is_better(f"{case}, the first", first.us, "us CPU/series", "limit", LIMIT_US, 1.0)
        later = statistics.median(cost.us for cost in rest)
        yield less_is_better(f"{case}, later ones", later, "us CPU/series", "limit", LIMIT_US, 1.0)
        longest = max(cost.stretch_ms for cost in costs)
        yield less_is_better(f"{case}, longest stretch", longest, "ms CPU", "limit", LIMIT_MS, 1.0)


async def measure_format(home: str, accept: str) -> list[ScrapeCost]:
    """A node in this process, whose groups have committed to all partitions of one topic."""
    given = {"log.dirs": home, "listeners": "127.0.0.1:0", "http.listeners": "127.0.0.1:0", "logging.level": "error"}
    node = CoordinatorNode(
        load_settings(None, given | {"metrics.max.series": str(10 * SCRAPED_GROUPS * SCRAPED_PARTITIONS)})
    )
    await node.start()
    try:
        node.broker.create_topic("t", SCRAPED_PARTITIONS, {})
        for number in range(SCRAPED_GROUPS):
            commit_in_memory(node, f"group-{number}")
        collect_garbage_like_node()
        return [await scrape_once(node, accept) for _ in range(SCRAPE_TIMES)]
    finally:
        await node.stop()


def collect_garbage_like_node() -> None:
    """The collector of garbage passes over what is there, and looks at what is new as seldom as in a node."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def commit_in_memory(node: CoordinatorNode, group_id: str) -> None:
    """In memory only: what a scrape looks at."""
    core = node.engine.core(partition_for(group_id, node.engine.shards))
    if not isinstance(core, Shard):
        raise BenchFailed(f"the shard of {group_id!r} is not loaded; the node's log says why")
    offsets = {("t", partition): StoredOffset(partition, -1, "", 0) for partition in range(SCRAPED_PARTITIONS)}
    core.apply(OffsetsStored(group_id, offsets))


async def scrape_once(node: CoordinatorNode, accept: str) -> ScrapeCost:
    if node.measuring is None:
        raise BenchFailed("the node does not count; http.listeners is needed for it")
    going = asyncio.ensure_future(watch_loop())
    await asyncio.sleep(0)
    began_s = time.process_time()
    exposition = await node.measuring.scrape(accept)
    await gzip_pieces(exposition.pieces)
    cpu_s = time.process_time() - began_s
    going.cancel()
    series = sum(piece.count(b"\n") - piece.count(b"\n#") for piece in exposition.pieces)
    return ScrapeCost(cpu_s, max(await going), series)


async def watch_loop() -> list[float]:
    """What the loop's thread computed between two turns of this one, in ms, until it is cancelled."""
    stretches = []
    try:
        while True:
            began_s = time.thread_time()
            await asyncio.sleep(0)
            stretches.append((time.thread_time() - began_s) * 1e3)
    except asyncio.CancelledError:
        return stretches
