"""Consume, transform, produce, exactly once, until it is killed: `python -m tests.torture.transforming SERVERS GROUP`.

It says `ready` when it works, and one line for whatever makes it begin anew.
"""

import sys
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

INPUT: Final = "eos-in"
OUTPUT: Final = "eos-out"
PATIENCE_S: Final = 60.0
MOST: Final = 20
"""Records of one transaction."""


class Transforming:
    def __init__(self, servers: str, group: str) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "group.instance.id": f"{group}-1",
                "session.timeout.ms": 20_000,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self.producer = Producer(
            {"bootstrap.servers": servers, "transactional.id": f"{group}.app", "transaction.timeout.ms": 20_000}
        )
        self.producer.init_transactions(PATIENCE_S)
        self.consumer.subscribe([INPUT])

    def read(self) -> list[Message]:
        return [each for each in self.consumer.consume(MOST, 0.05) if each.error() is None]

    def transaction(self, read: list[Message]) -> None:
        """Raises KafkaException."""
        self.producer.begin_transaction()
        after: dict[tuple[str, int], int] = {}
        for message in read:
            after[message.topic(), message.partition()] = message.offset() + 1
            self.producer.produce(OUTPUT, message.value(), partition=0)
        positions = [TopicPartition(*place, offset) for place, offset in after.items()]
        self.producer.send_offsets_to_transaction(positions, self.consumer.consumer_group_metadata(), PATIENCE_S)
        self.producer.commit_transaction(PATIENCE_S)

    def rewind(self) -> None:
        """Back to what counts."""
        for each in self.consumer.committed(self.consumer.assignment(), timeout=PATIENCE_S):
            self.consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))

    def run(self) -> None:
        print("ready", flush=True)
        while True:
            read = self.read()
            if not read:
                continue
            try:
                self.transaction(read)
            except KafkaException as error:
                said: KafkaError = error.args[0]
                print(f"{said.name()}: {said.str()}", flush=True)
                if not said.txn_requires_abort():
                    raise
                self.producer.abort_transaction(PATIENCE_S)
                self.rewind()


if __name__ == "__main__":
    Transforming(sys.argv[1], sys.argv[2]).run()
