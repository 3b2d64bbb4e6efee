"""Heartbeats to a node that counts for /metrics, against one that does not, through both doors, round by round."""

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from muster.coordinator.bench import heartbeat
from muster.coordinator.bench.processes import LOAD_CORE, Server, Stopwatch, node, pinned
from muster.coordinator.bench.rows import BENCH, Row
from muster.coordinator.bench.wire.members import WireMember, together
from muster.coordinator.bench.wire.records import kafka_address
from muster.coordinator.kafka.codec.emitting import Frame

MEMBERS = 50
WARM_UP_S = 0.5
ROUND_S = 0.25
ROUNDS = 40
"""Many short ones: what else goes on on the machine meets both alike."""
GOAL: Final = 0.97
"""At most 3 % dearer."""
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "500",
    "group.max.session.timeout.ms": "1800000",
    "kafka.listeners": "127.0.0.1:0",
}

Load = Callable[[float], Awaitable[int]]
"""Heartbeats for so many seconds; how many."""


def measure(name: str, home: str) -> Iterator[Row]:
    plain = node(str(Path(home) / "plain"), SETTINGS)
    counting = node(str(Path(home) / "counting"), SETTINGS | {"http.listeners": "127.0.0.1:0"})
    with pinned(LOAD_CORE), plain as off, counting as on:
        for door, made in (("gRPC", by_grpc), ("Kafka's door", by_kafka)):
            costs = asyncio.run(interleaved((off, on), made))
            yield row(f"{name}: a heartbeat by {door}", costs)


def row(case: str, costs: tuple[list[float], list[float]], against: str = "without", goal: float = GOAL) -> Row:
    """The ratio is the median over the rounds: each had the machine as it was just then for both."""
    off, on = costs
    ratio = statistics.median(one / other for one, other in zip(off, on, strict=True))
    value, peer = statistics.median(on), statistics.median(off)
    return Row(
        BENCH, case, round(value, 3), "us CPU/RPC", against, round(peer, 3), round(ratio, 4), goal, ratio >= goal
    )


async def interleaved(
    servers: Sequence[Server], made: Callable[[Server], Awaitable[Load]]
) -> tuple[list[float], list[float]]:
    """Microseconds of processor time per call, of both, round by round; who begins changes each round."""
    loads = [await made(each) for each in servers]
    costs: tuple[list[float], list[float]] = ([], [])
    for number in range(-1, ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            before = servers[which].cpu_ns()
            calls = await loads[which](ROUND_S if number >= 0 else WARM_UP_S)
            if number >= 0:
                costs[which].append((servers[which].cpu_ns() - before) / calls / 1e3)
    return costs


async def by_grpc(server: Server) -> Load:
    members = (await heartbeat.joined(server)).members[:MEMBERS]

    async def load(seconds: float) -> int:
        watch = Stopwatch()
        return sum(await asyncio.gather(*(heartbeat.beats(member, watch, seconds) for member in members)))

    return load


async def by_kafka(server: Server) -> Load:
    members = await together(kafka_address(server), [f"kafka-{number}" for number in range(MEMBERS)])

    async def load(seconds: float) -> int:
        watch = Stopwatch()
        return sum(await asyncio.gather(*(beats(member, watch, seconds) for member in members)))

    return load


async def beats(
    member: WireMember, watch: Stopwatch, seconds: float, said: Callable[[WireMember], bytes] = WireMember.beat
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
