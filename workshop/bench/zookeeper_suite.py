"""The cases of `muster bench zookeeper`: the central coordinator at the size that it was designed for.

Thousands of consumers of one group are on one node, on a connection each: all of them join, one leaves, one dies, and
the topic grows. What each consumer costs must not grow with the group, and others must not wait while a group is
rebalanced.
"""

import asyncio
import resource
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from muster.client.aio import AsyncAdmin
from muster.workshop.bench.central_load import TOPIC, CentralCrowd
from muster.workshop.bench.kafka_load import kafka_address
from muster.workshop.bench.loop_probe import LoopProbe, probing
from muster.workshop.bench.processes import LOAD_CORE, BenchFailed, ServerProcess, Stopwatch, pinned, run_node
from muster.workshop.bench.report import BenchRow, MeasureCase, at_most, measure_cases

BENCH: Final = "zookeeper"
CONSUMERS: Final = (1_000, 5_000)
PARTITIONS_EACH: Final = 2
SESSION_MS: Final = 30_000
SETTINGS: Final = {"kafka.listeners": "127.0.0.1:0", "queued.max.requests": "50000"}
JOIN_S, EVENT_S = 300.0, 120.0
"""How long a benchmark waits for a group of any size."""

GROWTH_TIME: Final = 1.7
"""So many times as long as so many smaller groups together may take, at most."""
GROWTH_COUNT: Final = 1.2
MEMORY_LIMIT_KB: Final = 150.0
"""Per consumer: its connection and its stream, which cost 80 KB in grpc.aio, and what the group knows of it."""
WAIT_LIMIT_MS: Final = 250.0
"""What takes a loop longer is a stall (`LoopMonitor`)."""


def run(only: str = "", members: Sequence[int] = ()) -> Iterator[BenchRow]:
    """members: other sizes of groups. The central case takes the smallest and the largest."""
    sizes = sorted(set(members)) or CONSUMERS
    cases: dict[str, MeasureCase] = {
        "central": partial(measure_central, sizes=(sizes[0] if len(sizes) > 1 else max(1, sizes[0] // 5), sizes[-1])),
    }
    return measure_cases(cases, only)


# Thousands of consumers on one node
# ----------------------------------


@dataclass(frozen=True, slots=True)
class EventCost:
    """What one event cost a group. `stopped_s`: from the first stop that a member was ordered to the last start."""

    seconds: float
    stopped_s: float
    messages: int
    cpu_s: float
    slowest_ms: float
    """The longest that a small request of somebody else waited meanwhile."""


@dataclass(frozen=True, slots=True)
class CentralCourse:
    """What one group went through."""

    size: int
    costs: dict[str, EventCost]
    kilobytes: float
    """Resident memory of the node for each member."""


def measure_central(name: str, home: str, sizes: tuple[int, int]) -> Iterator[BenchRow]:
    allow_open_files(sizes[-1])
    with asyncio.Runner() as runner:  # one loop for both: gRPC's poller does not outlive the first
        small, large = (run_central(runner, str(Path(home) / str(size)), size) for size in sizes)
    yield from central_rows(name, small, large)


def allow_open_files(connections: int) -> None:
    """Raise this process's limit, which the node inherits. Raises BenchFailed where the system allows fewer."""
    wanted = connections + 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise BenchFailed(
            f"{connections:,} consumers, each on a connection of its own, need {wanted:,} open files in a process, and "
            f"this shell allows {hard:,}; raise the limit (ulimit -Hn {wanted}), or measure fewer by --members"
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run_central(runner: asyncio.Runner, home: str, size: int) -> CentralCourse:
    with pinned(LOAD_CORE), run_node(home, SETTINGS) as node, probing(kafka_address(node)) as probe:
        return runner.run(CentralRun(node, probe, size).measure())


class CentralRun:
    """One group on one node."""

    def __init__(self, node: ServerProcess, probe: LoopProbe, size: int) -> None:
        self._node, self._probe, self._size = node, probe, size
        self._partitions = size * PARTITIONS_EACH
        self._costs: dict[str, EventCost] = {}

    async def measure(self) -> CentralCourse:
        before, size = self._node.resident_bytes(), self._size
        async with AsyncAdmin({"bootstrap.servers": self._node.address}) as admin:
            await admin.create_topic(TOPIC, self._partitions)
            async with CentralCrowd(self._node, "bench", size, 1, self._partitions, SESSION_MS) as crowd:
                await self._note(crowd, "join of all", lambda: crowd.join(JOIN_S))
                kilobytes = (self._node.resident_bytes() - before) / 1024 / size
                await self._note(crowd, "one leaves", crowd.leave)
                await self._note(crowd, "one dies", crowd.crash)
                await self._note(crowd, "the topic grows", partial(self._grow, admin, crowd))
        return CentralCourse(size, self._costs, kilobytes)

    async def _grow(self, admin: AsyncAdmin, crowd: CentralCrowd) -> None:
        crowd.partitions = self._partitions + self._size
        await admin.create_partitions(TOPIC, crowd.partitions)

    async def _note(self, crowd: CentralCrowd, name: str, happen: Callable[[], Awaitable[None]]) -> None:
        """What it costs until all partitions are owned again, by members that fetch."""
        crowd.begin_measuring()
        self._probe.read()
        messages, cpu_s, generation, watch = crowd.messages, self._node.cpu_s(), crowd.generation, Stopwatch()
        await happen()
        await crowd.all_own(generation, EVENT_S)
        seconds, cpu_s = watch.read(), self._node.cpu_s() - cpu_s
        stopped_s = crowd.last_started_s - (crowd.first_stopped_s or crowd.last_started_s)
        self._costs[name] = EventCost(
            seconds, stopped_s, crowd.messages - messages, cpu_s, self._probe.read().slowest_ms
        )


def central_rows(name: str, small: CentralCourse, large: CentralCourse) -> Iterator[BenchRow]:
    """Time and processor time may grow as the group does; what each member costs in messages and memory may not."""
    factor = large.size / small.size
    peer = f"{factor:g} times {small.size:,} consumers"
    for event, cost in large.costs.items():
        case, other = f"{name}: {large.size:,} consumers, {event}", small.costs[event]
        whole = event == "join of all"
        value, theirs = (each.seconds if whole else each.stopped_s for each in (cost, other))
        until = "until all own" if whole else "first stop to last start"
        yield at_most(GROWTH_TIME, f"{case}, {until}", value, "s", peer, factor * theirs, bench=BENCH)
        yield at_most(
            GROWTH_TIME, f"{case}, the node's processor", cost.cpu_s, "s CPU", peer, factor * other.cpu_s, bench=BENCH
        )
        yield at_most(
            GROWTH_COUNT,
            f"{case}, messages",
            cost.messages / large.size,
            "messages/consumer",
            f"{small.size:,} consumers",
            other.messages / small.size,
            bench=BENCH,
        )
        yield at_most(1.0, f"{case}, others wait at most", cost.slowest_ms, "ms", "limit", WAIT_LIMIT_MS, bench=BENCH)
    yield at_most(
        1.0,
        f"{name}: {large.size:,} consumers, memory",
        large.kilobytes,
        "KB/consumer",
        "limit",
        MEMORY_LIMIT_KB,
        bench=BENCH,
    )
