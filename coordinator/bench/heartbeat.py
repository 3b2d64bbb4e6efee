"""Heartbeats over gRPC against a bare echo server: processor time of the server per call, interleaved."""

import asyncio
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from muster.coordinator.bench.members import Member, Wire, one_share
from muster.coordinator.bench.processes import LOAD_CORE, Server, Stopwatch, node, pinned, server
from muster.coordinator.bench.rows import Row, less_is_better
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

MEMBERS = 100
"""Connections with one call outstanding each: what many members look like."""
WARM_UP_S = 0.7
ROUND_S = 1.5
ROUNDS = 5
GOAL = 0.8
SETTINGS = {"group.initial.rebalance.delay.ms": "500", "group.max.session.timeout.ms": "1800000"}


@dataclass(slots=True)
class Target:
    """A server, the connections to it, and the heartbeats they send."""

    server: Server
    members: list[Member]


def measure(name: str, home: str) -> Iterator[Row]:
    with pinned(LOAD_CORE), node(home, SETTINGS) as ours, server(["-m", "muster.coordinator.bench.echo"]) as bare:
        costs = asyncio.run(interleaved(ours, bare))
    value, peer = (statistics.median(cost) for cost in costs)
    yield less_is_better(name, value, "us CPU/RPC", "bare grpc.aio echo of the same messages", peer, GOAL)


async def interleaved(ours: Server, bare: Server) -> tuple[list[float], list[float]]:
    """Microseconds of processor time per call, of both servers, round by round; who begins changes each round."""
    ours_target, bare_target = await joined(ours), unjoined(bare)
    targets = (ours_target, bare_target)
    costs: tuple[list[float], list[float]] = ([], [])
    for target in targets:
        await one_round(target, WARM_UP_S)
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            costs[which].append(await one_round(targets[which], ROUND_S))
    for target in targets:
        for member in target.members:
            await member.wire.close()
    return costs


async def joined(ours: Server, token: str = "") -> Target:
    wires = [Wire(ours.address, token) for _ in range(MEMBERS)]
    members = [Member(wire, "bench", one_share, session_timeout_ms=600_000) for wire in wires]
    await asyncio.gather(*(member.join() for member in members))
    return Target(ours, members)


def unjoined(bare: Server) -> Target:
    """The echo server knows no groups: members of the same looks."""
    looks = "bench-00000000-0000-0000-0000-000000000000"
    return Target(
        bare, [Member(Wire(bare.address), "bench", one_share, member_id=looks, generation=1) for _ in range(MEMBERS)]
    )


async def one_round(target: Target, seconds: float) -> float:
    watch, before = Stopwatch(), target.server.cpu_s()
    calls = sum(await asyncio.gather(*(beats(member, watch, seconds) for member in target.members)))
    return (target.server.cpu_s() - before) / calls * 1e6


async def beats(member: Member, watch: Stopwatch, seconds: float) -> int:
    """Heartbeats one after the other until the time is over; how many."""
    request = member.heartbeat_request()
    done = 0
    while watch.read() < seconds:
        answer = await member.wire.call("Heartbeat", request, pb.HeartbeatResponse)
        assert not answer.error_code, f"a heartbeat was refused: {answer}"
        done += 1
    return done
