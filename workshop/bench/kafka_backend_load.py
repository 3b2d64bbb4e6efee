"""A node over a Kafka and load through it: the node in this process or as another one, its proxy, and transactions.

In this process the node is called without a listener, which measures the backend and nothing else. KB-P5 and KB-P6
measure records that pass a node on their way from Kafka and to it, against the broker's own port: load, node and
broker share the machine's cores, rounds alternate, and the median counts. One client only moves bytes, the same
request again and again on a blocking socket, so that a node in its way is seen as large as it can be; the other one
is librdkafka's. Transactions with positions of a group run through a node, against the same where Kafka coordinates
the group: one producer, one transaction after the other (a record, the position, the commit).
"""

import asyncio
import contextlib
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from muster.coordinator.config import load_settings
from muster.coordinator.core.model.effects import OffsetCommitReply
from muster.coordinator.core.model.events import OffsetCommit
from muster.coordinator.core.model.types import CommittedOffset
from muster.coordinator.kafka.codec.codec import decode_frame, encode, struct
from muster.coordinator.kafka.connections.received_requests import HEAD, LENGTH_BYTES
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.server.node.node import CoordinatorNode
from muster.coordinator.server.node_log import configure_logs
from muster.storage.records.batch import encode_turn
from muster.workshop.bench.kafka_load import KEYS
from muster.workshop.bench.kafka_peer import KafkaBroker, fill_broker, free_ports
from muster.workshop.bench.processes import STOP_S, BenchFailed, cpu_ns, read_announcement
from muster.workshop.bench.report import BenchRow, at_least, at_most

# A node over a Kafka
# -------------------

BENCH: Final = "engine"
COMMITTED_TOPIC: Final = "orders"
STARTS_S: Final = 60.0
LOOK_AGAIN_S: Final = 0.01
LOG_LEVEL: Final = "error"


def settings_over(address: str, cluster: str, shards: int) -> dict[str, str]:
    return {
        "engine": f"kafka://{address}",
        "engine.kafka.cluster": cluster,
        "engine.kafka.state.replication.factor": "1",
        "offsets.topic.num.partitions": str(shards),
        "listeners": "127.0.0.1:0",
        "http.listeners": "",
        "logging.level": LOG_LEVEL,
    }


def start_node_process(settings: Mapping[str, str], log: Path) -> "subprocess.Popen[bytes]":
    """A node as a process, which announces itself on standard output; what it says otherwise comes behind `log`."""
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with log.open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "muster.cli", "serve", "--announce", *words],
            stdout=subprocess.PIPE,
            stderr=errors,
        )


@asynccontextmanager
async def run_node_over(address: str, cluster: str, shards: int) -> AsyncIterator[CoordinatorNode]:
    """It owns all shards by the time."""
    settings = load_settings(None, settings_over(address, cluster, shards))
    repeats = configure_logs(settings.logging_level, settings.logging_format, node_id=settings.node_id)
    node = CoordinatorNode(settings)
    try:
        async with asyncio.timeout(STARTS_S):
            await node.start()
            await owns_all_shards(node, shards)
    except TimeoutError:
        raise BenchFailed(f"a node over {address} did not own its shards within {STARTS_S:.0f} s") from None
    try:
        yield node
    finally:
        await node.stop()
        repeats.close()


async def owns_all_shards(node: CoordinatorNode, shards: int) -> None:
    while True:
        if all(node.engine.status(shard) is ShardStatus.ACTIVE for shard in range(shards)):
            return
        await asyncio.sleep(LOOK_AGAIN_S)


def group_per_shard(shards: int) -> list[str]:
    """A group for each shard."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < shards:
        group = f"bench-{number}"
        found.setdefault(partition_for(group, shards), group)
        number += 1
    return [found[shard] for shard in range(shards)]


async def commit_position(node: CoordinatorNode, group: str, offset: int) -> None:
    """One position, of a group without members. Raises BenchFailed where it is refused."""
    event = OffsetCommit(
        node.driver.next_id(), group, "", None, -1, {(COMMITTED_TOPIC, 0): CommittedOffset(offset, metadata="")}
    )
    reply = await node.driver.ask_shard(partition_for(group, node.engine.shards), event, OffsetCommitReply)
    codes = {reply.code, *reply.partitions.values()}
    if any(codes):
        raise BenchFailed(f"a commit of {group} was refused: {sorted(code.name for code in codes if code)}")


# Clients that move bytes
# -----------------------

FETCH, PRODUCE = 11, 8
"""The last versions whose headers have no tagged fields."""

PARTITION_BYTES: Final = 1 << 20
"""Of one partition in one answer: what consumers ask for where nobody says otherwise."""

BUFFER_BYTES: Final = 1 << 23
ANSWER_S: Final = 60.0
AT_ONCE: Final = 5_000
"""Records that a consumer is asked for."""

AHEAD: Final = 2
"""Produce requests under way before an answer is waited for."""


def fetch_bytes(address: str, topic: str, partitions: int, wanted: int) -> float:
    """Bytes a second of at least `wanted` bytes, each time from the beginning of all partitions."""
    part, named = struct("FetchRequest.topics.partitions"), struct("FetchRequest.topics")
    parts = [part(partition=each, fetch_offset=0, partition_max_bytes=PARTITION_BYTES) for each in range(partitions)]
    topics = [named(topic=topic, partitions=parts)]
    asked = struct("FetchRequest")(
        replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=BUFFER_BYTES, session_epoch=-1, topics=topics
    )
    request, got = encode_frame("Fetch", FETCH, asked), 0
    with connect_socket(address) as line:
        buffer = memoryview(bytearray(BUFFER_BYTES))
        began = time.perf_counter()
        while got < wanted:
            line.sendall(request)
            size = read_answer(line, buffer)
            if not got and size < PARTITION_BYTES:
                raise BenchFailed(f"a Fetch of {topic!r} at {address} was answered with {size} bytes: no records")
            got += size
        return got / (time.perf_counter() - began)


def produce_bytes(address: str, topic: str, partitions: int, batch: bytes, wanted: int) -> float:
    """Bytes a second of at least `wanted` bytes: a batch for each partition in a request, acks=1."""
    data, named = struct("ProduceRequest.topic_data.partition_data"), struct("ProduceRequest.topic_data")
    told = [named(name=topic, partition_data=[data(index=each, records=batch) for each in range(partitions)])]
    request = encode_frame("Produce", PRODUCE, struct("ProduceRequest")(acks=1, timeout_ms=30_000, topic_data=told))
    sent = ahead = 0
    with connect_socket(address) as line:
        buffer = memoryview(bytearray(1 << 16))
        began = time.perf_counter()
        while sent < wanted or ahead:
            if sent < wanted:
                line.sendall(request)
                sent, ahead = sent + len(request), ahead + 1
            if ahead > AHEAD or sent >= wanted:
                size, ahead = read_answer(line, buffer), ahead - 1
                check_accepted(bytes(buffer[LENGTH_BYTES:size]), address)
        return sent / (time.perf_counter() - began)


def consume_bytes(address: str, topic: str, partitions: int, records: int, size: int) -> float:
    """Bytes a second of so many records of this size, from the beginning, by librdkafka's consumer."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "bulk", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        if not consumer.consume(1, ANSWER_S):
            raise BenchFailed(f"a consumer of {topic!r} at {address} read nothing within {ANSWER_S:.0f} s")
        read, began = 0, time.perf_counter()
        while read < records:
            found = len(consumer.consume(min(AT_ONCE, records - read), ANSWER_S))
            if not found:
                raise BenchFailed(f"a consumer of {topic!r} at {address} read {read} records, and no more")
            read += found
        return read * size / (time.perf_counter() - began)
    finally:
        consumer.close()


def connect_socket(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), ANSWER_S)


def encode_frame(name: str, version: int, message: Any) -> bytes:
    client = b"bulk"
    body = encode(f"{name}Request", version, message)
    head = HEAD.pack(KEYS[name], version, 1) + len(client).to_bytes(2, "big") + client
    return (len(head) + sum(map(len, body))).to_bytes(LENGTH_BYTES, "big") + head + b"".join(body)


def read_answer(line: socket.socket, buffer: memoryview) -> int:
    """Reads one, into the buffer as far as it has room; the bytes behind its length."""
    size = int.from_bytes(line.recv(LENGTH_BYTES, socket.MSG_WAITALL), "big")
    left = size
    while left:
        found = line.recv_into(buffer, min(left, len(buffer)))
        if not found:
            raise BenchFailed("the connection ended within an answer")
        left -= found
    return size


def check_accepted(body: bytes, address: str) -> None:
    """Raises BenchFailed for records that were refused."""
    answers: Sequence[Any] = decode_frame("ProduceResponse", PRODUCE, body).responses
    codes = {each.error_code for topic in answers for each in topic.partition_responses} - {0}
    if codes:
        raise BenchFailed(f"Produce at {address} was refused with the codes {sorted(codes)}")


# Records that pass a node
# ------------------------

PASSED_TOPIC, SINK = "passing", "passed"
PARTITIONS: Final = 4
RECORD_BYTES, RECORDS = 1_024, 900
BATCHES: Final = 60
"""Of each partition that is read: a fifth of a GB altogether."""
READ: Final = PARTITIONS * BATCHES * RECORDS - 1

PASSING_ROUNDS: Final = 5
FETCHED, PRODUCED = 1 << 30, 128 << 20
"""Bytes of one round."""
GB: Final = 1e9
KEPT: Final = {"retention.ms": "-1"}
"""The records bear no time: a broker that looks at their age would have them gone within the run."""

Load = Callable[[str], float]
"""Given an address, bytes a second."""


class PassingRates(NamedTuple):
    """MB a second through the node and at the broker; processor seconds of the node for a GB."""

    ours: float
    direct: float
    cpu_s: float


class ProxyNode(NamedTuple):
    """A node's process, and the port at which it stands for the broker."""

    pid: int
    address: str


def measure_passing(broker: KafkaBroker, home: str) -> Iterator[BenchRow]:
    batch = encode_turn([(b"%d" % number, bytes(RECORD_BYTES), 0) for number in range(RECORDS)], 0)
    for topic, batches in ((PASSED_TOPIC, [batch] * BATCHES), (SINK, [batch])):
        fill_broker(broker, topic, PARTITIONS, batches, KEPT)
    with run_proxy(broker, Path(home)) as proxy:
        size = READ * RECORD_BYTES
        read = alternate_ports(
            broker, proxy, lambda at: consume_bytes(at, PASSED_TOPIC, PARTITIONS, READ, RECORD_BYTES), size
        )
        moved = alternate_ports(broker, proxy, lambda at: fetch_bytes(at, PASSED_TOPIC, PARTITIONS, FETCHED), FETCHED)
        written = alternate_ports(
            broker, proxy, lambda at: produce_bytes(at, SINK, PARTITIONS, batch, PRODUCED), PRODUCED
        )
    yield from passing_rows("P5 fetch of 1 KB records through a node, librdkafka", read, 0.6, 0.9)
    yield from passing_rows("P5 fetch, a client that only moves bytes", moved, 0.6, 0.9)
    yield from passing_rows("P6 produce, a client that only moves bytes", written, 0.7, 1.2)


def passing_rows(case: str, found: PassingRates, rate: float, cpu_s: float) -> Iterator[BenchRow]:
    yield at_least(rate, case, found.ours, "MB/s", "the broker's own port", found.direct, bench=BENCH)
    yield at_most(1.0, f"{case}: the node", found.cpu_s, "s CPU/GB", "the most it may take", cpu_s, bench=BENCH)


def alternate_ports(broker: KafkaBroker, proxy: ProxyNode, load: Load, size: int) -> PassingRates:
    found: dict[str, list[float]] = {proxy.address: [], broker.address: []}
    spent: list[float] = []
    for number in range(PASSING_ROUNDS + 1):  # the first warms up
        order = [*found] if number % 2 else [*reversed(found)]
        for address in order:
            before = cpu_ns(proxy.pid)
            rate = load(address)
            if number:
                found[address].append(rate / 1e6)
                if address == proxy.address:
                    spent.append((cpu_ns(proxy.pid) - before) / 1e9 / (size / GB))
    ours, direct = map(statistics.median, found.values())
    return PassingRates(ours, direct, statistics.median(spent))


@contextlib.contextmanager
def run_proxy(broker: KafkaBroker, home: Path) -> Iterator[ProxyNode]:
    own, of_broker = free_ports(2)
    settings = settings_over(broker.address, "bench-passing", 1) | {
        "kafka.listeners": f"127.0.0.1:{own}",
        "engine.kafka.broker.ports": str(of_broker),
        "engine.kafka.broker.id.first": "1",
    }
    process = start_node_process(settings, home / "node.log")
    try:
        read_announcement(process)
        yield ProxyNode(process.pid, f"127.0.0.1:{of_broker}")
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        finally:
            process.kill()


# Transactions
# ------------

TRANSACTION_TOPIC: Final = "transacted"
TRANSACTION_ROUNDS: Final = 7
EACH: Final = 60
PATIENCE_S: Final = 60.0
BACK_OFF_MS: Final = 1
"""A transaction that comes before the last one's markers are written is tried again: by default after 100 ms, beside
which all else would be nothing."""

Transact = Callable[[int], object]
"""A transaction that commits this position."""


def measure_transactions(broker: KafkaBroker, home: str) -> Iterator[BenchRow]:
    fill_broker(broker, TRANSACTION_TOPIC, 1, [encode_turn([(b"k", b"v", 0)], 0)])
    with run_proxy(broker, Path(home)) as proxy:
        found: dict[str, list[float]] = {proxy.address: [], broker.address: []}
        transact = {address: make_transact(address) for address in found}
        for number in range(TRANSACTION_ROUNDS + 1):  # the first warms up
            for address in [*found] if number % 2 else [*reversed(found)]:
                rate = rate_of(transact[address], number * EACH)
                found[address] += [rate] if number else []
    ours, direct = map(statistics.median, found.values())
    case, peer = "transactions with a group's position, one at a time", "Kafka coordinates the group"
    yield at_least(0.33, case, ours, "transactions/s", peer, direct, bench=BENCH)


def rate_of(transact: Transact, first: int) -> float:
    began = time.perf_counter()
    for position in range(first, first + EACH):
        transact(position)
    return EACH / (time.perf_counter() - began)


def make_transact(address: str) -> Transact:
    """By a producer that is ready."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    name = f"bench-{address.rpartition(':')[2]}"
    told = {"bootstrap.servers": address, "retry.backoff.ms": BACK_OFF_MS, "log_level": 0}
    consumer = Consumer(told | {"group.id": name, "enable.auto.commit": False})
    producer = Producer(told | {"transactional.id": name, "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)

    def transact(position: int) -> None:
        producer.begin_transaction()
        producer.produce(TRANSACTION_TOPIC, b"v")
        at = [TopicPartition(TRANSACTION_TOPIC, 0, position)]
        producer.send_offsets_to_transaction(at, consumer.consumer_group_metadata(), PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)

    return transact
