"""From a join or a leave until every partition is owned again: pushed members against members that poll."""

import asyncio
import statistics
from collections.abc import Iterator

from muster.workshop.bench.crowd import MemberCrowd
from muster.workshop.bench.members import GrpcMember
from muster.workshop.bench.processes import LOAD_CORE, ServerProcess, Stopwatch, pinned, run_node
from muster.workshop.bench.pushed import PushedMember
from muster.workshop.bench.rows import BenchRow, less_is_better

SIZES = (10, 100)
HANDOVER_ROUNDS = 2
HANDOVER_GOAL = 10.0
"""Pushed members are back this many times sooner."""

Seconds = dict[tuple[int, str], list[float]]


def measure_handover(name: str, home: str) -> Iterator[BenchRow]:
    settings = {"group.initial.rebalance.delay.ms": "300"}
    with pinned(LOAD_CORE), run_node(home, settings) as server:
        polled = asyncio.run(measure_all_sizes(server, "polled", GrpcMember))
        pushed = asyncio.run(measure_all_sizes(server, "pushed", PushedMember))
    for size, change in pushed:
        value, peer = (statistics.median(seconds[size, change]) * 1e3 for seconds in (pushed, polled))
        yield less_is_better(
            f"{name}: {change}, {size} members, pushed", value, "ms", "polled every 3 s", peer, HANDOVER_GOAL
        )


async def measure_all_sizes(server: ServerProcess, label: str, kind: type[GrpcMember]) -> Seconds:
    taken: Seconds = {}
    for size in SIZES:
        async with MemberCrowd(server, f"{label}-{size}", size, kind, size + HANDOVER_ROUNDS) as crowd:
            await crowd.join()
            await settle_crowd(crowd)
            for _ in range(HANDOVER_ROUNDS):
                taken.setdefault((size, "one joins"), []).append(await measure_join(crowd))
                taken.setdefault((size, "one leaves"), []).append(await measure_leave(crowd))
    return taken


async def settle_crowd(crowd: MemberCrowd) -> None:
    """Streams are open, and everybody has been heard of once."""
    for member in crowd.members:
        assert await member.beat(), "a group that nobody disturbs does not rebalance"


async def measure_join(crowd: MemberCrowd) -> float:
    generation = max(member.generation for member in crowd.members)
    newcomer = crowd.newcomer(0)
    watch = Stopwatch()
    joining = asyncio.create_task(newcomer.join())
    await crowd.all_beyond(generation)
    await joining
    taken = watch.read()
    crowd.members.append(newcomer)
    crowd.begin(newcomer)
    await settle_crowd(crowd)
    return taken


async def measure_leave(crowd: MemberCrowd) -> float:
    generation = max(member.generation for member in crowd.members)
    leaver = crowd.members[-1]
    crowd.crash(leaver)
    watch = Stopwatch()
    await leaver.leave()
    await crowd.all_beyond(generation)
    taken = watch.read()
    await settle_crowd(crowd)
    return taken
