"""The worker of `appending`, by our own client: SERVERS TOPIC WORKER LIFE FILE."""

import json
import random
import sys
import threading
from typing import Any, Final, TextIO

from muster.client import Consumer, OutcomeUnknown, Producer, ProducerFenced, TransactionAborted
from muster.client.types import OffsetAndMetadata, TopicPartition
from tests.torture.appending import ABORTED_IN, LIFE, PARTITIONS, TIMEOUT_S, draw_transfer, run_worker

PATIENCE_MS: Final = 20_000


class Given(Exception):
    """This transaction is to be aborted."""


class AppendingByMuster:
    def __init__(self, servers: str, topic: str, worker: str, life: int, told: TextIO) -> None:
        self.topic, self.life, self.name = topic, life, f"{worker}.{life}"
        self.told = told
        self.number = 0
        self.rng = random.Random(f"{worker} {life}")
        reading = {"bootstrap.servers": servers, "group.id": f"{topic}.{worker}", "isolation.level": "read_committed"}
        self.consumer = Consumer(reading | {"enable.auto.commit": False, "auto.offset.reset": "earliest"})
        self.consumer.assign([(topic, number) for number in range(PARTITIONS)])
        self.consumer.seek_to_beginning()
        writing = {"bootstrap.servers": servers, "transactional.id": f"{topic}.{worker}"}
        more = {"transaction.timeout.ms": TIMEOUT_S * 1000, "delivery.timeout.ms": PATIENCE_MS, "linger.ms": 0}
        self.producer = Producer(writing | more)
        self.producer.init_transactions()

    def tell(self, name: str, **row: Any) -> None:
        self.told.write(json.dumps({"txn": name} | row) + "\n")
        self.told.flush()

    def run(self, ended: threading.Event) -> None:
        """Raises ProducerFenced where this instance is of no use any more."""
        while not ended.is_set():
            self.number += 1
            name = f"{self.name}.{self.number}"
            try:
                self.transaction(name)
            except (Given, TransactionAborted):
                self.tell(name, end="aborted")
            except OutcomeUnknown:
                continue
            else:
                self.tell(name, end="committed")

    def transaction(self, name: str) -> None:
        read = self.consumer.consume(50, 0.02)
        if read:
            shown = [(each.partition, each.offset, (each.value or b"").decode()) for each in read]
            self.tell(name, reads=shown)
        values = draw_transfer(self.rng, name)
        position = self.number + LIFE * self.life
        self.tell(name, appends=values, position=position)
        with self.producer.transaction():
            for partition, value in values:
                self.producer.produce(self.topic, value, partition=partition)
            places = {TopicPartition(self.topic, 0): OffsetAndMetadata(position)}
            self.producer.send_offsets(places, self.consumer.consumer_group_metadata())
            if not self.rng.randrange(ABORTED_IN):
                raise Given


if __name__ == "__main__":
    sys.exit(run_worker(AppendingByMuster, ProducerFenced))
