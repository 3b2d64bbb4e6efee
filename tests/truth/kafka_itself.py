"""Apache Kafka itself as what situations are played on: what is reported is read from the records that it keeps.

Members read and commit, or there would be no sign of life: a producer writes to every topic while the broker runs.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from confluent_kafka import KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from muster.coordinator.config import Address
from muster.coordinator.kafka_backend.upstream.group_requests import (
    DescribedUpstreamGroup,
    describe_group,
    fetch_offsets,
)
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress, UpstreamError
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.zookeeper.local_ensemble import free_port, start_watchdog
from muster.workshop.bench.kafka_peer import find_jars
from tests.interop.kafka_broker import until_open
from tests.truth.proxy import Proxy

T = TypeVar("T")

FEED_S = 0.4
AGAIN_S = 0.2
ANSWER_S, PATIENCE_S = 10.0, 600.0
"""PATIENCE_S: three brokers on a busy machine take minutes until they serve; one that ends is noticed at once."""
PARTITIONS_OF_OFFSETS = 3

ANY = """
offsets.topic.num.partitions={offsets}
offsets.topic.replication.factor={brokers}
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
log.dirs={place}/logs
controlled.shutdown.enable=false
"""
KRAFT = """
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
controller.listener.names=CONTROLLER
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
"""
WITH_ZOOKEEPER = """
broker.id={number}
zookeeper.connect={zookeeper}
zookeeper.session.timeout.ms=4000
listeners=PLAINTEXT://127.0.0.1:{port}
inter.broker.protocol.version={release}
"""


class KafkaProcess:
    """One broker. `port` and `control`: where its clients and the other controllers find it."""

    def __init__(self, place: Path, classpath: str, number: int) -> None:
        self.number, self._place, self._classpath = number, place, classpath
        self.port, self.control = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: subprocess.Popen[bytes] | None = None
        place.mkdir(parents=True)

    @property
    def _java(self) -> list[str]:
        return [shutil.which("java") or "java", "-Xmx320m", "-XX:+UseSerialGC", "-cp", self._classpath]

    def set_up(self, properties: str, cluster: str) -> None:
        file = self._place / "server.properties"
        file.write_text(properties)
        if cluster:
            storage = [*self._java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file)]
            subprocess.run(storage, capture_output=True, check=True)

    def launch(self) -> None:
        with (self._place / "out.log").open("ab") as log:
            command = [*self._java, "kafka.Kafka", str(self._place / "server.properties")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self._lifeline = start_watchdog(self._process.pid)

    def wait_open(self) -> None:
        assert self._process is not None
        until_open(self.port, self._process, self._place / "out.log", PATIENCE_S)

    def send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    @property
    def dead(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        self.send(signal.SIGCONT)
        self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()


class Feeder:
    """Writes to each partition of the topics that it is told of, a few records a second."""

    def __init__(self, address: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": address, "log_level": 0, "message.timeout.ms": 10_000, "linger.ms": 20}
        )
        self._topics: dict[str, int] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def feed(self, topics: Mapping[str, int]) -> None:
        with self._lock:
            self._topics = {**self._topics, **topics}

    def starve(self, *topics: str) -> None:
        with self._lock:
            self._topics = {name: count for name, count in self._topics.items() if name not in topics}

    def _write(self) -> None:
        while not self._ended.wait(FEED_S):
            for topic, partitions in self._topics.items():
                for partition in range(partitions):
                    with contextlib.suppress(BufferError, KafkaException):
                        self._producer.produce(topic, b"x", partition=partition)
            self._producer.poll(0)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


class KafkaItself:
    """One broker, or three. version: of Maven's artefact, such as 4.1.1."""

    address = ""
    """No node of Muster's is there."""
    proxies: tuple[Proxy, ...] = ()

    def __init__(
        self, place: Path, version: str, settings: Mapping[str, str], brokers: int = 1, zookeeper: str = ""
    ) -> None:
        self.version = version
        release = re.match(r"\d+\.\d+", version)
        assert release is not None
        scala = f"org.apache.kafka:kafka_2.13:{version}"
        classpath = os.pathsep.join(map(str, find_jars(scala)))
        self._brokers = [KafkaProcess(place / f"broker-{n}", classpath, n) for n in range(1, brokers + 1)]
        self.places = tuple(place / f"broker-{n}" / "logs" for n in range(1, brokers + 1))
        voters = ",".join(f"{each.number}@127.0.0.1:{each.control}" for each in self._brokers)
        cluster = "" if zookeeper else self._random_id(classpath)
        for each in self._brokers:
            told = {
                "number": each.number,
                "port": each.port,
                "control": each.control,
                "voters": voters,
                "zookeeper": zookeeper,
                "release": release[0],
                "place": place / f"broker-{each.number}",
                "offsets": PARTITIONS_OF_OFFSETS,
                "brokers": brokers,
            }
            text = (ANY + (WITH_ZOOKEEPER if zookeeper else KRAFT)).format(**told)
            each.set_up(text + "".join(f"{name}={value}\n" for name, value in settings.items()), cluster)
        try:
            for each in self._brokers:
                each.launch()
            for each in self._brokers:
                each.wait_open()
            self.admin = admin_of(self._brokers)
            self._wait_known()
        except BaseException:
            self._kill()
            raise
        self.kafka_address = self.topics_at = addresses_of(self._brokers)
        self.feeder = Feeder(self.kafka_address)

    def _wait_known(self) -> None:
        """A broker takes connections before the others know it, on a busy machine a minute before."""
        deadline = time.monotonic() + PATIENCE_S
        known = 0
        while known < len(self._brokers):
            with contextlib.suppress(KafkaException):
                known = len(self.admin.list_topics(timeout=ANSWER_S).brokers)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{known} of {len(self._brokers)} brokers are known after {PATIENCE_S:g} s")
            time.sleep(AGAIN_S)

    @staticmethod
    def _random_id(classpath: str) -> str:
        command = ["java", "-cp", classpath, "kafka.tools.StorageTool", "random-uuid"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]

    def topic_ids(self, topic: str) -> dict[bytes, str]:
        """Names by id: as a reader would ask the broker, for records of KIP-848 groups have ids only."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            with contextlib.suppress(KafkaException):
                found = self.admin.describe_topics(TopicCollection([topic]))[topic].result(ANSWER_S).topic_id
                halves = found.get_most_significant_bits(), found.get_least_significant_bits()
                return {b"".join((each % (1 << 64)).to_bytes(8, "big") for each in halves): topic}
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker does not tell the id of {topic}")
            time.sleep(AGAIN_S)

    # A group's coordinator may be dead by now. librdkafka aborts the process then, so it is not asked by that.

    def positions(self, group: str) -> dict[tuple[str, int], int]:
        found = self._ask(lambda upstream: fetch_offsets(upstream, group)) or {}
        return {place: each.offset for place, each in found.items()}

    def describe(self, group: str) -> DescribedUpstreamGroup | None:
        """None: nobody answers for it now."""
        return self._ask(lambda upstream: describe_group(upstream, group))

    def _ask(self, question: Callable[[Upstream], Awaitable[T]]) -> T | None:
        async def ask() -> T:
            places = [Address("127.0.0.1", each.port) for each in self._brokers if not each.dead]
            upstream = Upstream(UpstreamAddress(tuple(places)))
            try:
                async with asyncio.timeout(ANSWER_S):
                    return await question(upstream)
            finally:
                upstream.close()

        with contextlib.suppress(UpstreamError, TimeoutError):
            return asyncio.run(ask())
        return None

    def _coordinator(self, group: str) -> KafkaProcess:
        number = self.admin.describe_consumer_groups([group])[group].result(ANSWER_S).coordinator.id
        return next(each for each in self._brokers if each.number == number)

    def freeze(self, group: str) -> None:
        self._coordinator(group).send(signal.SIGSTOP)

    def thaw(self) -> None:
        for each in self._brokers:
            each.send(signal.SIGCONT)

    def kill(self, group: str) -> None:
        """And ask the others from now on: a client that waits for an answer of a dead one may abort the process."""
        dead = self._coordinator(group)
        living = [each for each in self._brokers if each is not dead] or [dead]
        self.admin = admin_of(living)
        dead.kill()

    def start(self) -> None:
        """A broker alone has to come back; of three, the others take over."""
        if len(self._brokers) == 1:
            self._brokers[0].launch()
            self._brokers[0].wait_open()

    def stop(self) -> None:
        self.feeder.stop()
        self._kill()

    def _kill(self) -> None:
        for each in self._brokers:
            each.kill()


def addresses_of(brokers: Sequence[KafkaProcess]) -> str:
    return ",".join(f"127.0.0.1:{each.port}" for each in brokers)


def admin_of(brokers: Sequence[KafkaProcess]) -> AdminClient:
    return AdminClient({"bootstrap.servers": addresses_of(brokers), "log_level": 0})
