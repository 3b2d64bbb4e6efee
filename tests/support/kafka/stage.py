"""A topic, and a group of real clients on it: each member a process that says what it is assigned and has read."""

import json
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.errors import NotCoordinatorError

from muster.client import Admin
from muster.coordinator.observability.views.ledger import is_rebalance
from tests.support.kafka.commits import COMMITTED
from tests.support.node import NodeProcess
from tests.support.pace import Patience, pace, until

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
WORKER = Path(__file__).with_name("worker.py")
numbers = count()


class Worker:
    """A member's process, and what it has said so far."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.assigned: list[int] = []
        self.read: set[tuple[int, int]] = set()
        self.ended = ""
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._complaints: deque[str] = deque(maxlen=20)
        for listen in (self._listen, self._listen_to_complaints):
            threading.Thread(target=listen, daemon=True).start()

    def __str__(self) -> str:
        exit_code = self.process.poll()
        state = "running" if exit_code is None else f"ended with {exit_code}"
        return f"{self.name} {self.assigned} {state} {self.ended} {list(self._complaints)}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.heard(line)

    def _listen_to_complaints(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.complained(line)

    def complained(self, line: bytes) -> None:
        """Its last words on standard error tell why it stopped."""
        self._complaints.append(line.decode(errors="replace").rstrip())

    def heard(self, line: bytes) -> None:
        said = json.loads(line)
        self.assigned = said.get("assigned", self.assigned)
        self.read |= {(partition, offset) for partition, offset in said.get("read", ())}
        self.ended = self.ended or said.get("fatal", "left" if said.get("left") else "")


class KcatWorker(Worker):
    """kcat in a balanced group (-G): it says what it reads as told to, and of rebalances on standard error."""

    def leave(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S * pace())
        self.assigned, self.ended = [], "left"

    def heard(self, line: bytes) -> None:
        _, partition, offset = line.split()
        self.read.add((int(partition), int(offset)))

    def complained(self, line: bytes) -> None:
        super().complained(line)
        text = line.decode()
        if "rebalanced" in text:
            partitions = {int(number) for number in re.findall(r" \[(\d+)\]", text)}
            if "incremental" not in text:
                self.assigned = sorted(partitions) if "assigned:" in text else []
            elif "revoke" in text:
                self.assigned = sorted(set(self.assigned) - partitions)
            else:
                self.assigned = sorted({*self.assigned, *partitions})


class Reached(Protocol):
    """Where clients reach a node, or the nodes of a cluster."""

    @property
    def kafka_address(self) -> str: ...

    @property
    def address(self) -> str: ...

    def log_tail(self) -> str: ...


class Stage:
    """A topic, its producer and the members of one group."""

    def __init__(self, node: Reached, assignor: str) -> None:
        self.node, self.assignor = node, assignor
        self.topic = self.group = f"group-{next(numbers)}"
        self.workers: list[Worker] = []
        self.sent = [0] * PARTITIONS
        settings = {"bootstrap.servers": node.kafka_address, "log_level": 0}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic(self.topic, PARTITIONS)])[self.topic].result(PATIENCE_S)
        # A node that stands still is asked no longer than that.
        self._producer = Producer(settings | {"linger.ms": 5, "socket.timeout.ms": 5_000, "request.timeout.ms": 4_500})

    def start(self, library: str, **more: str) -> Worker:
        """A member by one of the Python libraries, ours over gRPC among them."""
        name = f"{library}-{len(self.workers)}"
        told = {"library": library, "address": self.node.kafka_address, "group": self.group, "topic": self.topic}
        told |= {"name": name, "assignor": self.assignor, "grpc": self.node.address} | more
        return self.run(name, [sys.executable, str(WORKER), json.dumps(told)])

    def run(self, name: str, command: Sequence[str]) -> Worker:
        """A member by any process that speaks as kafka_worker.py does."""
        return self._on_stage(Worker(name, command))

    def start_kcat(self, kcat: str, session_ms: int = 3_000) -> Worker:
        settings = {
            "client.id": "kcat",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": "200",
            "session.timeout.ms": str(session_ms),
            "heartbeat.interval.ms": "300",
            "partition.assignment.strategy": self.assignor,
        }
        told = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
        command = [
            kcat,
            "-b",
            self.node.kafka_address,
            "-G",
            self.group,
            *told,
            "-E",  # else it gives up when all its connections happen to be down at once, as in any restart of the node
            "-u",
            "-f",
            "read %p %o\\n",
            self.topic,
        ]
        return self._on_stage(KcatWorker("kcat", command))

    def _on_stage(self, worker: Worker) -> Worker:
        self.workers.append(worker)
        return worker

    def send(self, each: int) -> None:
        """So many messages to every partition."""
        for partition in range(PARTITIONS):
            self.send_to(partition, each)

    def send_to(self, partition: int, count: int) -> None:
        """So many messages to this one."""
        for _ in range(count):
            self._producer.produce(self.topic, b"x" * 100, partition=partition)
        self.sent[partition] += count
        assert self._producer.flush(PATIENCE_S) == 0

    def until_shared(self, *owners: Worker) -> None:
        """Every partition has exactly one owner, and each of these owns some; nobody else any."""

        def shared() -> bool:
            assert all(owner.process.poll() is None for owner in owners), self._what_is_known()
            owned = sorted(partition for owner in owners for partition in owner.assigned)
            return owned == list(range(PARTITIONS)) and all(owner.assigned for owner in owners)

        until(shared, self._what_is_known)

    def _what_is_known(self) -> str:
        return "\n".join([*map(str, self.workers), self.node.log_tail()])

    def until_all_read(self) -> None:
        wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(self.sent[partition])}
        until(
            lambda: set().union(*(worker.read for worker in self.workers)) >= wanted,
            lambda: f"{len(wanted)} sent, {[(worker.name, len(worker.read)) for worker in self.workers]}",
        )

    def until_committed(self) -> None:
        """The group has committed all that was sent, and every library sees it."""
        until(lambda: self._committed("confluent") == self.sent, lambda: f"{self._committed('confluent')}")
        assert {library: self._committed(library) for library in COMMITTED} == dict.fromkeys(COMMITTED, self.sent)

    def _committed(self, library: str) -> list[int]:
        """Asked again while the group's coordinator moves: libraries leave that to their callers here."""
        patience = Patience(PATIENCE_S)
        while True:
            try:
                return COMMITTED[library](self.node, self.group, self.topic, PARTITIONS)
            except (KafkaException, NotCoordinatorError) as error:
                if not (
                    patience.lasts() and ("NOT_COORDINATOR" in str(error) or isinstance(error, NotCoordinatorError))
                ):
                    raise
                time.sleep(0.05)


@contextmanager
def stage(node: Reached, assignor: str) -> Iterator[Stage]:
    made = Stage(node, assignor)
    try:
        yield made
    finally:
        for worker in made.workers:
            worker.kill()


def generations(node: NodeProcess, group: str) -> int:
    """How often the group was assigned, by the ledger."""
    with Admin({"bootstrap.servers": node.address}) as admin:
        return sum(map(is_rebalance, admin.explain(group)))
