"""One worker of the list-append histories: `python -m tests.torture.appending SERVERS TOPIC WORKER LIFE FILE`.

It polls, appends 1 to 4 records to random partitions, commits a position with them, and writes down what it does before
and after, until its input ends. What it was at when it is killed is the one line that is missing.
"""

import faulthandler
import json
import random
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TextIO

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.torture.list_append import value_of

PARTITIONS: Final = 6
TIMEOUT_S: Final = 3
"""transaction.timeout.ms of a worker; the frozen ones are longer away."""
HANGS_S: Final = 20
"""See `transforming`: librdkafka may wait for ever where its coordinator was gone."""
LIFE: Final = 1_000_000
"""Positions of one life lie above those of the lives before."""
ABORTED_IN: Final = 8
"""One of so many transactions is aborted."""


class Appending:
    def __init__(self, servers: str, topic: str, worker: str, life: int, told: TextIO) -> None:
        self.topic, self.worker, self.name = topic, worker, f"{worker}.{life}"
        self.told = told
        self.number = 0
        self.rng = random.Random(f"{worker} {life}")
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"{topic}.{worker}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self.consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": f"{topic}.{worker}",
                "transaction.timeout.ms": TIMEOUT_S * 1000,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self.producer.init_transactions(HANGS_S)

    def tell(self, name: str, **row: Any) -> None:
        self.told.write(json.dumps({"txn": name} | row) + "\n")
        self.told.flush()

    def run(self, ended: threading.Event) -> None:
        """Raises KafkaException where this instance is of no use any more."""
        while not ended.is_set():
            self.number += 1
            name = f"{self.name}.{self.number}"
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            try:
                self.transaction(name)
            except KafkaException as error:
                self.recover(name, error.args[0])
            finally:
                faulthandler.cancel_dump_traceback_later()

    def transaction(self, name: str) -> None:
        self.producer.begin_transaction()
        read = [each for each in self.consumer.consume(50, 0.02) if not each.error()]
        if read:
            shown = [(each.partition(), each.offset(), (each.value() or b"").decode()) for each in read]
            self.tell(name, reads=shown)
        values = draw_transfer(self.rng, name)
        position = self.number + LIFE * int(self.name.split(".")[1])
        self.tell(name, appends=values, position=position)
        for partition, value in values:
            self.producer.produce(self.topic, value.encode(), partition=partition)
        places = [TopicPartition(self.topic, 0, position)]
        group = self.consumer.consumer_group_metadata()
        ask_again(lambda: self.producer.send_offsets_to_transaction(places, group, HANGS_S))
        if not self.rng.randrange(ABORTED_IN):
            self.producer.flush(HANGS_S)
            self.abort(name)
            return
        ask_again(lambda: self.producer.commit_transaction(HANGS_S))
        self.tell(name, end="committed")

    def recover(self, name: str, error: KafkaError) -> None:
        """Abort what can be aborted; whoever was fenced ends."""
        if not error.txn_requires_abort():
            raise KafkaException(error)
        self.abort(name)

    def abort(self, name: str) -> None:
        ask_again(lambda: self.producer.abort_transaction(HANGS_S))
        self.tell(name, end="aborted")


def ask_again(call: Callable[[], object]) -> None:
    """As one does where the outcome is not known; the one who waits for it ends this program in the end."""
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


class Instance(Protocol):
    def run(self, ended: threading.Event) -> None: ...


def run_worker(make: Callable[[str, str, str, int, TextIO], Instance], fatal: type[Exception]) -> int:
    """Run what `make` makes of the command's arguments until the input ends. `fatal`: it is of no use any more."""
    servers, topic, worker, life, path = sys.argv[1:]
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    with open(path, "a") as told:
        try:
            make(servers, topic, worker, int(life), told).run(ended)
        except fatal as error:
            print(f"{worker}.{life} ends: {error}", flush=True)
            return 3
    return 0


def draw_transfer(rng: random.Random, name: str) -> list[tuple[int, str]]:
    """1 to 4 records for random partitions, whose amounts add up to nothing."""
    count = rng.randint(1, 4)
    amounts = [rng.randint(-99, 99) for _ in range(count - 1)]
    amounts.append(-sum(amounts))
    return [(rng.randrange(PARTITIONS), value_of(name, n, each)) for n, each in enumerate(amounts)]


if __name__ == "__main__":
    sys.exit(run_worker(Appending, KafkaException))
