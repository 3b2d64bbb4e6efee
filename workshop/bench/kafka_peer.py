"""A real Kafka broker as a peer: its jars from Maven, its process (KRaft), or one that runs already.

`--kafka` names a folder with the broker's jars, or the address of a broker on this machine. Jars are fetched once
and kept in the user's cache. Topics get the same record batches, byte for byte, as a node.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.coordinator.java_runtime import find_java
from muster.coordinator.kafka.codec.codec import struct
from muster.workshop.bench.kafka_load import LoadConnection
from muster.workshop.bench.processes import BenchFailed, process_tree_cpu_s

# Jars
# ----

FETCH_S = 600
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>muster.bench</groupId><artifactId>peers</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
SAID_CHARS = 300


class JarsUnavailable(Exception):
    """Jars that cannot be had here; the text says why."""


def find_jars(*coordinates: str) -> list[Path]:
    """The jars of `GROUP:ARTIFACT:VERSION` and all they need. Raises JarsUnavailable."""
    folder = cache_folder() / "jars" / "+".join(name.replace(":", "_") for name in coordinates)
    if not folder.exists():
        fetch_jars(coordinates, folder)
    return sorted(folder.glob("*.jar"))


def fetch_jars(coordinates: Sequence[str], folder: Path) -> None:
    if (mvn := shutil.which("mvn")) is None:
        raise JarsUnavailable(f"mvn is not on the PATH, and {', '.join(coordinates)} was not fetched before")
    coming = folder.with_name(f"{folder.name}.{os.getpid()}")
    coming.mkdir(parents=True)
    try:
        pom = coming / "pom.xml"
        pom.write_text(POM.format(dependencies="".join(DEPENDENCY.format(*name.split(":")) for name in coordinates)))
        command = [mvn, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={coming}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
        if done.returncode:
            said = " ".join((done.stdout + done.stderr).split())[:SAID_CHARS]
            raise JarsUnavailable(f"Maven has no {', '.join(coordinates)}: {said}")
        coming.rename(folder)
    except subprocess.TimeoutExpired:
        raise JarsUnavailable(f"Maven did not fetch {', '.join(coordinates)} within {FETCH_S} s") from None
    except OSError:
        if not folder.exists():  # else another process has fetched the same jars meanwhile
            raise
    finally:
        shutil.rmtree(coming, ignore_errors=True)


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"


# The process
# -----------

KAFKA = "org.apache.kafka:kafka_2.13:4.1.1"
HEAP = "-Xmx768m"
FORMAT_S, START_S, STOP_S = 60.0, 60.0, 20.0
LOOK_AGAIN_S = 0.2
AT_ONCE = 20
LEADER_TRIES = 100
CLUSTER = "bXVzdGVyLWJlbmNoLTAwMA"
"""A cluster id as Kafka writes them: 16 bytes in base64."""

KRAFT_PROPERTIES = """process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={home}/logs
group.initial.rebalance.delay.ms={delay_ms}
"""
"""Of a broker that is a controller too."""

ONE_BROKER = """offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class KafkaBroker:
    """A broker that answers at `address`."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: str) -> None:
        self._process = process
        self.address = address

    def cpu_s(self) -> float:
        """Processor seconds used so far."""
        return process_tree_cpu_s(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None


@contextlib.contextmanager
def running_broker(home: str, classpath: str = "", delay_ms: int = 3_000, more: str = "") -> Iterator[KafkaBroker]:
    """From the jars of `classpath`, or from Maven's. The first of a group waits `delay_ms` for others. more: lines of
    its properties file.

    Raises JarsUnavailable, JavaNotFound, and BenchFailed for a broker that does not answer.
    """
    place = Path(home) / "kafka"
    place.mkdir()
    port, controller = free_ports(2)
    settings = place / "server.properties"
    own = {"node": 1, "voters": f"1@127.0.0.1:{controller}", "port": port, "controller": controller, "home": place}
    settings.write_text(KRAFT_PROPERTIES.format(**own, delay_ms=delay_ms) + ONE_BROKER + more)
    classpath = classpath or os.pathsep.join(map(str, find_jars(KAFKA)))
    java = [str(find_java().executable), HEAP, "-cp", classpath]
    formatting = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)]
    with (place / "broker.log").open("wb") as log:
        if subprocess.run(formatting, stdout=log, stderr=log, timeout=FORMAT_S, check=False).returncode:
            raise BenchFailed(f"Kafka's broker cannot be set up: {last_words(place / 'broker.log')}")
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
    broker = KafkaBroker(process, f"127.0.0.1:{port}")
    try:
        asyncio.run(wait_for_answer(broker))
        yield broker
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")[:SAID_CHARS]


async def wait_for_answer(broker: KafkaBroker) -> None:
    deadline = time.monotonic() + START_S
    while not broker.ended and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            (await LoadConnection.to(broker.address)).close()
            return
        await asyncio.sleep(LOOK_AGAIN_S)
    raise BenchFailed(f"Kafka's broker did not answer at {broker.address} within {START_S:.0f} s")


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in taken:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in taken]


def fill_broker(
    broker: KafkaBroker, topic: str, partitions: int, batches: Sequence[bytes], configs: Mapping[str, str] | None = None
) -> None:
    """Make a topic and give each of its partitions these record batches as they are."""

    async def story() -> None:
        line = await LoadConnection.to(broker.address)
        try:
            config = struct("CreateTopicsRequest.topics.configs")
            wanted = struct("CreateTopicsRequest.topics")(
                name=topic,
                num_partitions=partitions,
                replication_factor=1,
                configs=[config(name=name, value=value) for name, value in (configs or {}).items()],
            )
            request = struct("CreateTopicsRequest")(topics=[wanted], timeout_ms=30_000)
            check_code(
                (await line.send_request("CreateTopics", 4, request)).topics[0].error_code, f"making the topic {topic}"
            )
            for partition in range(partitions):
                await has_leader(line, topic, partition, batches[0])
                for start in range(1, len(batches), AT_ONCE):
                    sent = [produce_batch(line, topic, partition, batch) for batch in batches[start : start + AT_ONCE]]
                    for code in await asyncio.gather(*sent):
                        check_code(code, f"filling {topic}")
        finally:
            line.close()

    asyncio.run(story())


async def has_leader(line: LoadConnection, topic: str, partition: int, first: bytes) -> None:
    """A topic that was just made has none for a moment: its first batch is tried until there is one."""
    for _ in range(LEADER_TRIES):
        if not (code := await produce_batch(line, topic, partition, first)):
            return
        await asyncio.sleep(LOOK_AGAIN_S)
    check_code(code, f"filling {topic}")


async def produce_batch(line: LoadConnection, topic: str, partition: int, batch: bytes, acks: int = 1) -> int:
    """The error code of one batch; its requests go out in the order in which this is called."""
    data = struct("ProduceRequest.topic_data.partition_data")(index=partition, records=batch)
    told = struct("ProduceRequest.topic_data")(name=topic, partition_data=[data])
    request = struct("ProduceRequest")(acks=acks, timeout_ms=30_000, topic_data=[told])
    answer = await line.send_request("Produce", 9, request)
    return int(answer.responses[0].partition_responses[0].error_code)


def check_code(code: Any, doing: str) -> None:
    if code:
        raise BenchFailed(f"{doing}: Kafka's broker said error {code}")


# Where the broker of --kafka is
# ------------------------------


@dataclass(frozen=True, slots=True)
class PeerBroker:
    """A broker that answers at `address`, and the process whose time counts."""

    address: str
    pid: int


@contextlib.contextmanager
def find_peer_broker(place: str, home: str, delay_ms: int) -> Iterator[PeerBroker]:
    """Raises BenchFailed for a place that holds no broker, with what was expected there."""
    if ":" in place and not Path(place).exists():
        yield PeerBroker(place, listening_pid(place))
        return
    with running_broker(home, classpath(place), delay_ms) as broker:
        yield PeerBroker(broker.address, broker.pid)


def classpath(folder: str) -> str:
    """Of a distribution of Kafka, whose jars lie in `libs`, or of a folder of jars."""
    jars = sorted(Path(folder).glob("libs/*.jar")) or sorted(Path(folder).glob("*.jar"))
    if not any(jar.name.startswith("kafka_") for jar in jars):
        raise BenchFailed(
            f"no broker in {folder!r}: expected a folder of Kafka 4 with libs/kafka_2.13-*.jar, a folder with these "
            "jars, or the HOST:PORT of a broker that runs on this machine"
        )
    return os.pathsep.join(map(str, jars))


def listening_pid(address: str) -> int:
    """Of the process that listens at HOST:PORT here: its processor time is half of the comparison."""
    import psutil

    _, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise BenchFailed(f"{address!r} is no address; expected HOST:PORT, such as 127.0.0.1:9092")
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.pid and each.laddr and each.laddr.port == int(port):
            return int(each.pid)
    raise BenchFailed(
        f"no process that can be seen listens at {address}; its processor time is measured, so it has to run on this "
        "machine, as the same user"
    )
