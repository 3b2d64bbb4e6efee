"""The cases of `muster bench zookeeper`: central groups at their full size, and what they replaced.

Thousands of consumers of one group are on one node, on a connection each: all of them join, one leaves, one dies, and
the topic grows. What each consumer costs must not grow with the group, and others must not wait while a group is
rebalanced.

As many consumers of the ZooKeeper era, each with a session of its own, go through the same on an ensemble of three real
servers. There every change wakes all of them, and each reads all the others: the herd, in figures.
"""

import asyncio
import resource
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

from muster.client.aio import AsyncAdmin
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from muster.workshop.bench.central_load import TOPIC, CentralCrowd
from muster.workshop.bench.kafka_load import kafka_address
from muster.workshop.bench.loop_probe import LoopProbe, probing
from muster.workshop.bench.processes import (
    LOAD_CORE,
    BenchFailed,
    ServerProcess,
    Stopwatch,
    cpu_s,
    pinned,
    resident_bytes,
    run_node,
)
from muster.workshop.bench.report import BenchRow, MeasureCase, at_most, measure_cases
from muster.workshop.bench.zookeeper_load import EraCrowd, monitor, running_ensemble

BENCH: Final = "zookeeper"
CONSUMERS: Final = (1_000, 5_000)
BESIDE: Final = (50, 200, 1_000)
PARTITIONS_EACH: Final = 2
SESSION_MS, SESSION_MS_EACH = 30_000, 90
"""A session, and what it is at least for each consumer beside ZooKeeper: servers that a thousand consumers ask a
million times read some of their connections later than 30 s."""
SETTINGS: Final = {"kafka.listeners": "127.0.0.1:0", "queued.max.requests": "50000"}
JOIN_S, EVENT_S, ERA_S = 300.0, 120.0, 420.0
"""How long a benchmark waits for a group of any size."""

GROWTH_TIME: Final = 1.7
"""So many times as long as so many smaller groups together may take, at most."""
GROWTH_COUNT: Final = 1.2
MEMORY_LIMIT_KB: Final = 150.0
"""Per consumer: its connection, its stream, and what the group knows of it."""
LEASE: Final = 1.1
"""A coordinator adds a twentieth to a dead member's session, because clocks differ."""
HERD: Final = 0.6
"""How far what is expected of the era may be exceeded: all wake, each reads all, all is let go of and claimed."""
WAIT_LIMIT_MS: Final = 250.0
"""What takes a loop longer is a stall (`LoopMonitor`)."""


def run(only: str = "", members: Sequence[int] = ()) -> Iterator[BenchRow]:
    """members: other sizes of groups. The central case takes the smallest and the largest."""
    sizes = sorted(set(members)) or CONSUMERS
    cases: dict[str, MeasureCase] = {
        "central": partial(measure_central, sizes=(sizes[0] if len(sizes) > 1 else max(1, sizes[0] // 5), sizes[-1])),
        "beside ZooKeeper": partial(measure_beside_zookeeper, sizes=sorted(set(members)) or BESIDE),
    }
    return measure_cases(cases, only)


@cache
def shared_runner() -> asyncio.Runner:
    """One loop for all cases and runs of this process, to its end: gRPC's poller does not outlive the first loop."""
    return asyncio.Runner()


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
    """Resident memory of the node for each member; `megabytes`: all of it at the end."""
    megabytes: float


def measure_central(name: str, home: str, sizes: tuple[int, int]) -> Iterator[BenchRow]:
    allow_open_files(sizes[-1])
    small, large = (run_central(str(Path(home) / str(size)), size, SESSION_MS) for size in sizes)
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


def run_central(home: str, size: int, session_ms: int, *, probed: bool = True) -> CentralCourse:
    """probed: somebody else asks the node for something small all the time, which costs it a hundredth of a core."""
    with ExitStack() as stack:
        stack.enter_context(pinned(LOAD_CORE))
        node = stack.enter_context(run_node(home, SETTINGS))
        probe = stack.enter_context(probing(kafka_address(node))) if probed else None
        return shared_runner().run(CentralRun(node, probe, size, session_ms).measure())


class CentralRun:
    """One group on one node."""

    def __init__(self, node: ServerProcess, probe: LoopProbe | None, size: int, session_ms: int) -> None:
        self._node, self._probe, self._size, self._session_ms = node, probe, size, session_ms
        self._partitions = size * PARTITIONS_EACH
        self._costs: dict[str, EventCost] = {}

    async def measure(self) -> CentralCourse:
        before, size = self._node.resident_bytes(), self._size
        async with AsyncAdmin({"bootstrap.servers": self._node.address}) as admin:
            await admin.create_topic(TOPIC, self._partitions)
            async with CentralCrowd(self._node, "bench", size, 1, self._partitions, self._session_ms) as crowd:
                await self._note(crowd, "join of all", lambda: crowd.join(JOIN_S))
                kilobytes = (self._node.resident_bytes() - before) / 1024 / size
                await self._note(crowd, "one leaves", crowd.leave)
                await self._note(crowd, "one dies", crowd.crash)
                await self._note(crowd, "the topic grows", partial(self._grow, admin, crowd))
        return CentralCourse(size, self._costs, kilobytes, self._node.resident_bytes() / 1e6)

    async def _grow(self, admin: AsyncAdmin, crowd: CentralCrowd) -> None:
        crowd.partitions = self._partitions + self._size
        await admin.create_partitions(TOPIC, crowd.partitions)

    async def _note(self, crowd: CentralCrowd, name: str, happen: Callable[[], Awaitable[None]]) -> None:
        """What it costs until all partitions are owned again, by members that fetch."""
        crowd.begin_measuring()
        self._slowest_ms()
        messages, cpu, generation, watch = crowd.messages, self._node.cpu_s(), crowd.generation, Stopwatch()
        await happen()
        await crowd.all_own(generation, EVENT_S + self._session_ms / 1000)
        seconds, cpu = watch.read(), self._node.cpu_s() - cpu
        stopped_s = crowd.last_started_s - (crowd.first_stopped_s or crowd.last_started_s)
        self._costs[name] = EventCost(seconds, stopped_s, crowd.messages - messages, cpu, self._slowest_ms())

    def _slowest_ms(self) -> float:
        return self._probe.read().slowest_ms if self._probe is not None else 0.0


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


# The same on ZooKeeper
# ---------------------


@dataclass(frozen=True, slots=True)
class EraCost:
    """What one event cost consumers of the ZooKeeper era, and their servers. `packets`: received and sent by these."""

    seconds: float
    cpu_s: float
    watches: int
    requests: int
    writes: int
    packets: int


@dataclass(frozen=True, slots=True)
class EraCourse:
    """What one group went through on the ensemble. `watched`: watches that the servers keep when all is quiet."""

    size: int
    costs: dict[str, EraCost]
    watched: int
    megabytes: float
    expired: int
    """Sessions that ended on the way: servers or load had no processor for as long."""


def measure_beside_zookeeper(name: str, home: str, sizes: Sequence[int]) -> Iterator[BenchRow]:
    allow_open_files(sizes[-1])
    for size in sizes:
        session_ms = max(SESSION_MS, size * SESSION_MS_EACH)
        with pinned(LOAD_CORE), measured_ensemble(str(Path(home) / f"era-{size}"), session_ms) as ensemble:
            era = shared_runner().run(EraRun(ensemble, size, session_ms).measure())
        central = run_central(str(Path(home) / f"central-{size}"), size, session_ms, probed=False)
        yield from beside_rows(f"{name}: {size:,} consumers", central, era)
        yield from herd_rows(f"{name}: {size:,} consumers of the ZooKeeper era, one leaves", era)


@contextmanager
def measured_ensemble(home: str, session_ms: int) -> Iterator[LocalEnsemble]:
    """Raises BenchFailed where it cannot be started."""
    try:
        with running_ensemble(home, session_ms) as ensemble:
            yield ensemble
    except ZooKeeperError as missing:
        raise BenchFailed(f"there is no ZooKeeper to measure on: {missing}") from missing


class EraRun:
    """One group on the ensemble."""

    def __init__(self, ensemble: LocalEnsemble, size: int, session_ms: int) -> None:
        self._ensemble, self._size, self._session_ms = ensemble, size, session_ms
        self._partitions = size * PARTITIONS_EACH
        self._costs: dict[str, EraCost] = {}

    async def measure(self) -> EraCourse:
        async with EraCrowd(self._ensemble, self._size, self._partitions, self._session_ms) as crowd:
            await self._note(crowd, "join of all", crowd.join)
            watched = monitor(self._ensemble).get("zk_watch_count", 0)
            await self._note(crowd, "one leaves", crowd.leave)
            await self._note(crowd, "one dies", crowd.crash)
            await self._note(crowd, "the topic grows", partial(crowd.grow, self._partitions + self._size))
        resident = sum(resident_bytes(server.pid) for server in self._ensemble.servers if server.pid)
        return EraCourse(self._size, self._costs, watched, resident / 1e6, crowd.expired)

    async def _note(self, crowd: EraCrowd, name: str, happen: Callable[[], Awaitable[None]]) -> None:
        before, cpu, watch = monitor(self._ensemble), self._cpu_s(), Stopwatch()
        watches, requests, writes = crowd.watches_fired, crowd.requests, crowd.writes
        await happen()
        await crowd.all_own(ERA_S)
        seconds, after = watch.read(), monitor(self._ensemble)
        self._costs[name] = EraCost(
            seconds,
            self._cpu_s() - cpu,
            crowd.watches_fired - watches,
            crowd.requests - requests,
            crowd.writes - writes,
            sum(after.get(each, 0) - before.get(each, 0) for each in ("zk_packets_received", "zk_packets_sent")),
        )

    def _cpu_s(self) -> float:
        return sum(cpu_s(server.pid) for server in self._ensemble.servers if server.pid)


def beside_rows(name: str, central: CentralCourse, era: EraCourse) -> Iterator[BenchRow]:
    peer = "on ZooKeeper"
    for event, ours in central.costs.items():
        theirs, case = era.costs[event], f"{name}, {event}"
        row = partial(at_most, 1.0, bench=BENCH)
        yield at_most(LEASE, f"{case}, until all own", ours.seconds, "s", peer, theirs.seconds, bench=BENCH)
        yield row(f"{case}, messages", ours.messages, "messages", peer, theirs.packets)
        yield row(f"{case}, processor of the servers", ours.cpu_s, "s CPU", peer, theirs.cpu_s)
    yield at_most(1.0, f"{name}, memory of the servers", central.megabytes, "MB", peer, era.megabytes, bench=BENCH)


def herd_rows(name: str, era: EraCourse) -> Iterator[BenchRow]:
    """Against what the era's protocol makes of it by itself: what comes on top are attempts that failed."""
    size, cost = era.size, era.costs["one leaves"]
    row = partial(at_most, 1 / HERD, bench=BENCH)
    yield row(f"{name}, watches fired", cost.watches, "watches", "one for each", size)
    yield row(f"{name}, requests", cost.requests, "requests", "each reads each", size * size)
    yield row(
        f"{name}, znodes written", cost.writes, "writes", "each claim let go and made", 2 * size * PARTITIONS_EACH
    )
    yield row(f"{name}, watches kept at rest", era.watched, "watches", "members, brokers and topic", 3 * size)
    case, whole = f"{name}, sessions that expired meanwhile or later", not era.expired
    yield BenchRow(BENCH, case, era.expired, "sessions", "limit", 0.0, float(whole), 1.0, whole)
