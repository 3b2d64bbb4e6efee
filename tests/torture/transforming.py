"""Consume, transform, produce, exactly once, until it is killed: `python -m tests.torture.transforming SERVERS GROUP`.

It says `ready` when it works, and one line for whatever makes it begin anew.

librdkafka 2.10 and later, 2.16.0 too, may never come back from send_offsets_to_transaction once the group's coordinator
was gone for a while, whoever coordinates: Kafka alone with its one broker killed and begun again shows it. Of a broker
that it has given up it keeps the handle as the group's coordinator, and waits for that to connect (librdkafka issue
5511); how long it was to wait it does not look at (5456). This program ends itself then, as any has to that goes on.
"""

import faulthandler
import sys
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

INPUT: Final = "eos-in"
OUTPUT: Final = "eos-out"
PATIENCE_S: Final = 60.0
MOST: Final = 20
"""Records of one transaction."""
TRANSACTION_S: Final = 20
HANGS_S: Final = TRANSACTION_S + 10
"""The broker has ended the transaction by then: nothing that comes of it is worth waiting for."""


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
            {
                "bootstrap.servers": servers,
                "transactional.id": f"{group}.app",
                "transaction.timeout.ms": TRANSACTION_S * 1000,
            }
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
        faulthandler.dump_traceback_later(HANGS_S, exit=True)
        try:
            self.producer.send_offsets_to_transaction(positions, self.consumer.consumer_group_metadata(), PATIENCE_S)
        finally:
            faulthandler.cancel_dump_traceback_later()
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
