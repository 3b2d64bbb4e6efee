"""From a join or a leave until every partition is owned again: pushed members against members that poll."""

import asyncio
import statistics
from collections.abc import Iterator

from muster.coordinator.bench.crowd import Crowd
from muster.coordinator.bench.members import Member
from muster.coordinator.bench.processes import LOAD_CORE, Server, Stopwatch, node, pinned
from muster.coordinator.bench.pushed import PushedMember
from muster.coordinator.bench.rows import Row, less_is_better

SIZES = (10, 100)
ROUNDS = 2
GOAL = 10.0
"""Pushed members are back this many times sooner."""

Seconds = dict[tuple[int, str], list[float]]


def measure(name: str, home: str) -> Iterator[Row]:
    settings = {"group.initial.rebalance.delay.ms": "300"}
    with pinned(LOAD_CORE), node(home, settings) as server:
        polled = asyncio.run(of_all_sizes(server, "polled", Member))
        pushed = asyncio.run(of_all_sizes(server, "pushed", PushedMember))
    for size, change in pushed:
        value, peer = (statistics.median(seconds[size, change]) * 1e3 for seconds in (pushed, polled))
        yield less_is_better(f"{name}: {change}, {size} members, pushed", value, "ms", "polled every 3 s", peer, GOAL)


async def of_all_sizes(server: Server, label: str, kind: type[Member]) -> Seconds:
    taken: Seconds = {}
    for size in SIZES:
        async with Crowd(server, f"{label}-{size}", size, kind, size + ROUNDS) as crowd:
            await crowd.join()
            await settle(crowd)
            for _ in range(ROUNDS):
                taken.setdefault((size, "one joins"), []).append(await one_joins(crowd))
                taken.setdefault((size, "one leaves"), []).append(await one_leaves(crowd))
    return taken


async def settle(crowd: Crowd) -> None:
    """Streams are open, and everybody has been heard of once."""
    for member in crowd.members:
        assert await member.beat(), "a group that nobody disturbs does not rebalance"


async def one_joins(crowd: Crowd) -> float:
    generation = max(member.generation for member in crowd.members)
    newcomer = crowd.newcomer(0)
    watch = Stopwatch()
    joining = asyncio.create_task(newcomer.join())
    await crowd.all_beyond(generation)
    await joining
    taken = watch.read()
    crowd.members.append(newcomer)
    crowd.begin(newcomer)
    await settle(crowd)
    return taken


async def one_leaves(crowd: Crowd) -> float:
    generation = max(member.generation for member in crowd.members)
    leaver = crowd.members[-1]
    crowd.crash(leaver)
    watch = Stopwatch()
    await leaver.leave()
    await crowd.all_beyond(generation)
    taken = watch.read()
    await settle(crowd)
    return taken
