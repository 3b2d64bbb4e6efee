"""Processor time of the server per request of Kafka's protocol: heartbeats, commits, and rejoins.

Peers are librdkafka's mock cluster and the node's own gRPC listener. A limit in microseconds says something about a
program only where the machine is known: a library of others, written in Python as a node is, coded one message in a
known time, and what the same takes here says how to read the limit. A shared machine changes its pace, so the
yardstick is measured again and again next to the work.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple, TypeAlias

from muster.coordinator.kafka.codec.codec import struct
from muster.workshop.bench import heartbeats
from muster.workshop.bench.kafka_load import KafkaMember, LoadConnection, join_together, kafka_address
from muster.workshop.bench.processes import (
    LOAD_CORE,
    ServerProcess,
    Stopwatch,
    TimedProcess,
    pinned,
    run_node,
    run_server,
)
from muster.workshop.bench.report import BenchRow, less_is_better

# The pace of this machine
# ------------------------

CODED_US = 5.5
"""What kafka-python 3.0.12 took there to encode and decode a Heartbeat request of version 4."""

CALLS = 500


class MachinePace:
    """How slow this one is. Looked at again and again beside what is measured: a shared machine changes its pace."""

    def __init__(self) -> None:
        self._looks: list[float] = []

    def measure_pace(self) -> None:
        self._looks.append(measure_coding_us() / CODED_US)

    def slower(self) -> float:
        """By how much a limit is longer here than where it was set; at least 1: a fast machine shortens none."""
        return max(1.0, statistics.median(self._looks))


def measure_coding_us() -> float:
    """Microseconds of processor time to encode and decode one Heartbeat."""
    from kafka.protocol.consumer import HeartbeatRequest

    beat = HeartbeatRequest(
        version=4, group_id="bench", generation_id=3, member_id="bench-" + "0" * 36, group_instance_id=None
    )
    before = time.thread_time_ns()
    for _ in range(CALLS):
        HeartbeatRequest.decode(beat.encode(), version=4)
    return (time.thread_time_ns() - before) / CALLS / 1e3


def limit_row(case: str, value: float, unit: str, limit: float, machine: MachinePace) -> BenchRow:
    """A cost against a limit in the same unit, read for this machine."""
    slower = machine.slower()
    peer = f"the limit of {limit:g}, on a machine {slower:.2f} times as slow"
    return less_is_better(case, value, unit, peer, limit * slower, 1.0)


# Heartbeats and commits
# ----------------------

CONNECTIONS = 16
WARM_UP_S, ROUND_S, COST_ROUNDS = 0.5, 1.5, 5
PEER = "librdkafka's mock cluster"
AT_MOST_MOCKS = 5
AT_LEAST_GRPCS = 6
COMMIT_US = 45.0
COMMIT_DEPTH, PARTITIONS, TOPIC = 8, 10, "bench"
COST_SETTINGS = {"group.initial.rebalance.delay.ms": "500", "kafka.listeners": "127.0.0.1:0"}

CostRound: TypeAlias = Callable[[], Awaitable[float]]
"""Measures once: microseconds of processor time per request."""


def measure_heartbeat_costs(name: str, home: str) -> Iterator[BenchRow]:
    """One request outstanding on each connection; the servers take turns."""
    with (
        pinned(LOAD_CORE),
        run_node(home, COST_SETTINGS) as ours,
        run_server(["-m", "muster.workshop.bench.mock_cluster"]) as mock,
    ):
        value, peer = asyncio.run(interleave_with_mock(ours, mock))
    yield make_wire_row(less_is_better(name, value, "us CPU/request", PEER, peer, 1 / AT_MOST_MOCKS))


def measure_against_grpc(name: str, home: str) -> Iterator[BenchRow]:
    """The same heartbeat by either door of one node."""
    settings = COST_SETTINGS | {"group.max.session.timeout.ms": "1800000"}
    with pinned(LOAD_CORE), run_node(home, settings) as ours:
        value, peer = asyncio.run(interleave_listeners(ours))
    yield make_wire_row(less_is_better(name, value, "us CPU/request", "our gRPC door", peer, AT_LEAST_GRPCS))


def measure_commit_costs(name: str, home: str) -> Iterator[BenchRow]:
    """Durable before it is answered; a group's members commit at the same time, each a few in a row."""
    with pinned(LOAD_CORE), run_node(home, COST_SETTINGS) as ours:
        machine = MachinePace()
        value = asyncio.run(measure_commit_us(ours, machine))
    yield make_wire_row(limit_row(name, value, "us CPU/request", COMMIT_US, machine))


def make_wire_row(row: BenchRow) -> BenchRow:
    return row._replace(bench="wire")


async def interleave_with_mock(ours: ServerProcess, mock: ServerProcess) -> tuple[float, float]:
    groups = [f"bench-{number}" for number in range(CONNECTIONS)]
    our_members = await join_together(kafka_address(ours), groups)
    mock_members = await join_together(mock.address, groups)

    async def us() -> float:
        return await measure_per_request(ours, our_members, KafkaMember.beat, 1)

    async def them() -> float:
        return await measure_per_request(mock, mock_members, KafkaMember.beat, 1)

    return await alternate_servers(us, them)


async def interleave_listeners(ours: ServerProcess) -> tuple[float, float]:
    members = await join_together(kafka_address(ours), [f"bench-{number}" for number in range(CONNECTIONS)])
    grpc_target = await heartbeats.join_target(ours)

    async def wire() -> float:
        return await measure_per_request(ours, members, KafkaMember.beat, 1)

    async def grpc() -> float:
        return await heartbeats.measure_round(grpc_target, ROUND_S)

    costs = await alternate_servers(wire, grpc)
    for member in grpc_target.members:
        await member.wire.close()
    return costs


async def measure_commit_us(ours: ServerProcess, machine: MachinePace) -> float:
    line = await LoadConnection.to(kafka_address(ours))
    wanted = struct("CreateTopicsRequest.topics")(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    await line.send_request("CreateTopics", 4, struct("CreateTopicsRequest")(topics=[wanted]))
    members = await join_together(kafka_address(ours), ["bench"] * CONNECTIONS)

    async def one() -> float:
        return await measure_per_request(ours, members, lambda member: member.commit(TOPIC, PARTITIONS), COMMIT_DEPTH)

    costs = []
    for _ in range(COST_ROUNDS):
        machine.measure_pace()
        costs.append(await one())
        await members[0].committed(TOPIC, PARTITIONS)  # nobody has looked at the answers
    return statistics.median(costs)


async def alternate_servers(ours: CostRound, theirs: CostRound) -> tuple[float, float]:
    """The median round of each; who begins changes."""
    costs: tuple[list[float], list[float]] = ([], [])
    for number in range(COST_ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            costs[which].append(await (ours, theirs)[which]())
    return statistics.median(costs[0]), statistics.median(costs[1])


async def measure_per_request(
    target: TimedProcess, members: list[KafkaMember], request: Callable[[KafkaMember], bytes], depth: int
) -> float:
    """Microseconds of the server's processor time for each of many requests."""
    for seconds in (WARM_UP_S, ROUND_S):
        watch, before = Stopwatch(), target.cpu_ns()

        def go_on(watch: Stopwatch = watch, seconds: float = seconds) -> bool:
            return watch.read() < seconds

        done = await asyncio.gather(*(member.line.repeat(request(member), depth, go_on) for member in members))
    return (target.cpu_ns() - before) / sum(done) / 1e3


# A member leaves
# ---------------

LIMITS_MS = {10: 2.0, 100: 20.0, 500: 120.0}
"""Members that stay, and what the server may take of its processor for all of them."""

REJOIN_ROUNDS, REJOINS = 7, 400
"""At least so many rounds, and of a small group as many more as it takes for so many members to have joined anew."""
REJOIN_SETTINGS = {"group.initial.rebalance.delay.ms": "1000", "kafka.listeners": "127.0.0.1:0"}


def measure_rejoins(name: str, home: str) -> Iterator[BenchRow]:
    for size, limit_ms in LIMITS_MS.items():
        with pinned(LOAD_CORE), run_node(f"{home}/{size}", REJOIN_SETTINGS) as ours:
            machine = MachinePace()
            cost_ms = asyncio.run(measure_one_leave(ours, size, machine))
        yield make_wire_row(limit_row(f"{name}: {size} members", cost_ms, "ms CPU", limit_ms, machine))


async def measure_one_leave(ours: ServerProcess, size: int, machine: MachinePace) -> float:
    """The median of several rounds behind one that warms up."""
    leaving = await LeavingGroup.of(ours, kafka_address(ours), size)
    costs = []
    for _ in range(1 + max(REJOIN_ROUNDS, REJOINS // size)):
        machine.measure_pace()
        costs.append((await leaving.once()).cpu_ms)
    return statistics.median(costs[1:])


class RejoinRound(NamedTuple):
    """From the word of the one that leaves until all others have their shares."""

    wall_ms: float
    cpu_ms: float


class LeavingGroup:
    """A group whose last member leaves, again and again; in between somebody else takes its place."""

    def __init__(self, target: TimedProcess, address: str, members: list[KafkaMember]) -> None:
        self._target = target
        self._address = address
        self._members = members

    @classmethod
    async def of(cls, target: TimedProcess, address: str, stay: int) -> "LeavingGroup":
        return cls(target, address, await join_together(address, [f"leaving-{stay}"] * (stay + 1)))

    async def once(self) -> RejoinRound:
        *stay, leaver = self._members
        watch, before = Stopwatch(), self._target.cpu_ns()
        await leaver.leave()
        await asyncio.gather(*(member.join() for member in stay))
        took = RejoinRound(watch.read() * 1e3, (self._target.cpu_ns() - before) / 1e6)
        back = KafkaMember(await LoadConnection.to(self._address), leaver.group_id)
        leaver.line.close()
        self._members = [*stay, back]
        coming = asyncio.create_task(back.join())
        await stay[0].called()
        await asyncio.gather(coming, *(member.join() for member in stay))
        return took

    def close(self) -> None:
        for member in self._members:
            member.line.close()
