"""A node registered in ZooKeeper, and consumers of that era on it, for integration tests."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from muster.client import Admin, Consumer, Producer
from tests.support.node import NodeProcess, running_node
from tests.support.pace import Patience

SESSION_MS = 3_000
PATIENCE_S = 45.0


@contextmanager
def era_node(folder: Path, zookeeper: str) -> Iterator[NodeProcess]:
    """A node that registers in ZooKeeper, with short sessions."""
    settings = {"zookeeper.connect": zookeeper, "zookeeper.session.timeout.ms": "4000"}
    with running_node(folder / "node", settings) as node:
        yield node


@contextmanager
def plain(zookeeper: str) -> Iterator[KazooClient]:
    """kazoo and nothing else, below the same chroot."""
    client = KazooClient(hosts=zookeeper)
    client.start(timeout=20)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def era_properties(zookeeper: str, group: str = "g", **more: object) -> dict[str, Any]:
    return {
        "group.id": group,
        "group.protocol": "zookeeper",
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": SESSION_MS,
        "rebalance.backoff.ms": 300,
        "rebalance.max.retries": 20,
        "auto.offset.reset": "smallest",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def create(node: NodeProcess, **counts: int) -> None:
    with Admin({"bootstrap.servers": node.address}) as admin:
        for topic, partitions in counts.items():
            admin.create_topic(topic, partitions)


def fill(node: NodeProcess, topic: str, partitions: int, count: int, first: int = 0) -> None:
    """`count` records, dealt over the partitions in turn; each says its number."""
    with Producer({"bootstrap.servers": node.address}) as producer:
        for number in range(first, first + count):
            producer.produce(topic, value=str(number).encode(), partition=number % partitions)
        producer.flush()


def wait_for(condition: Callable[[], Any], what: str, every_s: float = 0.02) -> Any:
    """The first true value of the condition, within patience."""
    patience = Patience(PATIENCE_S)
    while True:
        if value := condition():
            return value
        assert patience.lasts(), f"not within {PATIENCE_S} s: {what}"
        time.sleep(every_s)


def settled(*consumers: Consumer) -> Callable[[], bool]:
    """Whether these, and nobody else, own something each, all partitions of t together."""

    def check() -> bool:
        return all(consumer.assignment() for consumer in consumers)

    return check


class Process:
    """A consumer in a process of its own: prints one JSON line per thing that happened. Freeze it, kill it."""

    def __init__(self, properties: dict[str, Any], topic: str) -> None:
        self.lines: list[dict[str, Any]] = []
        command = [sys.executable, "-m", "tests.support.zookeeper.process", json.dumps(properties), topic]
        root = Path(__file__).parents[3]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._rest = b""

    def told(self, kind: str) -> list[dict[str, Any]]:
        """What was printed of this kind so far."""
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            return [line for line in self.lines if line["kind"] == kind]
        with suppress(BlockingIOError):
            while chunk := os.read(self._process.stdout.fileno(), 65_536):
                self._rest += chunk
        *whole, self._rest = self._rest.split(b"\n")
        self.lines += [json.loads(line) for line in whole]
        return [line for line in self.lines if line["kind"] == kind]

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)
        self.told("")
        assert self._process.stdout is not None
        self._process.stdout.close()
