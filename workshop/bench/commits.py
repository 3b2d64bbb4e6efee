"""KB-P1 to KB-P3: commits through a node over Kafka, beside what it costs to write as much to that Kafka."""

import asyncio
import gc
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

from muster.coordinator.core.model.core_records import OffsetStored
from muster.coordinator.core.model.types import StoredOffset
from muster.coordinator.runtime.codec_init import encode
from muster.coordinator.server.node.app import CoordinatorNode
from muster.coordinator.server.node.main import loop_factory
from muster.storage.records.batch import encode_turn
from muster.workshop.bench.broker import KafkaBroker, fill_broker, produce_batch
from muster.workshop.bench.inside import BENCH, commit_position, group_per_shard, run_node_over
from muster.workshop.bench.line import LoadConnection
from muster.workshop.bench.processes import BenchFailed
from muster.workshop.bench.rows import BenchRow, at_least, at_most
from muster.workshop.bench.scrape import collect_garbage_like_node

COMMIT_ROUNDS, EACH = 9, 60
COMMIT_SHARDS, AT_ONCE = 50, 20
CALLERS, CALLS = 32, 60
TRANSACTION = 20
WARM_UP = 200
BARE = "bare"


def measure_commits(broker: KafkaBroker) -> Iterator[BenchRow]:
    fill_broker(broker, BARE, 1, [encode_commit(0)])
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        one, bare, many, in_turn, rate = runner.run(measure_commit_rates(broker.address))
    peer = "acks=all Produce of the same bytes, bare"
    yield at_most(1.5, "P1 a commit, one shard, median", one, "ms", peer, bare, bench=BENCH)
    case, peer = f"P2 {COMMIT_SHARDS} shards, {AT_ONCE} commits each, at once", f"{COMMIT_SHARDS} bare batches in turn"
    yield at_most(0.1, case, many, "ms", peer, in_turn, bench=BENCH)
    case, peer = f"P3 commits, {CALLERS} callers", f"confluent-kafka, a transaction for each {TRANSACTION}"
    yield at_least(4.0, case, rate, "commits/s", peer, measure_transaction_rate(broker.address), bench=BENCH)


def encode_commit(number: int) -> bytes:
    """The batch that keeps a commit of one position."""
    stored = OffsetStored("bench-0", "orders", 0, StoredOffset(number, -1, "", 0))
    return encode_turn(encode([stored]).groups, 0)


async def measure_commit_rates(address: str) -> tuple[float, float, float, float, float]:
    """ms of one commit and of one bare batch, of many commits at once and of as many batches as there are shards in
    turn, commits a second; the first four side by side, the medians of rounds."""
    groups = group_per_shard(COMMIT_SHARDS)
    async with run_node_in_process(address) as node:
        line = await LoadConnection.to(address)
        count = iter(range(1 << 40))

        async def ours() -> None:
            await commit_position(node, groups[0], next(count))

        async def theirs() -> None:
            if code := await produce_batch(line, BARE, 0, encode_commit(next(count)), acks=-1):
                raise BenchFailed(f"the broker refused a batch with error {code}")

        async def at_once() -> None:
            number = next(count)
            await asyncio.gather(*(commit_position(node, group, number) for group in groups for _ in range(AT_ONCE)))

        for _ in range(WARM_UP):
            await ours()
            await theirs()
        await at_once()
        found: tuple[list[float], ...] = ([], [], [], [])
        for _ in range(COMMIT_ROUNDS):
            found[0].append(await median_ms(ours, EACH))
            found[1].append(await median_ms(theirs, EACH))
            found[2].append(await median_ms(at_once, 3))
            found[3].append(await taken_ms(theirs, COMMIT_SHARDS))
        one, bare, many, in_turn = map(statistics.median, found)
        line.close()
        return one, bare, many, in_turn, await commits_a_second(ours)


@asynccontextmanager
async def run_node_in_process(address: str) -> AsyncIterator[CoordinatorNode]:
    """A node that has started, on the loop that it has in a process of its own, and with its collector of garbage: at
    the pace of Python's a third of what is measured would be looks through what the start made."""
    before = gc.get_threshold()
    async with run_node_over(address, "bench-commits", COMMIT_SHARDS) as node:
        collect_garbage_like_node()
        try:
            yield node
        finally:
            gc.unfreeze()
            gc.set_threshold(*before)


async def median_ms(work: Callable[[], Awaitable[None]], times: int) -> float:
    return statistics.median([await taken_ms(work, 1) for _ in range(times)])


async def taken_ms(work: Callable[[], Awaitable[None]], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        await work()
    return (time.perf_counter() - began) * 1e3


async def commits_a_second(ours: Callable[[], Awaitable[None]]) -> float:
    async def caller() -> None:
        for _ in range(CALLS):
            await ours()

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return CALLERS * CALLS / (time.perf_counter() - began)


def measure_transaction_rate(address: str) -> float:
    """Commits a second of a producer that is fenced as libraries offer it: so many in a transaction."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "transactional.id": "bench-theirs", "linger.ms": 0})
    producer.init_transactions(60)
    value = encode_commit(0)

    def one() -> None:
        producer.begin_transaction()
        for number in range(TRANSACTION):
            producer.produce(BARE, value, str(number))
        producer.commit_transaction(60)

    for _ in range(5):
        one()
    began, times = time.perf_counter(), CALLERS * CALLS // TRANSACTION
    for _ in range(times):
        one()
    return times * TRANSACTION / (time.perf_counter() - began)
