"""Three servers of Kafka's protocol that replicate for each other, and a client that expects any of them to fail.

The servers are three nodes of Muster with a ZooKeeper, one node alone, or three brokers of Kafka; the benchmark
kills, freezes and stops them. The client treats a server that is gone or stands still as normal: it asks another
one, and tries again.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from muster.coordinator.errors import ErrorCode
from muster.coordinator.java_runtime import find_java
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.zookeeper.local_ensemble import ServerTuning, open_or_create_ensemble, start_watchdog
from muster.storage.records.batch import encode_turn
from muster.workshop.bench.kafka_load import KafkaMember, LoadConnection
from muster.workshop.bench.kafka_peer import (
    CLUSTER,
    FORMAT_S,
    HEAP,
    KRAFT_PROPERTIES,
    classpath,
    free_ports,
    last_words,
)
from muster.workshop.bench.processes import STOP_S, BenchFailed, cpu_s, read_announcement

# Three servers
# -------------

NODES = (1, 2, 3)
SHARDS = 4
HARD_STOP_S = 60.0

SETTINGS = {
    "inter.broker.listeners": "127.0.0.1:0",
    "http.listeners": "",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": str(SHARDS),
}

THREE_BROKERS = """offsets.topic.num.partitions={shards}
offsets.topic.replication.factor=3
default.replication.factor=3
min.insync.replicas=2
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
        more = THREE_BROKERS.format(shards=SHARDS) + self._more
        settings.write_text(KRAFT_PROPERTIES.format(**told, delay_ms=0) + more)
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


# A client of them
# ----------------

CALL_PATIENCE_S: Final = 0.25
"""How long one answer is waited for. Who stands still costs that much each time."""
JOIN_S: Final = 10.0
PAUSE_S: Final = 0.01
AGAIN_S: Final = 0.1
"""Between two looks at what is to come about by itself."""
GROUP: Final = "bench"
NOBODY: Final = -1
COORDINATOR_MOVED: Final = (14, 15, 16)
TRIES_S: Final = 90.0

Found = TypeVar("Found")


class ServerGone(Exception):
    """No answer, from whatever reason."""


class TrioClient:
    def __init__(self, addresses: Mapping[int, str]) -> None:
        self.addresses = addresses
        self._lines: dict[int, LoadConnection] = {}

    async def within(
        self, node: int, work: Callable[[LoadConnection], Awaitable[Found]], seconds: float = CALL_PATIENCE_S
    ) -> Found:
        """What comes of some work with a connection to a node, in that time. Raises Gone, and the next work goes by
        another connection."""
        try:
            async with asyncio.timeout(seconds):
                if node not in self._lines:
                    self._lines[node] = await LoadConnection.to(self.addresses[node])
                return await work(self._lines[node])
        except OSError as error:
            self.drop(node)
            raise ServerGone(f"node {node}: {str(error) or f'no answer within {seconds} s'}") from error

    async def send_request(
        self, node: int, name: str, version: int, message: object, seconds: float = CALL_PATIENCE_S
    ) -> Any:
        """Raises Gone."""
        return await self.within(node, lambda line: line.send_request(name, version, message), seconds)

    def drop(self, node: int) -> None:
        line = self._lines.pop(node, None)
        if line is not None:
            line.close()

    def close(self) -> None:
        for node in list(self._lines):
            self.drop(node)

    async def anybody(self, name: str, version: int, message: object, but: int = NOBODY) -> Any:
        """Of whoever answers first in order. Raises Gone."""
        why = []
        for node in self.addresses:
            if node == but:
                continue
            try:
                return await self.send_request(node, name, version, message)
            except ServerGone as error:
                why.append(str(error))
        raise ServerGone("; ".join(why))

    async def make(self, topic: str, partitions: int, factor: int) -> None:
        """Returns once each partition has a leader."""
        wanted = struct("CreateTopicsRequest.topics")(name=topic, num_partitions=partitions, replication_factor=factor)
        request = struct("CreateTopicsRequest")(topics=[wanted], timeout_ms=30_000)

        async def made() -> str:
            code = (await self.send_request(min(self.addresses), "CreateTopics", 4, request, 60.0)).topics[0].error_code
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return f"error {code}"
            led = len(await self.leaders(topic))
            return "" if led == partitions else f"{led} of {partitions} partitions have a leader"

        await retry_until(f"making the topic {topic}", made)

    async def leaders(self, topic: str, but: int = NOBODY) -> dict[int, int]:
        """By partition; those that have none are left out. Raises Gone."""
        answer = await self.anybody("Metadata", 4, metadata_request(topic), but)
        parts = answer.topics[0].partitions
        return {part.partition_index: part.leader_id for part in parts if part.leader_id >= 0}

    async def described(self, node: int, topic: str, seconds: float = CALL_PATIENCE_S) -> list[Any]:
        """A topic's partitions as one node knows them. Raises Gone."""
        return list(
            (await self.send_request(node, "Metadata", 4, metadata_request(topic), seconds)).topics[0].partitions
        )

    async def in_sync(self, topic: str, partitions: int, seconds: float = CALL_PATIENCE_S) -> None:
        """Return once somebody knows so many partitions, with all their copies in sync."""

        async def look() -> str:
            for node in self.addresses:
                with contextlib.suppress(ServerGone):
                    parts = await self.described(node, topic, seconds)
                    whole = sum(len(part.isr_nodes) == len(self.addresses) for part in parts)
                    return "" if whole == partitions else f"{whole} of {partitions} partitions have all copies"
            return "nobody answers"

        await retry_until(f"waiting for the copies of {topic} to be in sync", look)

    async def coordinator(self, but: int = NOBODY) -> int:
        """Raises Gone where nobody knows one."""
        request = struct("FindCoordinatorRequest")(key_type=0, coordinator_keys=[GROUP])
        found = (await self.anybody("FindCoordinator", 4, request, but)).coordinators[0]
        if found.error_code or found.node_id == but:
            raise ServerGone(f"the coordinator of {GROUP!r}: error {found.error_code}, node {found.node_id}")
        return int(found.node_id)


def metadata_request(topic: str) -> object:
    wanted = [struct("MetadataRequest.topics")(name=topic)]
    return struct("MetadataRequest")(topics=wanted, allow_auto_topic_creation=False)


async def retry_until(doing: str, look: Callable[[], Awaitable[str]]) -> None:
    """Look again and again until nothing is wrong any more. Raises BenchFailed with what was wrong at last."""
    deadline_s = time.monotonic() + TRIES_S
    wrong = "it was not looked at"
    while time.monotonic() < deadline_s:
        try:
            wrong = await look()
        except ServerGone as error:
            wrong = str(error)
        if not wrong:
            return
        await asyncio.sleep(AGAIN_S)
    raise BenchFailed(f"{doing}: not within {TRIES_S:.0f} s; at last {wrong}")


class TrioMember:
    """The one member of a group; it beats at whoever coordinates it."""

    def __init__(self, asking: TrioClient) -> None:
        self._asking = asking
        self._member: KafkaMember | None = None
        self.at = NOBODY

    async def join(self) -> None:
        async def joined() -> str:
            try:
                self.at = await self._asking.coordinator()
                await self._asking.within(self.at, self._join, JOIN_S)
            except BenchFailed as refused:
                return str(refused)
            return ""

        await retry_until("joining a group", joined)

    async def _join(self, line: LoadConnection) -> None:
        await self._by(line).join()

    def _by(self, line: LoadConnection) -> KafkaMember:
        """The member keeps its id wherever it goes on."""
        if self._member is None:
            self._member = KafkaMember(line, GROUP)
        self._member.line = line
        return self._member

    async def beat(self, but: int = NOBODY) -> bool:
        """Whether the coordinator says that all is well. but: a node that is known to be gone.

        Raises BenchFailed where the member would have to join again.
        """
        try:
            if self.at == NOBODY:
                self.at = await self._asking.coordinator(but)
            code = await self._asking.within(self.at, lambda line: self._by(line).answered())
        except ServerGone:
            self.at = NOBODY
            return False
        if code in COORDINATOR_MOVED:
            self.at = NOBODY
            return False
        if code:
            raise BenchFailed(f"a member of the group was told error {code}; expected that it lives through this")
        return True


class TrioWriter:
    """Produces to partition 0 of a topic with acks=all, at whoever leads it."""

    def __init__(self, asking: TrioClient, topic: str, batch: bytes = b"") -> None:
        self._asking = asking
        self._topic = topic
        self._batch = batch or encode_turn([(b"", b"x" * 100, None)], 0)
        self.at = NOBODY

    def request(self) -> object:
        data = struct("ProduceRequest.topic_data.partition_data")(index=0, records=self._batch)
        told = struct("ProduceRequest.topic_data")(name=self._topic, partition_data=[data])
        return struct("ProduceRequest")(acks=-1, timeout_ms=5_000, topic_data=[told])

    async def await_first_write(self) -> None:
        """Return once something was acknowledged."""

        async def written() -> str:
            return "" if await self.write() else "nothing is acknowledged by all copies"

        await retry_until(f"producing to {self._topic}", written)

    async def write(self, but: int = NOBODY) -> bool:
        """Whether it was acknowledged."""
        try:
            if self.at == NOBODY:
                leader = (await self._asking.leaders(self._topic, but)).get(0, NOBODY)
                if leader in (NOBODY, but):
                    return False
                self.at = leader
            answer = await self._asking.send_request(self.at, "Produce", 9, self.request())
        except ServerGone:
            self.at = NOBODY
            return False
        if answer.responses[0].partition_responses[0].error_code:
            self.at = NOBODY
            return False
        return True
