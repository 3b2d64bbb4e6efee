"""Heartbeats over gRPC against a bare echo server: processor time of the server per call, interleaved."""

import asyncio
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.workshop.bench.members import GrpcConnection, GrpcMember, make_share
from muster.workshop.bench.processes import LOAD_CORE, ServerProcess, Stopwatch, pinned, run_node, run_server
from muster.workshop.bench.rows import BenchRow, less_is_better

HEARTBEAT_MEMBERS = 100
"""Connections with one call outstanding each: what many members look like."""
HEARTBEAT_WARM_UP_S = 0.7
HEARTBEAT_ROUND_S = 1.5
HEARTBEAT_ROUNDS = 5
HEARTBEAT_GOAL = 0.8
HEARTBEAT_SETTINGS = {"group.initial.rebalance.delay.ms": "500", "group.max.session.timeout.ms": "1800000"}


@dataclass(slots=True)
class HeartbeatTarget:
    """A server, the connections to it, and the heartbeats they send."""

    server: ServerProcess
    members: list[GrpcMember]


def measure_heartbeats(name: str, home: str) -> Iterator[BenchRow]:
    with (
        pinned(LOAD_CORE),
        run_node(home, HEARTBEAT_SETTINGS) as ours,
        run_server(["-m", "muster.workshop.bench.echo"]) as bare,
    ):
        costs = asyncio.run(interleave_with_echo(ours, bare))
    value, peer = (statistics.median(cost) for cost in costs)
    yield less_is_better(name, value, "us CPU/RPC", "bare grpc.aio echo of the same messages", peer, HEARTBEAT_GOAL)


async def interleave_with_echo(ours: ServerProcess, bare: ServerProcess) -> tuple[list[float], list[float]]:
    """Microseconds of processor time per call, of both servers, round by round; who begins changes each round."""
    ours_target, bare_target = await join_target(ours), make_echo_target(bare)
    targets = (ours_target, bare_target)
    costs: tuple[list[float], list[float]] = ([], [])
    for target in targets:
        await measure_round(target, HEARTBEAT_WARM_UP_S)
    for number in range(HEARTBEAT_ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            costs[which].append(await measure_round(targets[which], HEARTBEAT_ROUND_S))
    for target in targets:
        for member in target.members:
            await member.wire.close()
    return costs


async def join_target(ours: ServerProcess, token: str = "") -> HeartbeatTarget:
    wires = [GrpcConnection(ours.address, token) for _ in range(HEARTBEAT_MEMBERS)]
    members = [GrpcMember(wire, "bench", make_share, session_timeout_ms=600_000) for wire in wires]
    await asyncio.gather(*(member.join() for member in members))
    return HeartbeatTarget(ours, members)


def make_echo_target(bare: ServerProcess) -> HeartbeatTarget:
    """The echo server knows no groups: members of the same looks."""
    looks = "bench-00000000-0000-0000-0000-000000000000"
    return HeartbeatTarget(
        bare,
        [
            GrpcMember(GrpcConnection(bare.address), "bench", make_share, member_id=looks, generation=1)
            for _ in range(HEARTBEAT_MEMBERS)
        ],
    )


async def measure_round(target: HeartbeatTarget, seconds: float) -> float:
    watch, before = Stopwatch(), target.server.cpu_s()
    calls = sum(await asyncio.gather(*(send_heartbeats(member, watch, seconds) for member in target.members)))
    return (target.server.cpu_s() - before) / calls * 1e6


async def send_heartbeats(member: GrpcMember, watch: Stopwatch, seconds: float) -> int:
    """Heartbeats one after the other until the time is over; how many."""
    request = member.heartbeat_request()
    done = 0
    while watch.read() < seconds:
        answer = await member.wire.call("Heartbeat", request, pb.HeartbeatResponse)
        assert not answer.error_code, f"a heartbeat was refused: {answer}"
        done += 1
    return done
