"""A real node in a process of its own, for tests that stop, kill and restart it."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.pace import pace

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0

MUSTER = str(Path(sys.executable).with_name("muster"))

SMALL = {
    # Few shards and short timeouts: a test node should start at once and decide soon.
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    # Nobody looks at most nodes of tests, and their default port would be the same.
    "http.listeners": "",
}


class NodeProcess:
    """`muster serve` on loopback. The ports are free ones at the first start and stay the same afterwards.

    Over a Kafka (`engine`) it has no data directory: `data` only says where its log is.
    """

    def __init__(self, data: Path, settings: dict[str, str] | None = None, program: Sequence[str] = (MUSTER,)) -> None:
        self.data = data
        self._program = program
        self.settings = SMALL | (settings or {})
        given = self.settings.pop("listeners", "")
        self._spoken = protocol_of(given)
        self.address = "127.0.0.1:0"
        self.kafka_address = ""
        """Where Kafka's protocol is served, with the setting kafka.listeners."""
        self.http = ""
        """Likewise of HTTP, with http.listeners."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it answers; its own announcement says where."""
        command = [*self._program, "serve", "--announce"]
        command += ["--listen", self._spoken + self.address]
        if "engine" not in self.settings:
            command += ["--data", str(self.data)]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        log = self.log_path.open("ab")
        # Plugins of the tests are found by the node, too, as an operator's are by PYTHONPATH.
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
        log.close()
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_TIMEOUT_S * pace())
        line = self._process.stdout.readline() if ready else b""
        assert line, f"the node did not start: {self.log_tail()}"
        told = json.loads(line)
        self.address = f"{told['host']}:{told['port']}"
        if "kafka_port" in told:
            self.kafka_address = f"{told['kafka_host']}:{told['kafka_port']}"
            self.settings["kafka.listeners"] = protocol_of(self.settings["kafka.listeners"]) + self.kafka_address
        if "http_port" in told:
            self.http = f"{told['http_host']}:{told['http_port']}"
            self.settings["http.listeners"] = protocol_of(self.settings["http.listeners"]) + self.http

    @property
    def pid(self) -> int:
        assert self._process is not None, "the node runs"
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL: whatever was not written is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM: drain. Returns the exit code."""
        return self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """It stands still, until `thaw`."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wait(self, timeout_s: float) -> int:
        """Until it stops by itself. Returns the exit code."""
        return self._ended(timeout_s)

    @property
    def log_path(self) -> Path:
        """What it says on standard error, over all of its lives."""
        return self.data.parent / f"{self.data.name}.log"

    def log_tail(self) -> str:
        return self.log_path.read_text(errors="replace")[-2000:]

    def _end(self, how: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(how)
        return self._ended(STOP_TIMEOUT_S)

    def _ended(self, timeout_s: float) -> int:
        process, self._process = self._process, None
        assert process is not None, "the node runs"
        code = process.wait(timeout=timeout_s * pace())
        assert process.stdout is not None
        process.stdout.close()
        return code


def protocol_of(listener: str) -> str:
    """`SSL://` of `SSL://127.0.0.1:0`; nothing of `127.0.0.1:0`."""
    named, slashes, _ = listener.rpartition("://")
    return named + slashes


@contextmanager
def running_node(
    data: Path, settings: dict[str, str] | None = None, program: Sequence[str] = (MUSTER,)
) -> Iterator[NodeProcess]:
    node = NodeProcess(data, settings, program)
    node.start()
    try:
        yield node
    finally:
        node.stop()


class SeveralNodes:
    """What is asked of some together, by node id."""

    nodes: dict[int, NodeProcess]

    @property
    def kafka_address(self) -> str:
        """bootstrap.servers of Kafka's clients."""
        return ",".join(node.kafka_address for node in self.nodes.values())

    @property
    def address(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    def log_tail(self) -> str:
        return "\n".join(f"node {number}: {node.log_tail()}" for number, node in self.nodes.items())
