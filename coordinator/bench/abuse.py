"""What others hear late while somebody asks for what is refused, or asks and goes; through both doors.

Heartbeats of other groups, by the 99th percentile, against a time just before in which nobody does such things.
"""

import asyncio
import math
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from muster.coordinator.bench.members import SERVICE, Member, Wire, one_share
from muster.coordinator.bench.processes import LOAD_CORE, BenchFailed, Server, node, pinned
from muster.coordinator.bench.rows import Row, less_is_better
from muster.coordinator.bench.stall.others import Others
from muster.coordinator.bench.wire.line import Line
from muster.coordinator.bench.wire.records import kafka_address
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.codec.emitting import Frame
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

MEMBERS = 10
EVERY_S = 0.1
IDLE_S = 2.0
ENTRIES = 5_000_000
"""Of a list of which 100,000 entries are taken."""
TIMES = 5
SHORT_BYTES = 1_000
"""A refusal has fewer; an answer about so many partitions has more."""
FLOOD, FLOODS = 2_000, 10
"""Calls that are cancelled together, and how often."""
HOLD_S = 0.02
GOAL: Final = 0.25
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "kafka.listeners": "127.0.0.1:0"}


@dataclass(frozen=True, slots=True)
class Abuse:
    """What somebody does, and by which door."""

    what: str
    work: Callable[[], Awaitable[object]]


class Beating:
    """Members over gRPC, each with a connection: one heartbeat every EVERY_S, answered or not."""

    def __init__(self, members: list[Member]) -> None:
        self._members = members

    @classmethod
    async def of(cls, address: str) -> "Beating":
        members = [Member(Wire(address), f"beating-{number}", one_share) for number in range(MEMBERS)]
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

    async def _beat(self, member: Member, taken: list[float]) -> None:
        began_s = time.perf_counter()
        await member.beat()
        taken.append((time.perf_counter() - began_s) * 1e3)

    async def close(self) -> None:
        for member in self._members:
            await member.wire.close()


def measure(name: str, home: str) -> Iterator[Row]:
    with pinned(LOAD_CORE), node(home, SETTINGS) as server:
        yield from asyncio.run(suffered(name, server))


async def suffered(name: str, server: Server) -> list[Row]:
    rows = []
    lines, beating = await Others.of(kafka_address(server), MEMBERS), await Beating.of(server.address)
    async for abuse in abuses(server):
        idle = await heard(lines, beating, asyncio.sleep(IDLE_S))
        taken = await heard(lines, beating, abuse.work())
        for door, value, before in zip(("Kafka's door", "gRPC"), taken, idle, strict=True):
            case = f"{name}: {abuse.what}, others by {door}"
            rows.append(less_is_better(case, value, "ms p99", "nobody does it", before, GOAL))
    await beating.close()
    return rows


async def heard(lines: Others, beating: Beating, work: Awaitable[object]) -> tuple[float, float]:
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


async def abuses(server: Server) -> AsyncIterator[Abuse]:
    line, wire = await Line.to(kafka_address(server)), Wire(server.address)
    topic = struct("OffsetFetchRequest.topics")(name="t", partition_indexes=[0] * ENTRIES)
    # Made beforehand: while the load makes a message it hears no answers, and they would look late.
    by_kafka = line.request("OffsetFetch", 5, struct("OffsetFetchRequest")(group_id="nobody", topics=[topic]))
    del topic
    rows = [pb.OffsetFetchTopic(name="t", partition_indexes=bytes(ENTRIES))]
    by_grpc = pb.OffsetFetchRequest(group_id="nobody", topics=rows).SerializeToString()

    async def refused_by_kafka() -> None:
        for _ in range(TIMES):
            answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
            line.send(by_kafka, answer.set_result)
            if len(await answer) > SHORT_BYTES:
                raise BenchFailed(f"a list of {ENTRIES} entries was answered at length; it has to be refused")

    async def refused_by_grpc() -> None:
        for _ in range(TIMES):
            await wire.refused("OffsetFetch", by_grpc)

    yield Abuse(f"{ENTRIES:,} entries refused by Kafka's door", refused_by_kafka)
    yield Abuse(f"{ENTRIES:,} entries refused by gRPC", refused_by_grpc)
    flood = await flooding(server.address)
    yield Abuse(f"{FLOOD:,} calls at once that are cancelled", flood)
    line.close()
    await wire.close()


async def flooding(address: str) -> Callable[[], Awaitable[object]]:
    """A process of its own, ready to cancel calls: here they would keep heartbeats from being sent, and heard."""
    words = ["-m", "muster.coordinator.bench.abuse", address, str(FLOOD), str(FLOODS)]
    process = await asyncio.create_subprocess_exec(sys.executable, *words, stdin=PIPE, stdout=PIPE)
    begin, said = process.stdin, process.stdout
    assert begin is not None
    assert said is not None
    await said.readline()

    async def work() -> None:
        begin.close()
        if await process.wait():
            raise BenchFailed(f"the flood of cancelled calls ended with exit code {process.returncode}")

    return work


async def cancelled(address: str, flood: int, floods: int) -> None:
    """JoinGroups on one connection, of which nobody waits for the answer."""
    wire = Wire(address)
    ask: Any = wire.channel.unary_unary(f"{SERVICE}JoinGroup")
    request = pb.JoinGroupRequest(group_id="g", protocol_type="consumer", session_timeout_ms=10_000)
    data = request.SerializeToString()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for _ in range(floods):
        calls = [ask(data) for _ in range(flood)]
        await asyncio.sleep(HOLD_S)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    await wire.close()


if __name__ == "__main__":
    asyncio.run(cancelled(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
