"""What being watched costs a real Kafka broker: its processor time with some hundred groups, watched and not, in turns.

Each group has one member that sends a heartbeat every 3 s and commits six positions every 5 s, as clients do by
default.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from statistics import mean

from muster.coordinator.kafka.codec.codec import struct
from muster.storage.records.batch import encode_batch
from muster.workshop.bench.kafka_load import KafkaMember, LoadConnection
from muster.workshop.bench.kafka_peer import LOOK_AGAIN_S, KafkaBroker, classpath, fill_broker, running_broker
from muster.workshop.bench.processes import BenchFailed, run_server
from muster.workshop.bench.report import BenchRow, at_most

GROUPS, CONNECTIONS, POSITIONS = 500, 20, 6
HEARTBEAT_S, COMMIT_S = 3.0, 5.0
WARM_S, WINDOW_S, TURNS = 60.0, 60.0, 4
SETTLE_S = 45.0
"""Until a node that has just begun to watch has read all there is, and looks as seldom as it does in calm."""
WANTED = 1.02
FIND, TRIES = 3, 100
TOPIC = "orders"


def measure_broker(name: str, home: str, place: str, bench: str) -> Iterator[BenchRow]:
    """place: of Kafka's jars; empty: Maven has them. Raises JarsUnavailable and BenchFailed."""
    with running_broker(home, classpath(place) if place else "", delay_ms=0) as broker:
        batch = encode_batch([(time.time_ns() // 1_000_000, None, b"x", ())])
        fill_broker(broker, TOPIC, POSITIONS, [batch])
        alone, watched = asyncio.run(take_turns(broker))
    what = f"{name}, {GROUPS} groups: a Kafka broker that is watched"
    yield at_most(WANTED, what, watched * 1e3, "ms CPU/s", "not watched", alone * 1e3, bench=bench)


async def take_turns(broker: KafkaBroker) -> tuple[float, float]:
    """Seconds of the broker's processor time in a second: not watched, and watched; the mean of several turns,
    whose order has what drifts, as a JVM that still compiles, cost both the same."""
    async with run_groups(broker):
        await asyncio.sleep(WARM_S)
        with watching_process(broker):  # what it asks has to be compiled, too
            await asyncio.sleep(WARM_S)
        used: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(2 * TURNS):
            watching = turn % 4 in (1, 2)  # not, is, is, not
            with watching_process(broker) if watching else contextlib.nullcontext():
                await asyncio.sleep(SETTLE_S)
                began_s, began_cpu_s = time.perf_counter(), broker.cpu_s()
                await asyncio.sleep(WINDOW_S)
                used[watching].append((broker.cpu_s() - began_cpu_s) / (time.perf_counter() - began_s))
        return mean(used[False]), mean(used[True])


@contextlib.contextmanager
def watching_process(broker: KafkaBroker) -> Iterator[None]:
    settings = {"watch.enable": "true", "engine": f"kafka://{broker.address}", "http.listeners": ""}
    pairs = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with run_server(["-m", "muster.cli", "serve", "--announce", "--until-eof", "--listen", "127.0.0.1:0", *pairs]):
        yield


@contextlib.asynccontextmanager
async def run_groups(broker: KafkaBroker) -> AsyncIterator[None]:
    lines = [await LoadConnection.to(broker.address) for _ in range(CONNECTIONS)]
    members = [KafkaMember(lines[number % CONNECTIONS], f"payments-{number}") for number in range(GROUPS)]

    async def join(line: LoadConnection) -> None:
        for member in members:
            if member.line is line:
                await join_when_coordinated(member)

    await asyncio.gather(*map(join, lines))
    living = [
        asyncio.create_task(repeat(every_s, member, request))
        for member in members
        for every_s, request in ((HEARTBEAT_S, KafkaMember.beat), (COMMIT_S, commit))
    ]
    try:
        yield
    finally:
        for task in living:
            task.cancel()
        await asyncio.gather(*living, return_exceptions=True)
        for line in lines:
            line.close()


async def join_when_coordinated(member: KafkaMember) -> None:
    """The first question makes the topic of groups, whose partitions are then loaded. Raises BenchFailed."""
    for tries_left in reversed(range(TRIES)):
        request = struct("FindCoordinatorRequest")(key=member.group_id, key_type=0)
        await member.line.send_request("FindCoordinator", FIND, request)
        try:
            await member.join()
        except BenchFailed:
            if not tries_left:
                raise
            await asyncio.sleep(LOOK_AGAIN_S)
        else:
            return


def commit(member: KafkaMember) -> bytes:
    return member.commit(TOPIC, POSITIONS)


async def repeat(every_s: float, member: KafkaMember, request: Callable[[KafkaMember], bytes]) -> None:
    """Spread over the time as members are that were started one by one."""
    await asyncio.sleep(every_s * (hash(member.group_id) % 1_000) / 1_000)
    while True:
        member.line.send(request(member), lambda frame: None)
        await asyncio.sleep(every_s)
