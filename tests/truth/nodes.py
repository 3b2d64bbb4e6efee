"""The nodes that situations are played on: standalone, over a Kafka, or a cluster of three."""

import itertools
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from muster.coordinator.zookeeper.local_ensemble import free_port
from muster.workshop.bench.kafka_peer import KAFKA, find_jars
from tests.interop.kafka_broker import kafka_broker
from tests.support.cluster_nodes import ClusterNodes
from tests.support.group_coordinators import coordinator_of
from tests.support.kafka_backend.served import over
from tests.support.node import NodeProcess
from tests.support.zookeeper.servers import running as running_ensemble
from tests.truth.kafka_itself import KafkaItself
from tests.truth.proxy import Proxy

SESSION_MS, HEARTBEAT_MS = 6_000, 500

SETTINGS = {
    "kafka.listeners": "127.0.0.1:0",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "300",  # kafka-python can hang if the first rebalance takes no time
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
}


KAFKA_ITSELF = {"kafka-4.1-watched": "4.1.1", "kafka-3.9-watched": "3.9.1", "kafka-2.8-watched": "2.8.2"}
"""Backends where Kafka coordinates, and Muster reads its records: the broker's version."""

OF_ZOOKEEPER = "2.8"
"""A broker of this version has no mature KRaft."""

OF_KAFKA = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "300",
    "group.min.session.timeout.ms": "1000",
}
OF_KIP848 = {name: value for name, value in SETTINGS.items() if name.startswith("group.consumer.")}

BACKENDS = ("node", "kafka", "cluster", *KAFKA_ITSELF)


class Backend(Protocol):
    """The node or nodes of a situation.

    proxies: between clients and the node, if the network can be cut.
    topics_at: the Kafka that has the topics; empty: the node.
    """

    proxies: tuple[Proxy, ...]
    topics_at: str

    @property
    def address(self) -> str: ...

    @property
    def kafka_address(self) -> str: ...

    def freeze(self, group: str) -> None:
        """Stop the group's coordinator with SIGSTOP until `thaw`."""

    def thaw(self) -> None: ...

    def kill(self, group: str) -> None:
        """Kill the group's coordinator with SIGKILL."""

    def start(self) -> None:
        """Start what was killed."""

    def stop(self) -> None: ...


class SingleNode:
    """One node. proxied: clients reach it through proxies."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str], *, proxied: bool = False, topics_at: str = ""
    ) -> None:
        self.topics_at = topics_at
        self.proxies = (Proxy(), Proxy()) if proxied else ()
        told = [proxy.address for proxy in self.proxies]
        advertised = {"advertised.listeners": told[0], "kafka.advertised.listeners": told[1]} if told else {}
        self._node = NodeProcess(directory / "data", {**SETTINGS, **settings, **advertised})
        self._node.start()
        for proxy, address in zip(self.proxies, (self._node.address, self._node.kafka_address), strict=False):
            proxy.start(address)

    @property
    def address(self) -> str:
        return self.proxies[0].address if self.proxies else self._node.address

    @property
    def kafka_address(self) -> str:
        return self.proxies[1].address if self.proxies else self._node.kafka_address

    def freeze(self, group: str) -> None:
        self._node.freeze()

    def thaw(self) -> None:
        self._node.thaw()

    def kill(self, group: str) -> None:
        self._node.kill()

    def start(self) -> None:
        self._node.start()

    def stop(self) -> None:
        self._node.kill()
        for proxy in self.proxies:
            proxy.stop()


class ClusterOfThree:
    """Three nodes and a ZooKeeper."""

    proxies = ()
    topics_at = ""

    def __init__(self, directory: Path, connect: str, settings: Mapping[str, str]) -> None:
        self._cluster = ClusterNodes(directory, connect, settings={**SETTINGS, **settings})
        self._killed: list[int] = []
        self._cluster.start()

    @property
    def address(self) -> str:
        return self._cluster.address

    @property
    def kafka_address(self) -> str:
        return self._cluster.kafka_address

    def freeze(self, group: str) -> None:
        self._cluster.freeze(coordinator_of(self._cluster, group))

    def thaw(self) -> None:
        for number in list(self._cluster.frozen):
            self._cluster.thaw(number)

    def kill(self, group: str) -> None:
        number = coordinator_of(self._cluster, group)
        self._cluster.nodes[number].kill()
        self._killed.append(number)

    def start(self) -> None:
        while self._killed:
            self._cluster.nodes[self._killed.pop()].start()

    def stop(self) -> None:
        self._cluster.stop()


class Backends:
    """Starts nodes: a shared one for situations that do not disturb it, and one for each of the others. The Kafka or
    ZooKeeper below is started with the first node."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.kind = kind
        self._directory = directory
        self._shared: Backend | None = None
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._below_lock = threading.Lock()
        self._starting = threading.Lock()
        """Several brokers that start at once take longer than one after the other."""
        self._below = ExitStack()
        self._below_address = ""

    @contextmanager
    def node_for(
        self, settings: Mapping[str, str], *, own: bool, proxied: bool = False, brokers: int = 1
    ) -> Iterator[Backend]:
        """brokers: of a Kafka that is watched."""
        if not own and not settings:
            with self._lock:
                if self._shared is None:
                    self._shared = self._make({}, proxied=False)
            yield self._shared
            return
        node = self._make(settings, proxied=proxied, brokers=brokers)
        try:
            yield node
        finally:
            node.stop()

    def _make(self, settings: Mapping[str, str], *, proxied: bool, brokers: int = 1) -> Backend:
        directory = self._directory / f"node-{next(self._numbers)}"
        directory.mkdir(parents=True)
        if self.kind in KAFKA_ITSELF:
            version = KAFKA_ITSELF[self.kind]
            old = version.startswith(OF_ZOOKEEPER)
            zookeeper = f"{self._below_at()}/{directory.name}" if old else ""
            of_version = OF_KAFKA if old else {**OF_KAFKA, **OF_KIP848}
            with self._starting:
                return KafkaItself(directory, version, {**of_version, **settings}, brokers, zookeeper)
        if self.kind == "cluster":
            return ClusterOfThree(directory, f"{self._below_at()}/{directory.name}", settings)
        if self.kind == "kafka":
            ports = {"engine.kafka.broker.ports": str(free_port()), "engine.kafka.broker.id.first": "1"}
            settings = {**over(self._below_at(), directory.name), **ports, **settings}
            return SingleNode(directory, settings, proxied=proxied, topics_at=self._below_at())
        return SingleNode(directory, settings, proxied=proxied)

    def _below_at(self) -> str:
        with self._below_lock:
            if not self._below_address:
                begin = self._kafka if self.kind == "kafka" else self._zookeeper
                self._below_address = begin()
        return self._below_address

    def _zookeeper(self) -> str:
        return str(self._below.enter_context(running_ensemble(1)).connect)

    def _kafka(self) -> str:
        classpath = os.pathsep.join(map(str, find_jars(KAFKA)))
        more = "group.min.session.timeout.ms=1000\nauto.create.topics.enable=false\n"
        return self._below.enter_context(kafka_broker(classpath, self._directory / "kafka", more))

    def stop(self) -> None:
        if self._shared is not None:
            self._shared.stop()
        self._below.close()


@contextmanager
def running_backends(kind: str = "node") -> Iterator[Backends]:
    with tempfile.TemporaryDirectory(prefix="truth-", ignore_cleanup_errors=True) as directory:
        backends = Backends(Path(directory), kind)
        try:
            yield backends
        finally:
            backends.stop()
