"""Many members on one stream against a call for each heartbeat: processor time of the server, in the same run."""

import asyncio
import statistics
from collections.abc import Iterator
from typing import Any

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.workshop.bench.heartbeat import (
    HEARTBEAT_MEMBERS,
    HEARTBEAT_ROUND_S,
    HEARTBEAT_ROUNDS,
    HEARTBEAT_SETTINGS,
    HEARTBEAT_WARM_UP_S,
    HeartbeatTarget,
    join_target,
    measure_round,
)
from muster.workshop.bench.members import SERVICE, GrpcConnection, GrpcMember
from muster.workshop.bench.processes import LOAD_CORE, ServerProcess, Stopwatch, pinned, run_node
from muster.workshop.bench.rows import BenchRow, less_is_better

SHARED_STREAM_GOAL = 5.0


def measure_shared_streams(name: str, home: str) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, HEARTBEAT_SETTINGS) as server:
        shared, unary = asyncio.run(interleave_shared_and_single(server))
    case = f"{name}, {HEARTBEAT_MEMBERS} members at a time"
    yield less_is_better(case, shared, "us CPU/heartbeat", "a call each, in the same run", unary, SHARED_STREAM_GOAL)


async def interleave_shared_and_single(server: ServerProcess) -> tuple[float, float]:
    """Microseconds of the server for a heartbeat: with all others in a frame, and by a call of its own."""
    target = await join_target(server)
    wire = GrpcConnection(server.address)
    shared = SharedConnection(wire)
    await shared.greet(target.members)
    together, unary = [], []
    await measure_round(target, HEARTBEAT_WARM_UP_S)
    await measure_shared_round(target, shared, HEARTBEAT_WARM_UP_S)
    for _ in range(HEARTBEAT_ROUNDS):
        together.append(await measure_shared_round(target, shared, HEARTBEAT_ROUND_S))
        unary.append(await measure_round(target, HEARTBEAT_ROUND_S))
    shared.close()
    await wire.close()
    for member in target.members:
        await member.wire.close()
    return statistics.median(together), statistics.median(unary)


class SharedConnection:
    """One stream, and the members that speak on it."""

    def __init__(self, wire: GrpcConnection) -> None:
        self._stream: Any = wire.channel.stream_stream(SERVICE + "SharedSession")()
        self._heartbeats: list[pb.MemberRequest] = []

    async def greet(self, members: list[GrpcMember]) -> None:
        """All come, and have heard that they are known."""
        hellos = [
            pb.SessionRequest(hello=pb.SessionHello(group_id=each.group_id, member_id=each.member_id))
            for each in members
        ]
        await self._say([pb.MemberRequest(member=number, request=hello) for number, hello in enumerate(hellos)])
        await self._hear(len(members))
        for number, member in enumerate(members):
            request = pb.SessionRequest(
                request_number=1, heartbeat=pb.HeartbeatRequest(generation_id=member.generation)
            )
            self._heartbeats.append(pb.MemberRequest(member=number, request=request))

    async def beat(self) -> int:
        """All members beat and hear the answer; how many."""
        await self._say(self._heartbeats)
        await self._hear(len(self._heartbeats))
        return len(self._heartbeats)

    def close(self) -> None:
        self._stream.cancel()

    async def _say(self, words: list[pb.MemberRequest]) -> None:
        await self._stream.write(pb.SharedSessionRequest(requests=words).SerializeToString())

    async def _hear(self, count: int) -> None:
        while count > 0:
            for heard in pb.SharedSessionResponse.FromString(await self._stream.read()).responses:
                refused = heard.HasField("ended") or heard.response.heartbeat.error_code
                assert not refused, f"a healthy member was told: {heard}"
                count -= 1


async def measure_shared_round(target: HeartbeatTarget, shared: SharedConnection, seconds: float) -> float:
    watch, before, done = Stopwatch(), target.server.cpu_s(), 0
    while watch.read() < seconds:
        done += await shared.beat()
    return (target.server.cpu_s() - before) / done * 1e6
