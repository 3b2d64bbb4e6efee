"""Processor time of the server per request: heartbeats against the mock cluster and our gRPC door, commits."""

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

from muster.coordinator.bench import heartbeat
from muster.coordinator.bench.processes import LOAD_CORE, Server, Stopwatch, Timed, node, pinned, server
from muster.coordinator.bench.rows import Row, less_is_better
from muster.coordinator.bench.wire.line import Line
from muster.coordinator.bench.wire.members import WireMember, together
from muster.coordinator.bench.wire.records import kafka_address
from muster.coordinator.bench.wire.yardstick import Machine, within
from muster.coordinator.kafka.codec.codec import struct

CONNECTIONS = 16
WARM_UP_S, ROUND_S, ROUNDS = 0.5, 1.5, 5
PEER = "librdkafka's mock cluster"
AT_MOST_MOCKS = 5
AT_LEAST_GRPCS = 6
COMMIT_US = 45.0
COMMIT_DEPTH, PARTITIONS, TOPIC = 8, 10, "bench"
SETTINGS = {"group.initial.rebalance.delay.ms": "500", "kafka.listeners": "127.0.0.1:0"}

Round: TypeAlias = Callable[[], Awaitable[float]]
"""Measures once: microseconds of processor time per request."""


def heartbeats(name: str, home: str) -> Iterator[Row]:
    """One request outstanding on each connection; the servers take turns."""
    with pinned(LOAD_CORE), node(home, SETTINGS) as ours, server(["-m", "muster.coordinator.bench.wire.mock"]) as mock:
        value, peer = asyncio.run(beaten(ours, mock))
    yield as_wire(less_is_better(name, value, "us CPU/request", PEER, peer, 1 / AT_MOST_MOCKS))


def against_grpc(name: str, home: str) -> Iterator[Row]:
    """The same heartbeat by either door of one node."""
    settings = SETTINGS | {"group.max.session.timeout.ms": "1800000"}
    with pinned(LOAD_CORE), node(home, settings) as ours:
        value, peer = asyncio.run(by_both_doors(ours))
    yield as_wire(less_is_better(name, value, "us CPU/request", "our gRPC door", peer, AT_LEAST_GRPCS))


def commits(name: str, home: str) -> Iterator[Row]:
    """Durable before it is answered; a group's members commit at the same time, each a few in a row."""
    with pinned(LOAD_CORE), node(home, SETTINGS) as ours:
        machine = Machine()
        value = asyncio.run(committed(ours, machine))
    yield as_wire(within(name, value, "us CPU/request", COMMIT_US, machine))


def as_wire(row: Row) -> Row:
    return row._replace(bench="wire")


async def beaten(ours: Server, mock: Server) -> tuple[float, float]:
    groups = [f"bench-{number}" for number in range(CONNECTIONS)]
    our_members = await together(kafka_address(ours), groups)
    mock_members = await together(mock.address, groups)

    async def us() -> float:
        return await per_request(ours, our_members, WireMember.beat, 1)

    async def them() -> float:
        return await per_request(mock, mock_members, WireMember.beat, 1)

    return await in_turns(us, them)


async def by_both_doors(ours: Server) -> tuple[float, float]:
    members = await together(kafka_address(ours), [f"bench-{number}" for number in range(CONNECTIONS)])
    grpc_target = await heartbeat.joined(ours)

    async def wire() -> float:
        return await per_request(ours, members, WireMember.beat, 1)

    async def grpc() -> float:
        return await heartbeat.one_round(grpc_target, ROUND_S)

    costs = await in_turns(wire, grpc)
    for member in grpc_target.members:
        await member.wire.close()
    return costs


async def committed(ours: Server, machine: Machine) -> float:
    line = await Line.to(kafka_address(ours))
    wanted = struct("CreateTopicsRequest.topics")(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    await line.ask("CreateTopics", 4, struct("CreateTopicsRequest")(topics=[wanted]))
    members = await together(kafka_address(ours), ["bench"] * CONNECTIONS)

    async def one() -> float:
        return await per_request(ours, members, lambda member: member.commit(TOPIC, PARTITIONS), COMMIT_DEPTH)

    costs = []
    for _ in range(ROUNDS):
        machine.look()
        costs.append(await one())
        await members[0].committed(TOPIC, PARTITIONS)  # nobody has looked at the answers
    return statistics.median(costs)


async def in_turns(ours: Round, theirs: Round) -> tuple[float, float]:
    """The median round of each; who begins changes."""
    costs: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            costs[which].append(await (ours, theirs)[which]())
    return statistics.median(costs[0]), statistics.median(costs[1])


async def per_request(
    target: Timed, members: list[WireMember], request: Callable[[WireMember], bytes], depth: int
) -> float:
    """Microseconds of the server's processor time for each of many requests."""
    for seconds in (WARM_UP_S, ROUND_S):
        watch, before = Stopwatch(), target.cpu_s()

        def go_on(watch: Stopwatch = watch, seconds: float = seconds) -> bool:
            return watch.read() < seconds

        done = await asyncio.gather(*(member.line.repeat(request(member), depth, go_on) for member in members))
    return (target.cpu_s() - before) / sum(done) * 1e6
