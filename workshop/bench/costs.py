"""Processor time of the server per request: heartbeats against the mock cluster and our gRPC door, commits."""

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

from muster.coordinator.kafka.codec.codec import struct
from muster.workshop.bench import heartbeat
from muster.workshop.bench.line import LoadConnection
from muster.workshop.bench.processes import (
    LOAD_CORE,
    ServerProcess,
    Stopwatch,
    TimedProcess,
    pinned,
    run_node,
    run_server,
)
from muster.workshop.bench.records import kafka_address
from muster.workshop.bench.rows import BenchRow, less_is_better
from muster.workshop.bench.wire_members import KafkaMember, join_together
from muster.workshop.bench.yardstick import MachinePace, limit_row

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
    grpc_target = await heartbeat.join_target(ours)

    async def wire() -> float:
        return await measure_per_request(ours, members, KafkaMember.beat, 1)

    async def grpc() -> float:
        return await heartbeat.measure_round(grpc_target, ROUND_S)

    costs = await alternate_servers(wire, grpc)
    for member in grpc_target.members:
        await member.wire.close()
    return costs


async def measure_commit_us(ours: ServerProcess, machine: MachinePace) -> float:
    line = await LoadConnection.to(kafka_address(ours))
    wanted = struct("CreateTopicsRequest.topics")(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    await line.ask("CreateTopics", 4, struct("CreateTopicsRequest")(topics=[wanted]))
    members = await join_together(kafka_address(ours), ["bench"] * CONNECTIONS)

    async def one() -> float:
        return await measure_per_request(ours, members, lambda member: member.commit(TOPIC, PARTITIONS), COMMIT_DEPTH)

    costs = []
    for _ in range(COST_ROUNDS):
        machine.look()
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
        watch, before = Stopwatch(), target.cpu_s()

        def go_on(watch: Stopwatch = watch, seconds: float = seconds) -> bool:
            return watch.read() < seconds

        done = await asyncio.gather(*(member.line.repeat(request(member), depth, go_on) for member in members))
    return (target.cpu_s() - before) / sum(done) * 1e6
