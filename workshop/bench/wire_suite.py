"""The cases of `muster bench wire`; with --kafka each work runs on a Kafka broker and on a node in turns.

Work is prepared once on each side, warmed up, and then measured round by round with the same lean clients; the side
that begins changes.
"""

import asyncio
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.workshop.bench import call_counts, kafka_load, wire_costs
from muster.workshop.bench.kafka_load import KafkaMember, LoadConnection, join_together, kafka_address
from muster.workshop.bench.kafka_peer import find_peer_broker
from muster.workshop.bench.processes import (
    LOAD_CORE,
    SERVER_CORE,
    BenchFailed,
    ServerProcess,
    cpu_ns,
    cpu_s,
    pinned,
    run_node,
    run_server,
)
from muster.workshop.bench.report import BenchRow, MeasureCase, less_is_better, measure_cases
from muster.workshop.bench.wire_costs import LeavingGroup

# What both brokers do
# --------------------

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
        return (await wire_costs.measure_per_request(side, members, KafkaMember.beat, depth),)

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
            return time.perf_counter() - began_s < wire_costs.ROUND_S

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
    await line.send_request("CreateTopics", CREATE, struct("CreateTopicsRequest")(topics=[wanted], timeout_ms=30_000))
    request = struct("FindCoordinatorRequest")(key="bench", key_type=0)

    async def found() -> bool:
        return not (await line.send_request("FindCoordinator", FIND, request)).error_code

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


# Next to Kafka's broker
# ----------------------

NAME: Final = "beside Kafka"
PEER: Final = "Kafka's broker"
DELAY_MS = 500
"""How long a group waits for its first members, on both sides where the broker is ours to start."""
WARM_UP_S, WARM_ROUNDS = 10.0, 3
"""Each side does each work for so long, and so often, before it counts: a JVM compiles what is asked of it again and
again."""
ROUNDS = 7
SETTINGS = {"group.initial.rebalance.delay.ms": str(DELAY_MS), "kafka.listeners": "127.0.0.1:0"}


def measure_beside_kafka(place: str, only: str) -> Iterator[BenchRow]:
    """Measure the cases whose name contains `only` beside the broker of `place`. Raises BenchFailed, JavaNotFound."""
    wanted = [work for work in list_works() if any(only in f"{NAME}: {figure.what}" for figure in work.figures)]
    if not wanted:
        return
    home = tempfile.mkdtemp(prefix="muster-bench-")
    try:
        with find_peer_broker(place, home, DELAY_MS) as broker, run_node(f"{home}/node", SETTINGS) as server:
            ours, theirs = BrokerSide(kafka_address(server), server.pid), BrokerSide(broker.address, broker.pid)
            with pinned(SERVER_CORE, theirs.pid), pinned(LOAD_CORE), asyncio.Runner() as runner:
                rows = compare_sides(wanted, ours, theirs)
                while row := runner.run(iterate_rows(rows)):
                    yield row
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def iterate_rows(rows: AsyncIterator[BenchRow]) -> BenchRow | None:
    return await anext(rows, None)


async def compare_sides(wanted: list[BrokerWork], ours: BrokerSide, theirs: BrokerSide) -> AsyncIterator[BenchRow]:
    for side in (ours, theirs):
        await prepare_side(side)
    for work in wanted:
        for row in await alternate_sides(work, ours, theirs):
            yield row


async def alternate_sides(work: BrokerWork, ours: BrokerSide, theirs: BrokerSide) -> list[BenchRow]:
    """The median round of each side; who begins changes."""
    rounds = (await work.ready(ours), await work.ready(theirs))
    for once in rounds:
        ends_s, done = time.monotonic() + WARM_UP_S, 0
        while done < WARM_ROUNDS or time.monotonic() < ends_s:
            await once()
            done += 1
    values: tuple[list[tuple[float, ...]], list[tuple[float, ...]]] = ([], [])
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            values[which].append(await rounds[which]())
    medians = [[statistics.median(each) for each in zip(*side, strict=True)] for side in values]
    return [row(*each) for each in zip(work.figures, *medians, strict=True)]


def row(figure: WorkFigure, ours: float, theirs: float) -> BenchRow:
    """
    >>> row(WorkFigure("commits", "commits/s", 3.0, more_is_better=True), 4_000.0, 1_000.0)[5:]
    (1000.0, 4.0, 3.0, True)
    >>> row(WorkFigure("heartbeats", "us", 3.0), 10.0, 25.0)[5:]
    (25.0, 2.5, 3.0, False)
    """
    ratio = ours / theirs if figure.more_is_better else theirs / ours
    case = f"{NAME}: {figure.what}"
    return BenchRow(
        "wire",
        case,
        round(ours, 3),
        figure.unit,
        PEER,
        round(theirs, 3),
        round(ratio, 3),
        figure.goal,
        ratio >= figure.goal,
    )


# Beside a bare echo
# ------------------

ECHO: Final = "a bare echo of frames"
ECHO_ROUNDS = 11
AT_MOST_ECHOS = 1.25


def measure_beside_echo(name: str, home: str) -> Iterator[BenchRow]:
    """One connection, one heartbeat at a time: what is left when a server does nothing but answer frames."""
    with pinned(LOAD_CORE), run_node(home, SETTINGS) as node:
        (member,) = asyncio.run(join_and_close(kafka_address(node)))
        answer = ask_once(kafka_address(node), member.beat())
        with run_server(["-m", "muster.workshop.bench.echo", "frames", answer[4:].hex()]) as bare:
            ours, theirs = EchoSide(node, kafka_address(node), [], []), EchoSide(bare, bare.address, [], [])
            for number in range(1 + ECHO_ROUNDS):
                for side in (ours, theirs) if number % 2 else (theirs, ours):
                    side.measure(member.beat(), counts=number > 0)  # the first round warms up
    for unit, our_values, their_values in (
        ("us p50", ours.walls_us, theirs.walls_us),
        ("us CPU/request", ours.cpus_us, theirs.cpus_us),
    ):
        medians = statistics.median(our_values), statistics.median(their_values)
        yield less_is_better(f"{name}, {unit}", medians[0], unit, ECHO, medians[1], 1 / AT_MOST_ECHOS)._replace(
            bench="wire"
        )


@dataclass(frozen=True, slots=True)
class EchoSide:
    """One of the two servers, and what its rounds took."""

    server: ServerProcess
    address: str
    walls_us: list[float]
    cpus_us: list[float]

    def measure(self, request: bytes, *, counts: bool) -> None:
        before_ns = cpu_ns(self.server.pid)
        wall_ms = p50_ms(self.address, request, ASKED)
        if counts:
            self.walls_us.append(1_000 * wall_ms)
            self.cpus_us.append((cpu_ns(self.server.pid) - before_ns) / ASKED / 1_000)


async def join_and_close(address: str) -> list[KafkaMember]:
    """A member whose session goes on without its connection."""
    members = await join_together(address, ["beating-alone"])
    members[0].line.close()
    return members


def ask_once(address: str, request: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as line, line.makefile("rb") as answers:
        line.sendall(request)
        return answers.read(int.from_bytes(answers.read(4), "big"))


# The suite
# ---------

CASES: dict[str, MeasureCase] = {
    "calls": call_counts.measure_calls,
    "heartbeats": wire_costs.measure_heartbeat_costs,
    "one connection beside a bare echo": measure_beside_echo,
    "heartbeats by both doors": wire_costs.measure_against_grpc,
    "commits of ten partitions": wire_costs.measure_commit_costs,
    "one leaves": wire_costs.measure_rejoins,
    "records": kafka_load.measure_messages,
}


def run(only: str = "", kafka: str = "") -> Iterator[BenchRow]:
    """Measure the cases whose name contains `only`; with those beside the broker of `kafka`, if it names one."""
    yield from measure_cases(CASES, only)
    if kafka:
        yield from measure_beside_kafka(kafka, only)
