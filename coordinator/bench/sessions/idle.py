"""Thousands of pushed members to whom nothing happens: what it costs a node that they live.

Each says so every third of its session, spread over that time as members that started by chance are. It is measured for
one such time, so that everybody has spoken once, once all streams are open.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from muster.coordinator.bench.crowd import Crowd
from muster.coordinator.bench.growth import PUSHED, SETTINGS, WIRES
from muster.coordinator.bench.processes import LOAD_CORE, Server, Stopwatch, node, pinned
from muster.coordinator.bench.pushed import PushedMember
from muster.coordinator.bench.rows import Row, less_is_better
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

SESSION_MS = 45_000
"""The clients' default."""
INTERVAL_S = SESSION_MS / 3 / 1000
MOST_PERCENT = 12.0
OPENING = asyncio.Semaphore(500)
"""Streams that are opened at a time: a node refuses the thousandth that has not said whose it is."""


def measure(name: str, home: str) -> Iterator[Row]:
    with pinned(LOAD_CORE), node(home, SETTINGS) as server:
        percent = asyncio.run(idle(server))
    case = f"{name}: {PUSHED:,}, every {INTERVAL_S:.0f} s, spread"
    yield less_is_better(case, percent, "% of a core", "limit", MOST_PERCENT, 1.0)


@dataclass(slots=True)
class Answered(PushedMember):
    """It asks for an answer to each heartbeat, as our clients do."""

    welcomed: asyncio.Event = field(default_factory=asyncio.Event)
    """Its stream is open: within the next interval it beats."""

    async def live(self, every_s: float, first_s: float) -> None:
        await OPENING.acquire()
        await PushedMember.live(self, every_s, first_s)

    async def _welcome(self, stream: Any) -> float:
        told_s = await PushedMember._welcome(self, stream)
        OPENING.release()
        self.welcomed.set()
        return told_s

    def _beat(self) -> pb.SessionRequest:
        return pb.SessionRequest(request_number=1, heartbeat=pb.HeartbeatRequest(generation_id=self.generation))


async def idle(server: Server, size: int = PUSHED, interval_s: float = INTERVAL_S) -> float:
    """Percent of a core. Raises what ended a member's stream."""
    async with Crowd(server, "idle", size, Answered, WIRES) as crowd:
        for member in crowd.members:
            member.session_timeout_ms = SESSION_MS
        await crowd.join()
        await crowd.done(member.welcomed.wait() for member in crowd.members if isinstance(member, Answered))
        messages, watch, before = crowd.messages, Stopwatch(), server.cpu_s()
        await asyncio.sleep(interval_s)
        percent = 100 * (server.cpu_s() - before) / watch.read()
        spoken = crowd.messages - messages
        assert spoken >= 1.8 * size, f"of {size} members {spoken // 2} spoke and were answered in {interval_s:.0f} s"
        return percent
