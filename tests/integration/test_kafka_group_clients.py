"""Groups of real clients, each member a process of its own: they join, die, leave, return, and outlive the node."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.node import NodeProcess, running_node

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PARTITIONS = 6
PATIENCE_S = 60.0
NODE = {
    "kafka.listeners": "127.0.0.1:0",
    # kafka-python 3.0 loses its way when the first rebalance of a group takes no time at all.
    "group.initial.rebalance.delay.ms": "300",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "0",
}
WORKER = Path(__file__).parents[1] / "support" / "kafka_worker.py"
numbers = count()


class Worker:
    """A member's process, and what it has said so far."""

    def __init__(self, told: dict[str, str]) -> None:
        self.name = told["name"]
        self.assigned: list[int] = []
        self.read: set[tuple[int, int]] = set()
        self.ended = ""
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            self.assigned = said.get("assigned", self.assigned)
            self.read |= {(partition, offset) for partition, offset in said.get("read", ())}
            self.ended = self.ended or said.get("fatal", "left" if said.get("left") else "")


class Stage:
    """A topic, its producer and the members of one group."""

    def __init__(self, node: NodeProcess, assignor: str) -> None:
        self.node, self.assignor = node, assignor
        self.topic = self.group = f"group-{next(numbers)}"
        self.workers: list[Worker] = []
        self.sent = [0] * PARTITIONS
        settings = {"bootstrap.servers": node.kafka_address, "log_level": 0}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result(PATIENCE_S)
        self._producer = Producer(settings | {"linger.ms": 5})

    def start(self, library: str, **more: str) -> Worker:
        name = f"{library}-{len(self.workers)}"
        address = self.node.kafka_address
        told = {"library": library, "address": address, "group": self.group, "topic": self.topic, "name": name}
        worker = Worker(told | {"assignor": self.assignor} | more)
        self.workers.append(worker)
        return worker

    def send(self, each: int) -> None:
        """So many messages to every partition."""
        for partition in range(PARTITIONS):
            for _ in range(each):
                self._producer.produce(self.topic, b"x" * 100, partition=partition)
            self.sent[partition] += each
        assert self._producer.flush(PATIENCE_S) == 0

    def until_shared(self, *owners: Worker) -> None:
        """Every partition has exactly one owner, and each of these owns some; nobody else any."""
        until(
            lambda: (
                sorted(p for owner in owners for p in owner.assigned) == list(range(PARTITIONS))
                and all(owner.assigned for owner in owners)
            ),
            lambda: f"{[(one.name, one.assigned, one.ended) for one in self.workers]} {self.node.log_tail()}",
        )

    def until_all_read(self) -> None:
        wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(self.sent[partition])}
        until(
            lambda: set().union(*(worker.read for worker in self.workers)) >= wanted,
            lambda: f"{len(wanted)} sent, {[(worker.name, len(worker.read)) for worker in self.workers]}",
        )

    def committed(self) -> list[int]:
        """What the group has committed, as another client sees it."""
        consumer = Consumer({"bootstrap.servers": self.node.kafka_address, "group.id": self.group, "log_level": 0})
        found = consumer.committed([TopicPartition(self.topic, p) for p in range(PARTITIONS)], PATIENCE_S)
        consumer.close()
        return [place.offset for place in found]


def until(condition: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.05)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "data", NODE) as running:
        yield running


@contextmanager
def stage(node: NodeProcess, assignor: str) -> Iterator[Stage]:
    made = Stage(node, assignor)
    try:
        yield made
    finally:
        for worker in made.workers:
            worker.kill()


@pytest.mark.parametrize(
    ("assignor", "libraries"),
    [
        pytest.param("range", ("confluent", "kafka-python", "aiokafka"), id="eager"),
        pytest.param("cooperative-sticky", ("confluent", "kafka-python", "confluent"), id="cooperative"),
        pytest.param("consumer", ("confluent", "confluent", "confluent"), id="kip-848"),
    ],
)
def test_a_group_of_real_clients_loses_nothing(node: NodeProcess, assignor: str, libraries: Sequence[str]) -> None:
    with stage(node, assignor) as play:
        first, second = play.start(libraries[0]), play.start(libraries[1])
        play.until_shared(first, second)
        play.send(100)
        third = play.start(libraries[2])
        play.until_shared(first, second, third)
        play.send(100)
        second.kill()
        play.until_shared(first, third)
        # Whatever was acknowledged survives, and clients find their way back by themselves.
        node.kill()
        node.start()
        play.send(100)
        play.until_all_read()
        third.leave()
        play.until_shared(first)
        assert third.ended == "left"
        play.send(10)
        play.until_all_read()
        until(lambda: play.committed() == play.sent, lambda: f"{play.committed()} of {play.sent}")


@pytest.mark.parametrize("library", ["confluent", "kafka-python"])
def test_a_static_member_returns_to_its_partitions_and_fences_its_double(node: NodeProcess, library: str) -> None:
    with stage(node, "range") as play:
        steady, restarted = play.start(library, instance="a"), play.start(library, instance="b")
        play.until_shared(steady, restarted)
        had = restarted.assigned
        restarted.kill()
        again = play.start(library, instance="b")
        until(lambda: again.assigned == had, lambda: f"had {had}, got {again.assigned}")
        assert generations(node, play.group) == 1, "nobody else noticed"
        double = play.start(library, instance="b")
        until(lambda: bool(double.assigned), lambda: "the double takes over")
        play.send(50)
        play.until_all_read()
        if library == "confluent":  # kafka-python tells its application when that commits, and keeps what it had
            # It hears of it by whichever comes first, a heartbeat or a commit.
            until(
                lambda: again.assigned == [] or again.ended == "FENCED_INSTANCE_ID",
                lambda: f"the old holder is fenced, but keeps {again.assigned} {again.ended}",
            )
            assert double.assigned == had


def generations(node: NodeProcess, group: str) -> int:
    """How often the group was assigned, by the ledger."""
    from coordinator.client import Admin

    with Admin({"bootstrap.servers": node.address}) as admin:
        return len(admin.explain(group))
