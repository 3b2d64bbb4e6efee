"""Thousands of pushed members to whom nothing happens: what it costs a node that they live.

Each says so every third of its session, spread over that time as members that started by chance are. It is measured for
one such time, so that everybody has spoken once, once all streams are open.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.workshop.bench.crowd import MemberCrowd
from muster.workshop.bench.large_group import LARGE_GROUP_SETTINGS, PUSHED, WIRES
from muster.workshop.bench.members import GrpcMember
from muster.workshop.bench.processes import LOAD_CORE, ServerProcess, Stopwatch, pinned, run_node
from muster.workshop.bench.pushed import PushedMember
from muster.workshop.bench.rows import BenchRow, less_is_better
from muster.workshop.bench.sharing import SharedConnection

SESSION_MS = 45_000
"""The clients' default."""
INTERVAL_S = SESSION_MS / 3 / 1000
MOST_PERCENT = 12.0
TOGETHER = 20
"""Members of one process."""
OPENING = 500
"""Streams that are opened at a time: a node refuses the thousandth that has not said whose it is."""


def measure_idle_members(name: str, home: str) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, LARGE_GROUP_SETTINGS) as server:
        percent = asyncio.run(measure_idle_share(server))
        shared = asyncio.run(measure_idle_shared_share(server))
    case = f"{name}: {PUSHED:,}, every {INTERVAL_S:.0f} s, spread"
    yield less_is_better(f"{case}, a stream each", percent, "% of a core", "limit", MOST_PERCENT, 1.0)
    yield less_is_better(f"{case}, a stream for {TOGETHER}", shared, "% of a core", "limit", MOST_PERCENT, 1.0)


@dataclass(slots=True)
class AnsweredMember(PushedMember):
    """It asks for an answer to each heartbeat, as our clients do."""

    welcomed: asyncio.Event = field(default_factory=asyncio.Event)
    """Its stream is open: within the next interval it beats."""
    opening: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    async def live(self, every_s: float, first_s: float) -> None:
        await self.opening.acquire()
        await PushedMember.live(self, every_s, first_s)

    async def _welcome(self, stream: Any) -> float:
        told_s = await PushedMember._welcome(self, stream)
        self.opening.release()
        self.welcomed.set()
        return told_s

    def _beat(self) -> pb.SessionRequest:
        return pb.SessionRequest(request_number=1, heartbeat=pb.HeartbeatRequest(generation_id=self.generation))


async def measure_idle_share(server: ServerProcess, size: int = PUSHED, interval_s: float = INTERVAL_S) -> float:
    """Percent of a core. Raises what ended a member's stream."""
    async with MemberCrowd(server, "idle", size, AnsweredMember, WIRES) as crowd:
        answered = [member for member in crowd.members if isinstance(member, AnsweredMember)]
        opening = asyncio.Semaphore(OPENING)  # of this run's loop: each run has another
        for member in answered:
            member.session_timeout_ms, member.opening = SESSION_MS, opening
        await crowd.join()
        await crowd.done(member.welcomed.wait() for member in answered)
        messages, watch, before = crowd.messages, Stopwatch(), server.cpu_s()
        await asyncio.sleep(interval_s)
        percent = 100 * (server.cpu_s() - before) / watch.read()
        spoken = crowd.messages - messages
        assert spoken >= 1.8 * size, f"of {size} members {spoken // 2} spoke and were answered in {interval_s:.0f} s"
        return percent


class StreamSharingMember(GrpcMember):
    """It beats in step with the others of its process, by the stream that they share."""

    async def live(self, every_s: float, first_s: float) -> None:
        """Whoever holds the stream beats."""


async def measure_idle_shared_share(server: ServerProcess, size: int = PUSHED, interval_s: float = INTERVAL_S) -> float:
    """The same of members of which each process has some, and a stream for them. Percent of a core."""
    async with MemberCrowd(server, "idle-together", size, StreamSharingMember, WIRES) as crowd:
        for member in crowd.members:
            member.session_timeout_ms = SESSION_MS
        await crowd.join()
        processes = [crowd.members[first : first + TOGETHER] for first in range(0, size, TOGETHER)]
        streams = [SharedConnection(members[0].wire) for members in processes]
        await crowd.done(stream.greet(members) for stream, members in zip(streams, processes, strict=True))
        watch, before = Stopwatch(), server.cpu_s()
        beating = [beat_once(stream, interval_s * number / len(streams)) for number, stream in enumerate(streams)]
        heard = sum(await asyncio.gather(*beating, asyncio.sleep(interval_s, 0)))
        percent = 100 * (server.cpu_s() - before) / watch.read()
        assert heard == size, f"of {size} members {heard} were answered in {interval_s:.0f} s"
        for stream in streams:
            stream.close()
        return percent


async def beat_once(stream: SharedConnection, after_s: float) -> int:
    await asyncio.sleep(after_s)
    return await stream.beat()
