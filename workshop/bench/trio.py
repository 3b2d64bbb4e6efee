"""Three servers of Kafka's protocol that keep copies for each other, to be killed, frozen and stopped."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from muster.coordinator.java_runtime import find_java
from muster.coordinator.zookeeper.ensemble import open_or_create_ensemble
from muster.coordinator.zookeeper.server import ServerTuning, start_watchdog
from muster.workshop.bench.broker import CLUSTER, FORMAT_S, HEAP, free_ports, last_words
from muster.workshop.bench.place import classpath
from muster.workshop.bench.processes import STOP_S, BenchFailed, cpu_s, read_announcement

NODES = (1, 2, 3)
SHARDS = 4
HARD_STOP_S = 60.0

SETTINGS = {
    "inter.broker.listeners": "127.0.0.1:0",
    "http.listeners": "",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": str(SHARDS),
}

PROPERTIES = """process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={home}/logs
offsets.topic.num.partitions={shards}
offsets.topic.replication.factor=3
default.replication.factor=3
min.insync.replicas=2
group.initial.rebalance.delay.ms=0
"""


class ServerTrio(Protocol):
    @property
    def addresses(self) -> Mapping[int, str]:
        """Where each is reached by Kafka's protocol; they stay over restarts."""

    def start(self, node: int) -> None: ...

    def signal(self, node: int, number: int) -> None: ...

    def ended(self, node: int) -> None:
        """Return once a node that was killed, or told to stop, is gone."""

    def cpu_s(self, node: int) -> float: ...


@dataclass(slots=True)
class TrioProcesses:
    """Of each node the process that runs at the moment. None outlives this one, however that ends."""

    running: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _lifelines: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def runs(self, node: int, process: "subprocess.Popen[bytes]") -> None:
        self.running[node] = process
        self._lifelines[node] = start_watchdog(process.pid)

    def signal(self, node: int, number: int) -> None:
        os.kill(self.running[node].pid, number)

    def ended(self, node: int) -> None:
        process = self.running[node]
        try:
            process.wait(HARD_STOP_S)
        except subprocess.TimeoutExpired:
            raise BenchFailed(f"node {node} was told to stop, and still runs after {HARD_STOP_S:.0f} s") from None
        del self.running[node]
        self._cut(node)
        if process.stdout is not None:
            process.stdout.close()

    def cpu_s(self, node: int) -> float:
        return cpu_s(self.running[node].pid)

    def _cut(self, node: int) -> None:
        """Before somebody else is given the process's number."""
        lifeline = self._lifelines.pop(node)
        lifeline.kill()
        lifeline.wait()
        if lifeline.stdin is not None:
            lifeline.stdin.close()

    def stop(self) -> None:
        for process in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.running.values():
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for node in list(self._lifelines):
            self._cut(node)


class MusterTrio(TrioProcesses):
    """Muster's, at a ZooKeeper; without one it is a node alone."""

    def __init__(self, home: Path, connect: str, settings: Mapping[str, str]) -> None:
        super().__init__()
        self._home = home
        self.connect = connect
        self._settings = settings
        self.addresses: dict[int, str] = {}
        self.doors: dict[int, str] = {}

    def start(self, node: int) -> None:
        settings = {"kafka.listeners": self.addresses.get(node, "127.0.0.1:0"), "node.id": str(node)}
        settings |= {"zookeeper.connect": self.connect} if self.connect else {}
        settings |= self._settings
        pairs = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        where = ["--listen", self.doors.get(node, "127.0.0.1:0"), "--data", str(self._home / f"node{node}")]
        told = self._home / f"node{node}.log"
        with told.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "muster.cli", "serve", "--announce", *where, *pairs],
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.runs(node, process)
        try:
            said = read_announcement(process)
        except BenchFailed as late:
            raise BenchFailed(f"{late}; the last line of its log: {last_words(told)}") from None
        self.doors[node] = f"{said['host']}:{said['port']}"
        self.addresses[node] = f"{said['kafka_host']}:{said['kafka_port']}"


class KafkaTrio(TrioProcesses):
    """Kafka's, as three that are broker and controller; settings are its defaults but for copies, and `more`."""

    def __init__(self, home: Path, jars: str, more: str = "") -> None:
        super().__init__()
        self._home = home
        self._more = more
        self._java = [str(find_java().executable), HEAP, "-cp", jars]
        ports = free_ports(2 * len(NODES))
        self._ports = {node: (ports[2 * at], ports[2 * at + 1]) for at, node in enumerate(NODES)}
        self.addresses = {node: f"127.0.0.1:{port}" for node, (port, _) in self._ports.items()}
        self._formatted: set[int] = set()

    def start(self, node: int) -> None:
        place = self._home / f"broker{node}"
        place.mkdir(exist_ok=True)
        settings = place / "server.properties"
        port, controller = self._ports[node]
        voters = ",".join(f"{each}@127.0.0.1:{ports[1]}" for each, ports in self._ports.items())
        told = {"node": node, "voters": voters, "port": port, "controller": controller, "home": place}
        settings.write_text(PROPERTIES.format(**told, shards=SHARDS) + self._more)
        with (place / "broker.log").open("ab") as log:
            if node not in self._formatted:
                formatting = [*self._java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)]
                if subprocess.run(formatting, stdout=log, stderr=log, timeout=FORMAT_S, check=False).returncode:
                    raise BenchFailed(f"Kafka's broker cannot be set up: {last_words(place / 'broker.log')}")
                self._formatted.add(node)
            process = subprocess.Popen([*self._java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
        self.runs(node, process)


@contextlib.contextmanager
def run_three_nodes(home: str, settings: Mapping[str, str] | None = None) -> Iterator[MusterTrio]:
    """Raises BenchFailed, JavaNotFound (for ZooKeeper)."""
    folder = Path(home) / "cluster"
    ensemble = open_or_create_ensemble(folder / "zookeeper", 1, tuning=ServerTuning(heap_mb=128, logs=False, tied=True))
    ensemble.start()
    nodes = MusterTrio(folder, f"{ensemble.connect}/bench", {**SETTINGS, **(settings or {})})
    with contextlib.ExitStack() as stack:
        stack.callback(ensemble.stop)
        stack.callback(nodes.stop)
        start_trio(nodes, NODES)
        yield nodes


@contextlib.contextmanager
def run_one_node(home: str) -> Iterator[MusterTrio]:
    folder = Path(home) / "alone"
    folder.mkdir()
    nodes = MusterTrio(
        folder, "", {key: value for key, value in SETTINGS.items() if not key.startswith("inter.broker")}
    )
    try:
        start_trio(nodes, NODES[:1])
        yield nodes
    finally:
        nodes.stop()


@contextlib.contextmanager
def run_three_brokers(home: str, place: str) -> Iterator[KafkaTrio]:
    """place: see `bench.kafka.place.classpath`. Raises BenchFailed, JavaNotFound."""
    folder = Path(home) / "brokers"
    folder.mkdir()
    brokers = KafkaTrio(folder, classpath(place))
    try:
        start_trio(brokers, NODES)
        yield brokers
    finally:
        brokers.stop()


def start_trio(trio: ServerTrio, nodes: Sequence[int]) -> None:
    for node in nodes:
        trio.start(node)
