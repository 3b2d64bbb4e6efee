"""What a transaction with positions of a group costs through a node, beside the same where Kafka coordinates the group.

One producer, librdkafka's, and one transaction after the other: a record, the group's position, the commit. Rounds
alternate, and what counts is the median.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from muster.storage.records.batch import encode_turn
from muster.workshop.bench.broker import KafkaBroker, fill_broker
from muster.workshop.bench.inside import BENCH
from muster.workshop.bench.passing import run_proxy
from muster.workshop.bench.rows import BenchRow, at_least

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
