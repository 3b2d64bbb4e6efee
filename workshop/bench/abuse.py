"""What others hear late while somebody asks for what is refused, or asks and goes; through both doors.

Heartbeats of other groups, by the 99th percentile, against a time just before in which nobody does such things. Who
does them is a process of its own (`start_abuser`): here they would keep heartbeats from being sent, and heard.
"""

import asyncio
import math
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from muster.workshop.bench.members import GrpcConnection, GrpcMember, make_share
from muster.workshop.bench.others import SteadyMembers
from muster.workshop.bench.processes import LOAD_CORE, BenchFailed, ServerProcess, pinned, run_node
from muster.workshop.bench.records import kafka_address
from muster.workshop.bench.rows import BenchRow, less_is_better

ABUSE_MEMBERS = 10
EVERY_S = 0.1
IDLE_S = 2.0
ENTRIES, ABUSE_TIMES = 5_000_000, 5
"""Of a list of which 100,000 entries are taken, and how often it is sent."""
FLOOD, FLOODS = 2_000, 10
"""Calls that are cancelled together, and how often."""
ABUSE_GOAL: Final = 0.25
ABUSE_SETTINGS = {"group.initial.rebalance.delay.ms": "0", "kafka.listeners": "127.0.0.1:0"}


class GrpcHeartbeats:
    """Members over gRPC, each with a connection: one heartbeat every EVERY_S, answered or not."""

    def __init__(self, members: list[GrpcMember]) -> None:
        self._members = members

    @classmethod
    async def of(cls, address: str) -> "GrpcHeartbeats":
        members = [
            GrpcMember(GrpcConnection(address), f"beating-{number}", make_share) for number in range(ABUSE_MEMBERS)
        ]
        await asyncio.gather(*(member.join() for member in members))
        return cls(members)

    async def during(self, going: "asyncio.Future[object]") -> list[float]:
        """How long their heartbeats took until `going` was done, in ms."""
        taken: list[float] = []
        asked: list[asyncio.Task[None]] = []
        while not going.done():
            asked += [asyncio.create_task(self._beat(member, taken)) for member in self._members]
            await asyncio.sleep(EVERY_S)
        await asyncio.gather(*asked)
        return taken

    async def _beat(self, member: GrpcMember, taken: list[float]) -> None:
        began_s = time.perf_counter()
        await member.beat()
        taken.append((time.perf_counter() - began_s) * 1e3)

    async def close(self) -> None:
        for member in self._members:
            await member.wire.close()


def measure_abuse(name: str, home: str) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, ABUSE_SETTINGS) as server:
        yield from asyncio.run(measure_abuse_cases(name, server))


async def measure_abuse_cases(name: str, server: ServerProcess) -> list[BenchRow]:
    rows = []
    lines, beating = (
        await SteadyMembers.of(kafka_address(server), ABUSE_MEMBERS),
        await GrpcHeartbeats.of(server.address),
    )
    for kind, what, size, times in (
        ("kafka", f"{ENTRIES:,} entries refused by Kafka's door", ENTRIES, ABUSE_TIMES),
        ("grpc", f"{ENTRIES:,} entries refused by gRPC", ENTRIES, ABUSE_TIMES),
        ("flood", f"{FLOOD:,} calls at once that are cancelled", FLOOD, FLOODS),
    ):
        work = await start_abuser(server, kind, size, times)
        idle = await measure_both_tails(lines, beating, asyncio.sleep(IDLE_S))
        taken = await measure_both_tails(lines, beating, work())
        for door, value, before in zip(("Kafka's door", "gRPC"), taken, idle, strict=True):
            case = f"{name}: {what}, others by {door}"
            rows.append(less_is_better(case, value, "ms p99", "nobody does it", before, ABUSE_GOAL))
    await beating.close()
    return rows


async def measure_both_tails(
    lines: SteadyMembers, beating: GrpcHeartbeats, work: Awaitable[object]
) -> tuple[float, float]:
    """The tails of both doors while `work` goes on."""
    going = asyncio.ensure_future(work)
    by_kafka, by_grpc = await asyncio.gather(lines.during(going), beating.during(going))
    return p99(by_kafka), p99(by_grpc)


def p99(taken: list[float]) -> float:
    """
    >>> p99([float(each) for each in range(1, 201)])
    198.0
    """
    return sorted(taken)[math.ceil(len(taken) * 0.99) - 1]


async def start_abuser(server: ServerProcess, kind: str, size: int, times: int) -> Callable[[], Awaitable[object]]:
    """A process that is ready for it, and what sets it off."""
    address = kafka_address(server) if kind.startswith("kafka") else server.address
    words = ["-m", "muster.workshop.bench.abuser", kind, address, str(size), str(times)]
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdin=PIPE, stdout=PIPE)
    begin, said = process.stdin, process.stdout
    assert begin is not None
    assert said is not None
    await said.readline()

    async def work() -> None:
        begin.close()
        if await process.wait():
            raise BenchFailed(f"the process that does it ({kind}) ended with exit code {process.returncode}")

    return work
