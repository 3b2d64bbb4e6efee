"""A node killed again and again under an idempotent producer of librdkafka: nothing lost, doubled or out of order.

`python -m tests.torture.kafka_kill --rounds 100`, or a part of `make torture`.
"""

import argparse
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.node import NodeProcess
from tests.support.pace import Patience

PARTITIONS, KEYS = 4, 97
BURST = 50
PATIENCE_S = 120.0
SETTINGS = {"kafka.listeners": "127.0.0.1:0", "num.partitions": str(PARTITIONS), "log.segment.bytes": "200000"}

Place = tuple[int, int]


class Sent:
    """What was handed over, and what was said of it."""

    def __init__(self) -> None:
        self.count = 0
        self.acked: dict[int, Place] = {}
        self.failed: list[str] = []

    def note(self, number: int) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            if error:
                self.failed.append(f"{number}: {error}")
            else:
                self.acked[number] = (message.partition(), message.offset())

        return delivered

    def burst(self, producer: Producer) -> None:
        for _ in range(BURST):
            number, self.count = self.count, self.count + 1
            producer.produce("t", b"%d" % number, key=b"%d" % (number % KEYS), on_delivery=self.note(number))
        producer.poll(0.005)


def kills(node: NodeProcess, rounds: int, rng: random.Random) -> Sent:
    """Produce all the while; the node goes down in the middle of a burst each time."""
    sent = Sent()
    told: dict[str, Any] = {
        "enable.idempotence": True,
        "compression.type": "lz4",
        "message.timeout.ms": 600_000,
        "log_level": 0,
    }
    told |= {"reconnect.backoff.max.ms": 200, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": node.kafka_address, **told})
    for number in range(rounds):
        # Killed while it works, not while the client still looks for it.
        wanted = len(sent.acked) + rng.randrange(1, 2_000)
        patience = Patience(PATIENCE_S)
        while len(sent.acked) < wanted:
            sent.burst(producer)
            assert patience.lasts(), f"nothing was acknowledged for {PATIENCE_S} s: {sent.failed[:3]}"
        node.kill()
        node.start()
        print(f"\rkill {number + 1} of {rounds}, {len(sent.acked)} acknowledged", end="", file=sys.stderr)
    print(file=sys.stderr)
    left = producer.flush(PATIENCE_S)
    assert (left, sent.failed) == (0, []), f"{left} messages left, {len(sent.failed)} failed: {sent.failed[:3]}"
    return sent


def found(node: NodeProcess, number: int) -> dict[Place, int]:
    """Everything in the log."""
    consumer = Consumer({"bootstrap.servers": node.kafka_address, "group.id": "auditor", "log_level": 0})
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(PARTITIONS)])
    ends = [consumer.get_watermark_offsets(TopicPartition("t", n), PATIENCE_S)[1] for n in range(PARTITIONS)]
    read: dict[Place, int] = {}
    patience = Patience(PATIENCE_S)
    while len(read) < sum(ends):
        assert patience.lasts(), f"{len(read)} of {sum(ends)} messages came within {PATIENCE_S} s"
        for message in consumer.consume(5_000, 0.5):
            assert not message.error(), message.error()
            read[(message.partition(), message.offset())] = int(message.value())
    consumer.close()
    assert len(read) == number, f"{number} messages were sent, {len(read)} are in the log"
    return read


def check(sent: Sent, read: dict[Place, int]) -> None:
    assert sorted(read.values()) == list(range(sent.count)), "messages are lost or doubled"
    # The answer to a batch that was sent again after a restart may not know its offset.
    wrong = {n: place for n, place in sent.acked.items() if place[1] >= 0 and read[place] != n}
    assert not wrong, f"not at their acknowledged offsets: {dict(list(wrong.items())[:3])}"
    lines: dict[int, list[int]] = defaultdict(list)
    for (partition, _), number in sorted(read.items()):
        lines[partition].append(number)
    assert all(line == sorted(line) for line in lines.values()), "a partition is out of order"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    asked = parser.parse_args()
    print(f"seed {asked.seed}")
    with tempfile.TemporaryDirectory(prefix="muster-torture-") as home:
        node = NodeProcess(Path(home) / "data", SETTINGS)
        node.start()
        try:
            sent = kills(node, asked.rounds, random.Random(asked.seed))
            check(sent, found(node, sent.count))
        finally:
            node.stop()
    print(f"{asked.rounds} kills, {sent.count} messages: none lost, none doubled, all in order")


if __name__ == "__main__":
    main()
