"""Heartbeats to a node that counts for /metrics, against one that does not, through both doors, round by round."""

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from muster.coordinator.kafka.codec.emitter import Frame
from muster.workshop.bench import heartbeat
from muster.workshop.bench.processes import LOAD_CORE, ServerProcess, Stopwatch, pinned, run_node
from muster.workshop.bench.records import kafka_address
from muster.workshop.bench.rows import BENCH, BenchRow
from muster.workshop.bench.wire_members import KafkaMember, join_together

COMPARED_MEMBERS = 50
COMPARED_WARM_UP_S = 0.5
COMPARED_ROUND_S = 0.25
COMPARED_ROUNDS = 40
"""Many short ones: what else goes on on the machine meets both alike."""
METRICS_GOAL: Final = 0.97
"""At most 3 % dearer."""
COMPARED_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "500",
    "group.max.session.timeout.ms": "1800000",
    "kafka.listeners": "127.0.0.1:0",
}

Load = Callable[[float], Awaitable[int]]
"""Heartbeats for so many seconds; how many."""


def measure_metrics_cost(name: str, home: str) -> Iterator[BenchRow]:
    plain = run_node(str(Path(home) / "plain"), COMPARED_SETTINGS)
    counting = run_node(str(Path(home) / "counting"), COMPARED_SETTINGS | {"http.listeners": "127.0.0.1:0"})
    with pinned(LOAD_CORE), plain as off, counting as on:
        for door, made in (("gRPC", make_grpc_load), ("Kafka's door", make_kafka_load)):
            costs = asyncio.run(interleave_servers((off, on), made))
            yield comparison_row(f"{name}: a heartbeat by {door}", costs)


def comparison_row(
    case: str, costs: tuple[list[float], list[float]], against: str = "without", goal: float = METRICS_GOAL
) -> BenchRow:
    """The ratio is the median over the rounds: each had the machine as it was just then for both."""
    off, on = costs
    ratio = statistics.median(one / other for one, other in zip(off, on, strict=True))
    value, peer = statistics.median(on), statistics.median(off)
    return BenchRow(
        BENCH, case, round(value, 3), "us CPU/RPC", against, round(peer, 3), round(ratio, 4), goal, ratio >= goal
    )


async def interleave_servers(
    servers: Sequence[ServerProcess], made: Callable[[ServerProcess], Awaitable[Load]]
) -> tuple[list[float], list[float]]:
    """Microseconds of processor time per call, of both, round by round; who begins changes each round."""
    loads = [await made(each) for each in servers]
    costs: tuple[list[float], list[float]] = ([], [])
    for number in range(-1, COMPARED_ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            before = servers[which].cpu_ns()
            calls = await loads[which](COMPARED_ROUND_S if number >= 0 else COMPARED_WARM_UP_S)
            if number >= 0:
                costs[which].append((servers[which].cpu_ns() - before) / calls / 1e3)
    return costs


async def make_grpc_load(server: ServerProcess) -> Load:
    members = (await heartbeat.join_target(server)).members[:COMPARED_MEMBERS]

    async def load(seconds: float) -> int:
        watch = Stopwatch()
        return sum(await asyncio.gather(*(heartbeat.send_heartbeats(member, watch, seconds) for member in members)))

    return load


async def make_kafka_load(server: ServerProcess) -> Load:
    members = await join_together(kafka_address(server), [f"kafka-{number}" for number in range(COMPARED_MEMBERS)])

    async def load(seconds: float) -> int:
        watch = Stopwatch()
        return sum(await asyncio.gather(*(send_steady_heartbeats(member, watch, seconds) for member in members)))

    return load


async def send_steady_heartbeats(
    member: KafkaMember, watch: Stopwatch, seconds: float, said: Callable[[KafkaMember], bytes] = KafkaMember.beat
) -> int:
    """Heartbeats one after the other until the time is over; the next one leaves as soon as one is answered."""
    request, done = said(member), 0
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(frame: Frame) -> None:
        nonlocal done
        done += 1
        if watch.read() < seconds:
            member.line.send(request, answered)
        else:
            over.set_result(None)

    member.line.send(request, answered)
    await over
    return done
