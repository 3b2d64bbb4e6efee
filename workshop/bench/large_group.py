"""One group of thousands: it joins, syncs and survives a crash; what each member costs must not grow with the group."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from muster.workshop.bench.crowd import MemberCrowd
from muster.workshop.bench.members import GrpcMember
from muster.workshop.bench.processes import LOAD_CORE, ServerProcess, pinned, run_node
from muster.workshop.bench.pushed import PushedMember
from muster.workshop.bench.rows import BenchRow, less_is_better

SMALL, LARGE, PUSHED = 1_000, 5_000, 10_000
WIRES = 100
SHORTEST_SESSION_MS = 6_000
"""The shortest that the node's defaults allow; a dead member is missed after it."""
MS_PER_MEMBER = 1.5
"""A larger group needs longer from one sign of life of a member to the next."""
LARGE_GROUP_SETTINGS = {"group.initial.rebalance.delay.ms": "1000", "queued.max.requests": "50000"}
GOAL_COUNT, GOAL_TIME = 0.9, 0.6
MEMORY_LIMIT_KB = 100.0
"""Per pushed member: twice the 41 KB that an idle stream with a connection of its own costs in grpc.aio."""


@dataclass(frozen=True, slots=True)
class LargeGroupCourse:
    """What one group went through. `recovered_s` counts from the first member that joins again after the crash."""

    size: int
    assigned_s: float
    recovered_s: float
    messages: float
    bytes: float
    kilobytes: float
    """Resident memory of the node for each member."""


def measure_large_group(name: str, home: str) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, LARGE_GROUP_SETTINGS) as server:
        small = asyncio.run(run_large_group(server, SMALL, GrpcMember))
        large = asyncio.run(run_large_group(server, LARGE, GrpcMember))
    case = f"{name}: {LARGE:,} members"
    peer = f"{SMALL:,} members"
    yield less_is_better(f"{case}, join and crash", large.messages, "messages/member", peer, small.messages, GOAL_COUNT)
    yield less_is_better(f"{case}, join and crash", large.bytes, "bytes/member", peer, small.bytes, GOAL_COUNT)
    yield from growth_row(case, large, small)


def measure_large_pushed_group(name: str, home: str) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, LARGE_GROUP_SETTINGS) as server:
        small = asyncio.run(run_large_group(server, SMALL, PushedMember))
        large = asyncio.run(run_large_group(server, PUSHED, PushedMember))
    case = f"{name}: {PUSHED:,} members"
    yield from growth_row(case, large, small)
    yield less_is_better(f"{case}, memory", large.kilobytes, "KB/member", "limit", MEMORY_LIMIT_KB, 1.0)


def growth_row(case: str, large: LargeGroupCourse, small: LargeGroupCourse) -> Iterator[BenchRow]:
    factor = large.size // small.size
    peer = f"{factor} times {small.size:,} members"
    for what, value, other in (
        ("last join to everyone assigned", large.assigned_s, small.assigned_s),
        ("after a crash, first to join again to everyone assigned", large.recovered_s, small.recovered_s),
    ):
        yield less_is_better(f"{case}, {what}", value, "s", peer, factor * other, GOAL_TIME)


async def run_large_group(server: ServerProcess, size: int, kind: type[GrpcMember]) -> LargeGroupCourse:
    before = server.resident_bytes()
    async with MemberCrowd(server, f"{kind.__name__}-{size}", size, kind, WIRES) as crowd:
        victim = crowd.members[-1]
        victim.session_timeout_ms = max(SHORTEST_SESSION_MS, int(size * MS_PER_MEMBER))
        assigned_s = await crowd.join()
        generation = max(member.generation for member in crowd.members)
        crowd.crash(victim)
        await crowd.all_beyond(generation)
        recovered_s = asyncio.get_running_loop().time() - min(member.asked_at_s for member in crowd.members)
        kilobytes = (server.resident_bytes() - before) / 1024 / size
        return LargeGroupCourse(size, assigned_s, recovered_s, crowd.messages / size, crowd.bytes / size, kilobytes)
