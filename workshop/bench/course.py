"""One cell: a node is started, loaded, called back, left in peace, killed and started again, within bounds."""

import asyncio
import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final, NamedTuple

from muster.coordinator.errors import ErrorCode
from muster.workshop.bench.cells import GRPC, PARTITIONS, GrowthCell
from muster.workshop.bench.doors import GrpcMemberCalls, KafkaMemberCalls
from muster.workshop.bench.growth_crowd import GrowthCrowd, check_healthy
from muster.workshop.bench.line import LoadConnection
from muster.workshop.bench.processes import LOAD_CORE, BenchFailed, ServerProcess, Stopwatch, pinned, run_node
from muster.workshop.bench.records import kafka_address
from muster.workshop.bench.stranger import LargeRequestClient

CELL_S: Final = 150.0
"""What one cell may take, all told."""
MEMORY_MB: Final = 4_096.0
"""What the node may have resident."""
LOOK_S: Final = 0.25
PHASES: Final = ("start", "topics", "join", "rebalance", "heartbeats", "idle", "restart")
IDLE_S = 2.0
BEATS = {"kafka": 20_000, "grpc": 3_000}
SPARE_FILES: Final = 500
"""Descriptors that a process has besides its connections."""
WAITING = 100_000
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "1000",
    "group.max.session.timeout.ms": "1800000",
    "grpc.max.pending.calls": str(WAITING),
    "kafka.listeners": "127.0.0.1:0",
    "max.parked.requests": str(WAITING),
    "max.partitions": "200000",
    "queued.max.requests": str(WAITING),
}
"""Where the defaults refuse that so many wait at once, or are there, they are raised."""


class PhaseCost(NamedTuple):
    """What one part of a cell took. Memory is the node's, when the phase was over."""

    name: str
    wall_s: float
    cpu_s: float
    resident_mb: float
    units: int
    """Heartbeats, where the phase is made of them; else 0."""


def reason_impossible(cell: GrowthCell) -> str:
    """Why this machine cannot run the cell; "" where it can."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = cell.of_group + SPARE_FILES
    if cell.door != GRPC and most != resource.RLIM_INFINITY and needed > most:
        return (
            f"each member of a group has a connection of its own at this door, and a process may have {most:,} open "
            f"files here (ulimit -n): {needed:,} are needed"
        )
    return ""


def run_cell(cell: GrowthCell, home: str) -> Iterator[PhaseCost]:
    """All phases, each as it is over. Raises BenchFailed for a bound that was reached, and says in which phase."""
    clock = Stopwatch()
    crowds: list[GrowthCrowd] = []
    with pinned(LOAD_CORE), asyncio.Runner(loop_factory=loops()) as runner:
        watch = Stopwatch()
        with run_node(home, SETTINGS) as server:
            yield PhaseCost("start", watch.read(), server.cpu_s(), mb(server), 0)
            story = load_cell(cell, server, clock, crowds)
            while phase := runner.run(iterate_story(story)):
                yield phase
            server.kill()
        watch = Stopwatch()
        with run_node(home, SETTINGS) as server:
            runner.run(run_bounded(lambda: wait_until_loaded(cell, server, crowds[0]), "restart", server, clock))
            yield PhaseCost("restart", watch.read(), server.cpu_s(), mb(server), 0)


def loops() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def iterate_story(story: AsyncIterator[PhaseCost]) -> PhaseCost | None:
    return await anext(story, None)


async def load_cell(
    cell: GrowthCell, server: ServerProcess, clock: Stopwatch, crowds: list[GrowthCrowd]
) -> AsyncIterator[PhaseCost]:
    """Topics, members, a rebalance of every group, heartbeats, peace."""
    crowd = GrowthCrowd(cell, open_calls(cell, server))
    crowds.append(crowd)
    beats = BEATS[cell.door]

    async def phase(name: str, work: Callable[[], Awaitable[None]], units: int = 0) -> PhaseCost:
        watch, before = Stopwatch(), server.cpu_s()
        await run_bounded(work, name, server, clock)
        return PhaseCost(name, watch.read(), server.cpu_s() - before, mb(server), units)

    yield await phase("topics", lambda: create_topics(cell, server))
    await crowd.door.open(crowd.ways)
    yield await phase("join", crowd.join)
    yield await phase("rebalance", crowd.rebalance)
    yield await phase("heartbeats", lambda: crowd.beat(beats), beats)
    yield await phase("idle", lambda: asyncio.sleep(IDLE_S))
    await crowd.door.close()


async def run_bounded(work: Callable[[], Awaitable[None]], name: str, server: ServerProcess, clock: Stopwatch) -> None:
    """Raises BenchFailed where the cell's time or the node's memory came to its end."""
    working = asyncio.ensure_future(work())
    try:
        while not working.done():
            await asyncio.wait([working], timeout=LOOK_S)
            if working.done():
                break
            if clock.read() > CELL_S:
                raise BenchFailed(f"stopped in {name!r}: {CELL_S:.0f} s were over")
            if (used := mb(server)) > MEMORY_MB:
                raise BenchFailed(f"stopped in {name!r}: the node had {used:,.0f} MB, of {MEMORY_MB:,.0f} it may have")
        await working
    finally:
        working.cancel()


async def create_topics(cell: GrowthCell, server: ServerProcess) -> None:
    line = await LoadConnection.to(kafka_address(server))
    stranger = LargeRequestClient(line)
    for number, first in enumerate(range(0, cell.partitions, PARTITIONS)):
        await stranger.create(f"growth-{number}", min(PARTITIONS, cell.partitions - first))()
    stranger.look()
    line.close()


async def wait_until_loaded(cell: GrowthCell, server: ServerProcess, crowd: GrowthCrowd) -> None:
    """The last member of the last group is known, in its generation: its shard has been read."""
    way = open_calls(cell, server)
    await way.open(1)
    seat = crowd.groups[-1].seats[-1]
    seat.way = 0
    check_healthy("Heartbeat after a restart", await way.beat(seat), ErrorCode.NONE)
    await way.close()


def open_calls(cell: GrowthCell, server: ServerProcess) -> KafkaMemberCalls | GrpcMemberCalls:
    return GrpcMemberCalls(server.address) if cell.door == GRPC else KafkaMemberCalls(kafka_address(server))


def mb(server: ServerProcess) -> float:
    return server.resident_bytes() / (1 << 20)
