"""A Connect worker with exactly-once sources (KIP-618) on a node: each line comes out once, whoever is killed."""

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.node import NodeProcess, running_node
from tests.support.pace import Patience

HERE: Final = Path(__file__).parent
JARS: Final = HERE.parents[1] / "build" / "connect"
PATIENCE_S: Final = 120.0
LINES: Final = 3_000
HELD: Final = 50
"""Lines that the connector keeps to itself until more are written: its last batch."""
SETTINGS: Final = {"kafka.listeners": "127.0.0.1:0", "transaction.state.log.num.partitions": "4"}


class ConnectWorker:
    """A distributed worker in a process of its own, at the same port in each of its lives."""

    def __init__(self, node: NodeProcess, place: Path) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = place / "connect.log"
        told = {
            "bootstrap.servers": node.kafka_address,
            "group.id": "connect",
            "listeners": self.url,
            "exactly.once.source.support": "enabled",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            **{f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
        }
        self._told = place / "connect.properties"
        self._told.write_text("".join(f"{key}={value}\n" for key, value in told.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-cp", f"{JARS}/*"]
        command += ["org.apache.kafka.connect.cli.ConnectDistributed", str(self._told)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Until it answers: it may just have begun, or be in a rebalance."""
        patience = Patience(PATIENCE_S)
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": "application/json"}, method=method)
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.load(answer)
            except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
                said = error.read().decode() if isinstance(error, urllib.error.HTTPError) else str(error)
                assert patience.lasts(), f"{method} {path}: {said}\n{self.log_tail()}"

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def working(node: NodeProcess, place: Path) -> Iterator[ConnectWorker]:
    worker = ConnectWorker(node, place)
    worker.start()
    try:
        yield worker
    finally:
        worker.kill()


class CommittedReader:
    def __init__(self, node: NodeProcess) -> None:
        told = {"bootstrap.servers": node.kafka_address, "group.id": "reader", "isolation.level": "read_committed"}
        self._consumer = Consumer(told | {"enable.auto.commit": False, "log_level": 0})
        self._consumer.assign([TopicPartition("lines", 0, 0)])
        self.found: list[str] = []

    def until(self, count: int, worker: ConnectWorker) -> None:
        patience = Patience(PATIENCE_S)
        while len(self.found) < count:
            assert patience.lasts(), f"{len(self.found)} of {count} lines\n{worker.log_tail()}"
            for message in self._consumer.consume(1_000, 0.5):
                if message.error() is None:
                    self.found.append((message.value() or b"").decode())

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.timeout(400)
def test_each_line_of_a_file_comes_out_once_though_the_worker_and_the_node_are_killed(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    if not any(JARS.glob("connect-runtime-*.jar")):
        pytest.skip("no jars of Connect in build/connect: 'make interop' fetches them, if Maven is there")
    lines = [f"line {number}" for number in range(LINES + HELD)]
    source = tmp_path / "lines.txt"

    def more(first: int, last: int) -> None:
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines[first:last])

    more(0, 1_000 + HELD)
    with running_node(tmp_path / "data", SETTINGS) as node, working(node, tmp_path) as worker:
        connector = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": str(source),
            "topic": "lines",
            "tasks.max": "1",
            "batch.size": str(HELD),
            "exactly.once.support": "required",
            "transaction.boundary": "poll",
        }
        worker.ask("PUT", "/connectors/lines/config", connector)
        reader = CommittedReader(node)
        reader.until(1_000, worker)
        more(1_000 + HELD, 2_000 + HELD)
        reader.until(1_001, worker)
        worker.kill()
        worker.start()
        reader.until(2_000, worker)
        more(2_000 + HELD, LINES + HELD)
        reader.until(2_001, worker)
        node.kill()
        node.start()
        reader.until(LINES, worker)
        reader.close()
        again = CommittedReader(node)
        again.until(LINES, worker)
        again.close()
    counted = Counter(again.found)
    assert set(counted.values()) == {1}
    assert counted.keys() >= set(lines[:LINES])
