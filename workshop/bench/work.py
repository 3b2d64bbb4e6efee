"""What both brokers are asked to do. Each work is made ready once, warmed up, and then measured round by round."""

import asyncio
import socket
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.workshop.bench import costs
from muster.workshop.bench.line import LoadConnection
from muster.workshop.bench.processes import BenchFailed, cpu_ns, cpu_s
from muster.workshop.bench.rebalances import LeavingGroup
from muster.workshop.bench.wire_members import KafkaMember, join_together

TOPIC, PARTITIONS = "bench", 10
CONNECTIONS, DEEP, MANY, IN_FLIGHT_EACH = 16, 32, 64, 8
ASKED = 2_000
"""Requests of a round of one connection, one at a time; a tenth of them where each is flushed."""
PATIENCE_S, LOOK_AGAIN_S = 60.0, 0.2
FIND, CREATE = 2, 4


@dataclass(frozen=True, slots=True)
class BrokerSide:
    """A broker and its process."""

    address: str
    pid: int

    def cpu_s(self) -> float:
        return cpu_s(self.pid)

    def cpu_ns(self) -> int:
        return cpu_ns(self.pid)


Round: TypeAlias = Callable[[], Awaitable[tuple[float, ...]]]
"""Measures once: a value for each figure of the work."""


@dataclass(frozen=True, slots=True)
class WorkFigure:
    """`goal`: how many times as well as Kafka."""

    what: str
    unit: str
    goal: float
    more_is_better: bool = False


@dataclass(frozen=True, slots=True)
class BrokerWork:
    """What is measured together, and what makes it ready on one side."""

    figures: tuple[WorkFigure, ...]
    ready: Callable[[BrokerSide], Awaitable[Round]]


async def send_heartbeat_rounds(side: BrokerSide, connections: int, depth: int) -> Round:
    members = await join_together(side.address, [f"beating-{connections}-{number}" for number in range(connections)])

    async def once() -> tuple[float]:
        return (await costs.measure_per_request(side, members, KafkaMember.beat, depth),)

    return once


async def heartbeats_one_by_one(side: BrokerSide) -> Round:
    (member,) = await join_together(side.address, ["beating-alone"])

    async def once() -> tuple[float]:
        return (await asyncio.to_thread(p50_ms, side.address, member.beat(), ASKED),)

    return once


async def commits_one_by_one(side: BrokerSide) -> Round:
    (member,) = await join_together(side.address, ["committing-alone"])
    await is_commit_taken(member)

    async def once() -> tuple[float]:
        return (await asyncio.to_thread(p50_ms, side.address, member.commit(TOPIC, PARTITIONS), ASKED // 10),)

    return once


async def commits_in_flight(side: BrokerSide) -> Round:
    """Commits in a second, durable where the broker does that before it answers."""
    members = await join_together(side.address, ["committing"] * CONNECTIONS)
    await is_commit_taken(members[0])

    async def once() -> tuple[float]:
        began_s = time.perf_counter()

        def go_on() -> bool:
            return time.perf_counter() - began_s < costs.ROUND_S

        requests = [member.commit(TOPIC, PARTITIONS) for member in members]
        done = await asyncio.gather(
            *(m.line.repeat(request, IN_FLIGHT_EACH, go_on) for m, request in zip(members, requests, strict=True))
        )
        rate = sum(done) / (time.perf_counter() - began_s)
        await members[0].committed(TOPIC, PARTITIONS)  # nobody has looked at the answers
        return (rate,)

    return once


async def time_one_leave(side: BrokerSide, stay: int) -> Round:
    leaving = await LeavingGroup.of(side, side.address, stay)
    return leaving.once


LEAVES: Final = (10, 100, 500)
COSTLY = 500


def list_works() -> list[BrokerWork]:
    """All of them, with the goals of the issue that asked for them."""
    per_request, p50 = "us CPU/request", "ms p50"
    deep = WorkFigure(f"heartbeats, {CONNECTIONS} connections x {DEEP} deep", per_request, 3)
    many = WorkFigure(f"heartbeats, {MANY} connections, one at a time", per_request, 1.5)
    flight = CONNECTIONS * IN_FLIGHT_EACH
    found = [
        BrokerWork((deep,), lambda side: send_heartbeat_rounds(side, CONNECTIONS, DEEP)),
        BrokerWork((WorkFigure("heartbeats, one connection, one at a time", p50, 3),), heartbeats_one_by_one),
        BrokerWork((many,), lambda side: send_heartbeat_rounds(side, MANY, 1)),
        BrokerWork((WorkFigure("commits of ten, one in flight", p50, 5),), commits_one_by_one),
        BrokerWork(
            (WorkFigure(f"commits of ten, {flight} in flight", "commits/s", 3, more_is_better=True),), commits_in_flight
        ),
    ]
    for size in LEAVES:
        wall = WorkFigure(f"one leaves, {size} members, wall", "ms", 1.5)
        cpu = WorkFigure(f"one leaves, {size} members, processor", "ms CPU", 2.5 if size == COSTLY else 1.0)
        found.append(BrokerWork((wall, cpu), lambda side, size=size: time_one_leave(side, size)))  # type: ignore[misc]
    return found


def p50_ms(address: str, request: bytes, times: int) -> float:
    """The median of so many requests on one connection, each sent when the one before was answered."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers, taken = line.makefile("rb"), []
        for _ in range(times):
            began_ns = time.perf_counter_ns()
            line.sendall(request)
            answers.read(int.from_bytes(answers.read(4), "big"))
            taken.append(time.perf_counter_ns() - began_ns)
    return statistics.median(taken) / 1e6


async def prepare_side(side: BrokerSide) -> None:
    """A topic to commit, and coordinators that answer: a broker makes its topic of offsets when first asked."""
    line = await LoadConnection.to(side.address)
    wanted = struct("CreateTopicsRequest.topics")(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    await line.ask("CreateTopics", CREATE, struct("CreateTopicsRequest")(topics=[wanted], timeout_ms=30_000))
    request = struct("FindCoordinatorRequest")(key="bench", key_type=0)

    async def found() -> bool:
        return not (await line.ask("FindCoordinator", FIND, request)).error_code

    await wait_until(found, "FindCoordinator", side)
    nobody = KafkaMember(line, "")
    groups = ["beating-alone", "committing-alone", "committing"]
    groups += [f"beating-{count}-{number}" for count in (CONNECTIONS, MANY) for number in range(count)]
    groups += [f"leaving-{size}" for size in LEAVES]
    for group_id in groups:
        nobody.group_id = group_id

        async def answered() -> bool:
            return await nobody.answered() == ErrorCode.UNKNOWN_MEMBER_ID

        await wait_until(answered, f"a heartbeat of {group_id}", side)
    line.close()


async def is_commit_taken(member: KafkaMember) -> None:
    """A commit that is taken; a topic that was just made may not be known everywhere."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            await member.committed(TOPIC, PARTITIONS)
            return
        except BenchFailed:
            if time.monotonic() > deadline_s:
                raise
        await asyncio.sleep(LOOK_AGAIN_S)


async def wait_until(reached: Callable[[], Awaitable[bool]], what: str, side: BrokerSide) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not await reached():
        if time.monotonic() > deadline_s:
            raise BenchFailed(f"{side.address} did not answer {what} as a broker does within {PATIENCE_S:.0f} s")
        await asyncio.sleep(LOOK_AGAIN_S)
