"""Messages of 1 KB in batches of 16 KB through one confluent-kafka client, into a node and into the mock cluster.

The node writes to disk and flushes before it answers; the mock keeps the last few megabytes of each partition in
memory, so that a round must fit into those.
"""

import os
import statistics
import time
from collections.abc import Iterator

from muster.workshop.bench.processes import LOAD_CORE, BenchFailed, ServerProcess, pinned, run_server
from muster.workshop.bench.rows import BenchRow

ROUNDS = 8
TOPICS, PARTITIONS = 4, 4
PER_PARTITION = 4_000
MESSAGE_BYTES, BATCH_BYTES = 1 << 10, 16 << 10
GOAL = 0.7
PATIENCE_S = 60.0

PEER = "librdkafka's mock cluster"


def measure_messages(name: str, home: str) -> Iterator[BenchRow]:
    """Both servers take turns, and who begins changes; both are on one core, and the client on the other."""
    node = ["-m", "muster.cli", "serve", "--announce", "--until-eof", "--data", f"{home}/data"]
    node += ["--listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0", "--http", ""]
    node += ["--set", f"num.partitions={PARTITIONS}"]
    ours: dict[str, list[float]] = {"produce": [], "fetch": []}
    theirs: dict[str, list[float]] = {"produce": [], "fetch": []}
    with (
        run_server(node) as muster,
        run_server(["-m", "muster.workshop.bench.mock_cluster"]) as mock,
        pinned(LOAD_CORE),
    ):
        for turn in range(ROUNDS):
            both = ((theirs, mock.address), (ours, kafka_address(muster)))
            for rates, address in both if turn % 2 else reversed(both):
                places = [(f"records-{turn}-{topic}", p) for topic in range(TOPICS) for p in range(PARTITIONS)]
                rates["produce"].append(produce_messages(address, places))
                rates["fetch"].append(fetch_messages(address, places))
    for what in ours:
        yield message_row(f"{name}: {what} 1 KB messages", ours[what], theirs[what])


def kafka_address(node: ServerProcess) -> str:
    return f"{node.said['kafka_host']}:{node.said['kafka_port']}"


def message_row(case: str, ours: list[float], theirs: list[float]) -> BenchRow:
    """The ratio is the median over the rounds, each of which had the machine as it was just then for both."""
    ratio = statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
    value, peer_value = round(statistics.median(ours)), round(statistics.median(theirs))
    return BenchRow("wire", case, value, "messages/s", PEER, peer_value, round(ratio, 3), GOAL, ratio >= GOAL)


def produce_messages(address: str, places: list[tuple[str, int]]) -> float:
    """Messages per second, from the first one handed over to the last one acknowledged."""
    from confluent_kafka import Producer

    told = {"batch.size": BATCH_BYTES, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": address, "log_level": 0, **told})
    value = os.urandom(MESSAGE_BYTES)
    for topic, partition in places:  # topics, connections and caches are there when the clock starts
        producer.produce(topic, value, partition=partition)
    producer.flush(PATIENCE_S)
    started = time.perf_counter()
    for topic, partition in places:
        for _ in range(PER_PARTITION):
            producer.produce(topic, value, partition=partition)
        producer.poll(0)
    left = producer.flush(PATIENCE_S)
    if left:
        raise BenchFailed(f"{left} messages were not delivered within {PATIENCE_S:.0f} s by {address}")
    return len(places) * PER_PARTITION / (time.perf_counter() - started)


def fetch_messages(address: str, places: list[tuple[str, int]]) -> float:
    """Messages per second, from the first to the last of what `produce_messages` has sent."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "log_level": 0})
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in places])
    wanted, found, first = len(places) * (PER_PARTITION + 1), 0, 0
    started = time.perf_counter()
    while found < wanted:
        messages = consumer.consume(5_000, 1.0)
        if messages and not first:
            first, started = len(messages), time.perf_counter()
        found += len(messages)
        if time.perf_counter() - started > PATIENCE_S:
            raise BenchFailed(f"{found} of {wanted} messages came within {PATIENCE_S:.0f} s from {address}")
    took = time.perf_counter() - started
    consumer.close()
    return (wanted - first) / took
