"""The cases of `muster bench transactions`: what a transaction costs beside the same without one, in one run.

Producers are those of our client, or speak Kafka's protocol, level 2 and one request in flight. They take turns: a
round of transactions, then one of the same records without them.
"""

import asyncio
import contextlib
import logging
import os
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import structlog

from muster.client import Consumer
from muster.coordinator.config import Settings
from muster.coordinator.java_runtime import find_java
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.runtime.node_status import Conditions
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.replay import LoadReport
from muster.coordinator.runtime.transaction_records import TRANSACTIONS_TOPIC, decode_transaction
from muster.coordinator.runtime.transaction_shards import BrokerTransactionLog, replay_transactions
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.transactions.transaction_coordinator import TransactionCoordinator
from muster.coordinator.transactions.events import TransactionsLoaded
from muster.coordinator.transactions.shard import TransactionShard
from muster.coordinator.transactions.state import TransactionLimits
from muster.storage.broker.broker import Broker
from muster.storage.broker.requests import LogRequests
from muster.storage.config import LogSettings
from muster.storage.records.batch import decode_records, encode_batch
from muster.workshop.bench.kafka_load import KafkaMember, LoadConnection, join_together, kafka_address
from muster.workshop.bench.kafka_peer import KAFKA, JarsUnavailable, classpath, find_jars, running_broker
from muster.workshop.bench.processes import LOAD_CORE, BenchFailed, ServerProcess, pinned, run_node
from muster.workshop.bench.report import BenchRow, MeasureCase, at_least, at_most, measure_cases
from muster.workshop.bench.transaction_load import (
    TOPIC,
    ClientProducer,
    WireProducer,
    create_topic,
    write_decided,
    write_ids,
    write_known_producers,
    write_transactions,
)

BENCH: Final = "transactions"
SETTINGS: Final = {"kafka.listeners": "127.0.0.1:0", "group.initial.rebalance.delay.ms": "0"}
PARTITIONS: Final = 2

ONE: Final = {0: 1}
HUNDRED: Final = {0: 50, 1: 50}

ROUNDS, EACH = 9, 40
"""Rounds of a pair, and how often each is done in one; the median of all counts."""
PRODUCERS, TOGETHER_S = 32, 4.0
EMPTY_IDS, EMPTY_ROUNDS, EMPTY_EACH = 64, 5, 8
KNOWN, LOG_RECORDS, FETCH_BYTES, FETCH_S, FETCH_ROUNDS = (0, 1, 10_000), 100_000, 1 << 20, 0.7, 9
TRANSACTIONS, TRANSACTION_RECORDS, READ_ROUNDS = 2_000, 25, 5
IDS, ID_RECORDS, ID_SHARDS = 100_000, 1_000_000, 50
DECIDED, DECIDED_ROUNDS = 100, 5
JAVA_ROUNDS, JAVA_S = 300, 300
PATIENCE_S: Final = 60.0

GOALS: Final[Mapping[str, float]] = {
    "one": 4.0,
    "hundred": 3.0,
    "together": 10.0,
    "empty": 2.0,
    "fetch": 0.97,
    "aborted": 0.45,
    "loading": 0.2,
    "decided": 5.0,
    "java": 1.0,
}
"""Least ratios of rates, most ratios of costs."""


def run(only: str = "", place: str = "") -> Iterator[BenchRow]:
    """place: of Kafka's jars, for the case beside a real broker; empty: Maven has them, or it is skipped."""
    cases: dict[str, MeasureCase] = {
        "one record, our client": partial(measure_pair, records=ONE, goal=GOALS["one"], ours=True),
        "100 records to 2 partitions, our client": partial(
            measure_pair, records=HUNDRED, goal=GOALS["hundred"], ours=True
        ),
        "one record, Kafka's protocol": partial(measure_pair, records=ONE, goal=GOALS["one"]),
        "100 records to 2 partitions, Kafka's protocol": partial(measure_pair, records=HUNDRED, goal=GOALS["hundred"]),
        "Kafka's Java producer": partial(measure_java, place=place),
        "empty-handed": measure_empty_handed,
        "producers together, our client": partial(measure_together, ours=True),
        "producers together, Kafka's protocol": measure_together,
        "fetch": measure_fetches,
        "aborted": measure_aborted,
        "loading": measure_loading,
        "decided before a kill": measure_recovery,
    }
    return measure_cases(cases, only)


# Beside the same without a transaction
# -------------------------------------


AnyProducer: TypeAlias = WireProducer | ClientProducer


@contextlib.asynccontextmanager
async def connected(node: ServerProcess, connections: int) -> AsyncIterator[list[LoadConnection]]:
    lines = [await LoadConnection.to(kafka_address(node)) for _ in range(connections)]
    try:
        await create_topic(lines[0], PARTITIONS)
        yield lines
    finally:
        for line in lines:
            line.close()


@contextlib.asynccontextmanager
async def living(node: ServerProcess, names: Sequence[str | None], ours: bool) -> AsyncIterator[Sequence[AnyProducer]]:
    """Producers that have their ids: of our client, or by Kafka's protocol, each on a connection of its own."""
    async with connected(node, len(names)) as lines, contextlib.AsyncExitStack() as stack:
        made: list[AnyProducer] = []
        for line, name in zip(lines, names, strict=True):
            if ours:
                client = ClientProducer(node.address, name)
                stack.push_async_callback(client.close)
                made.append(client)
            else:
                made.append(WireProducer(line, name))
        await asyncio.gather(*(each.begin_life() for each in made))
        yield made


def measure_pair(
    name: str, home: str, records: Mapping[int, int], goal: float, ours: bool = False
) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, SETTINGS) as node:
        transacted, plain = asyncio.run(time_pair(node, records, ours))
    yield at_most(goal, f"{name}: begin, send, commit", transacted, "ms", "sent and flushed", plain, bench=BENCH)


async def time_pair(node: ServerProcess, records: Mapping[int, int], ours: bool) -> tuple[float, float]:
    """Milliseconds of a transaction, and of the same records without one: medians."""
    async with living(node, ("bench", None), ours) as (transactional, plain):

        async def transact() -> None:
            await transactional.send(records)
            await transactional.commit()

        times: dict[bool, list[float]] = {True: [], False: []}
        for number in range(2 * ROUNDS):
            which = number % 4 in (0, 3)
            times[which] += await time_each(transact if which else partial(plain.send, records))
    return statistics.median(times[True]), statistics.median(times[False])


async def time_each(act: Callable[[], Awaitable[None]]) -> list[float]:
    """Milliseconds of each of a round."""
    taken = []
    for _ in range(EACH):
        began_s = time.perf_counter()
        await act()
        taken.append((time.perf_counter() - began_s) * 1e3)
    return taken


def measure_together(name: str, home: str, ours: bool = False) -> Iterator[BenchRow]:
    """Transactions a second of many producers at once, which share flushes, beside one alone."""
    with pinned(LOAD_CORE), run_node(home, SETTINGS) as node:
        many, one = asyncio.run(count_together(node, ours))
    what = f"{name}, {PRODUCERS} at once"
    yield at_least(GOALS["together"], what, many, "transactions/s", "one alone", one, bench=BENCH)


async def count_together(node: ServerProcess, ours: bool) -> tuple[float, float]:
    async with living(node, [f"bench-{number}" for number in range(PRODUCERS)], ours) as producers:
        await transactions_per_s(producers, TOGETHER_S / 4)
        one = await transactions_per_s(producers[:1], TOGETHER_S)
        return await transactions_per_s(producers, TOGETHER_S), one


async def transactions_per_s(producers: Sequence[AnyProducer], seconds: float) -> float:
    began_s = time.perf_counter()

    async def go_on(producer: AnyProducer) -> int:
        done = 0
        while time.perf_counter() - began_s < seconds:
            await producer.send(ONE)
            await producer.commit()
            done += 1
        return done

    done = await asyncio.gather(*map(go_on, producers))
    return sum(done) / (time.perf_counter() - began_s)


# The node's processor time
# -------------------------


def measure_empty_handed(name: str, home: str) -> Iterator[BenchRow]:
    """A partition is added, the commit is decided, its marker written, and the transaction complete."""
    with pinned(LOAD_CORE), run_node(home, SETTINGS) as node:
        transaction, commits = asyncio.run(cost_empty_handed(node))
    yield at_most(GOALS["empty"], name, transaction, "us CPU", "four OffsetCommits", commits, bench=BENCH)


async def cost_empty_handed(node: ServerProcess) -> tuple[float, float]:
    """Microseconds of the node's processor time: a transaction, and four commits of one position each."""
    async with connected(node, EMPTY_IDS) as lines:
        producers = [WireProducer(line, f"bench-{number}") for number, line in enumerate(lines)]
        await asyncio.gather(*(each.begin_life() for each in producers))
        members = await join_together(kafka_address(node), [f"bench-{number}" for number in range(EMPTY_IDS)])

        async def transact() -> None:
            await asyncio.gather(*(each.pass_empty_handed() for each in producers))

        async def commit() -> None:
            await asyncio.gather(*(commit_once(each) for each in members))

        costs: dict[bool, list[float]] = {True: [], False: []}
        for number in range(2 * EMPTY_ROUNDS + 2):
            which = number % 2 == 0
            before = node.cpu_ns()
            for _ in range(EMPTY_EACH * (1 if which else 4)):
                await (transact if which else commit)()
            if number >= 2:  # the first of each warms up
                costs[which].append((node.cpu_ns() - before) / EMPTY_EACH / EMPTY_IDS / 1e3)
    return statistics.median(costs[True]), statistics.median(costs[False])


async def commit_once(member: KafkaMember) -> None:
    await member.committed(TOPIC, 1)


# Reading
# -------

FETCH: Final = 12


def measure_fetches(name: str, home: str) -> Iterator[BenchRow]:
    """Of the same log with nothing aborted in it: what is committed, beside everything."""
    for known in KNOWN:
        place = str(Path(home) / str(known))
        broker = Broker(place, LogSettings.from_properties({}))
        write_known_producers(broker, known, LOG_RECORDS, time.time_ns() // 1_000_000)
        broker.close()
        with pinned(LOAD_CORE), run_node(place, SETTINGS) as node:
            committed, everything = asyncio.run(fetches_per_s(node))
        what = f"{name} of committed records, {known:,} producers known"
        yield at_least(GOALS["fetch"], what, committed, "fetches/s CPU", "of all records", everything, bench=BENCH)


async def fetches_per_s(node: ServerProcess) -> tuple[float, float]:
    """Fetches in a second of the node's processor time, by isolation level; the median round of each."""
    line = await LoadConnection.to(kafka_address(node))
    rates: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * FETCH_ROUNDS + 2):
        committed = number % 4 in (0, 3)
        began_s, before = time.perf_counter(), node.cpu_ns()

        def go_on(began_s: float = began_s) -> bool:
            return time.perf_counter() - began_s < FETCH_S

        done = await line.repeat(fetch_request(line, committed), 1, go_on)
        if number >= 2:
            rates[committed].append(done / ((node.cpu_ns() - before) / 1e9))
    line.close()
    return statistics.median(rates[True]), statistics.median(rates[False])


def fetch_request(line: LoadConnection, committed: bool) -> bytes:
    part = struct("FetchRequest.topics.partitions")(partition=0, fetch_offset=0, partition_max_bytes=FETCH_BYTES)
    topic = struct("FetchRequest.topics")(topic=TOPIC, partitions=[part])
    asked = struct("FetchRequest")(isolation_level=int(committed), max_bytes=FETCH_BYTES, min_bytes=1, topics=[topic])
    return line.request("Fetch", FETCH, asked)


def measure_aborted(name: str, home: str) -> Iterator[BenchRow]:
    """Our own consumer of committed records: a log of which half is aborted, beside one of which nothing is, with as
    many committed records in each."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(pinned(LOAD_CORE))
        nodes = []
        for aborted in (1, 0):
            place = str(Path(home) / str(aborted))
            broker = Broker(place, LogSettings.from_properties({}))
            now_ms = time.time_ns() // 1_000_000
            write_transactions(broker, TRANSACTIONS * (1 + aborted), TRANSACTION_RECORDS, aborted, now_ms)
            broker.close()
            nodes.append(stack.enter_context(run_node(place, SETTINGS)))
        rates: list[list[float]] = [[], []]
        for number in range(2 * READ_ROUNDS):
            which = (0, 1, 1, 0)[number % 4]
            rates[which].append(read_committed(nodes[which]))
    half, none = map(statistics.median, rates)
    what = f"{name}, every second transaction, our consumer"
    yield at_least(GOALS["aborted"], what, half, "records/s CPU", "nothing aborted", none, bench=BENCH)


def read_committed(node: ServerProcess) -> float:
    """Records delivered in a second of this process's time."""
    settings = {
        "bootstrap.servers": node.address,
        "group.id": f"bench-{time.time_ns()}",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    wanted, found = TRANSACTIONS * TRANSACTION_RECORDS, 0
    with Consumer(settings) as consumer:
        consumer.subscribe(TOPIC)
        found += len(consumer.consume(1, timeout=PATIENCE_S))  # joined, and all is warm
        began_s = time.process_time()
        while found < wanted:
            read = len(consumer.consume(min(500, wanted - found), timeout=PATIENCE_S))
            if not read:
                raise BenchFailed(f"{found} of {wanted} committed records were read in {PATIENCE_S:.0f} s")
            found += read
        return found / (time.process_time() - began_s)


# What a start takes
# ------------------


def measure_loading(name: str, home: str) -> Iterator[BenchRow]:
    broker = Broker(home, LogSettings.from_properties({}))
    try:
        write_ids(broker, IDS, ID_RECORDS, ID_SHARDS, time.time_ns() // 1_000_000)
        read_s, loaded_s = read_all(broker), load_all(broker)
    finally:
        broker.close()
    ours, theirs = ID_RECORDS / loaded_s, ID_RECORDS / read_s
    what = f"{name}, {ID_RECORDS:,} records of {IDS:,} transactional ids"
    yield at_least(GOALS["loading"], what, ours, "records/s CPU", "reading and decoding them", theirs, bench=BENCH)


def read_all(broker: Broker) -> float:
    """Processor seconds to read and decode every record."""
    began_s, found = time.process_time(), 0
    for shard in range(ID_SHARDS):
        for segment in broker.log(TRANSACTIONS_TOPIC, shard).segments:
            for record in decode_records(Path(segment.path()).read_bytes()):
                assert record.key is not None
                decode_transaction(KeyValue(record.key, record.value))
                found += 1
    assert found == ID_RECORDS, f"{found} records were read back; {ID_RECORDS} were written"
    return time.process_time() - began_s


def load_all(broker: Broker) -> float:
    """Processor seconds until every shard serves."""
    log, began_s, known = BrokerTransactionLog(broker), time.process_time(), 0
    for number in range(ID_SHARDS):
        shard: Any = TransactionShard(TransactionLimits(), number)
        replay_transactions(log, number, shard, LoadReport(), lambda: False)
        shard.step(TransactionsLoaded(1, orphans_follow=True), 0)
        known += len(shard.state.ids)
    assert known == min(IDS, ID_RECORDS), f"{known} ids were loaded"
    return time.process_time() - began_s


def measure_recovery(name: str, home: str) -> Iterator[BenchRow]:
    """From the beginning of the load until everything is readable, beside one flush of as many logs."""
    taken, flushes = [], []
    for number in range(DECIDED_ROUNDS):
        broker = Broker(str(Path(home) / str(number)), LogSettings.from_properties({}))
        try:
            write_decided(broker, DECIDED, time.time_ns() // 1_000_000)
            taken.append(asyncio.run(recover(broker)))
            flushes.append(flush_once(broker))
        finally:
            broker.close()
    what = f"{name}, {DECIDED} partitions: until all is readable"
    ours, theirs = statistics.median(taken) * 1e3, statistics.median(flushes) * 1e3
    yield at_most(GOALS["decided"], what, ours, "ms", "one flush of these logs", theirs, bench=BENCH)


async def recover(broker: Broker) -> float:
    """Seconds."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    requests, clock = LogRequests.standalone(broker), NodeClock()
    groups: Any = None  # no group takes part
    settings = Settings(transaction_state_log_num_partitions=1)
    ours = TransactionCoordinator(settings, broker, lambda: requests, groups, clock, lambda: 0, raise_fatal)
    began_s = time.perf_counter()
    try:
        await ours.open(Conditions(clock.now_ms))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if all(is_stable(broker, number) for number in range(DECIDED)):
                    return time.perf_counter() - began_s
                await asyncio.sleep(0.001)
    finally:
        await ours.close(PATIENCE_S)
        await requests.close()


def is_stable(broker: Broker, partition: int) -> bool:
    log = broker.log(TOPIC, partition)
    return log.last_stable_offset == log.high_watermark == log.end_offset


def flush_once(broker: Broker) -> float:
    """Seconds to flush all of the logs, each of which has one record more."""
    now_ms = time.time_ns() // 1_000_000
    for number in range(DECIDED):
        broker.append(TOPIC, number, encode_batch([(now_ms, None, b"x", ())]), now_ms)
    began_s = time.perf_counter()
    broker.flush()
    return time.perf_counter() - began_s


def raise_fatal(error: BaseException) -> None:
    raise BenchFailed(f"the coordinator of transactions cannot go on: {error}") from error


# Kafka's own producer
# --------------------


def measure_java(name: str, home: str, place: str) -> Iterator[BenchRow]:
    """The same program at a node and at a broker of Kafka, in turns; each times a transaction and a plain send."""
    try:
        jars = classpath(place) if place else ""
        with running_broker(home, jars, delay_ms=0) as broker, run_node(str(Path(home) / "node"), SETTINGS) as node:
            sides = [kafka_address(node), broker.address]
            found = [[run_java(jars, sides[which]) for which in order] for order in ((0, 1), (1, 0))]
    except JarsUnavailable as missing:
        yield BenchRow(BENCH, f"{name}: skipped, {missing}", 0.0, "", "Kafka", 0.0, 0.0, 0.0, True)
        return
    ours, theirs = [found[0][0], found[1][1]], [found[0][1], found[1][0]]
    for records in (1, 100):
        value, peer = (statistics.median(each[records] for each in side) for side in (ours, theirs))
        what = f"{name}, {records} {'record' if records == 1 else 'records'}: transaction over plain send"
        yield at_most(GOALS["java"], what, value, "times", "at a Kafka broker", peer, bench=BENCH)


def run_java(jars: str, address: str) -> dict[int, float]:
    """Records -> how many times as long a transaction takes as a plain send. Raises BenchFailed."""
    source = Path(__file__).with_name("TransactionRounds.java")
    command = [java_program(), "-Xmx256m", "-cp", jars or java_classpath(), str(source), address, TOPIC]
    done = subprocess.run([*command, str(JAVA_ROUNDS)], capture_output=True, text=True, timeout=JAVA_S, check=False)
    if done.returncode:
        raise BenchFailed(f"Kafka's producer failed at {address}: {done.stderr.strip().splitlines()[-1:]}")
    return {int(line.split()[0]): float(line.split()[1]) for line in done.stdout.splitlines() if line[:1].isdigit()}


def java_program() -> str:
    return str(find_java().executable)


def java_classpath() -> str:
    return os.pathsep.join(map(str, find_jars(KAFKA)))
