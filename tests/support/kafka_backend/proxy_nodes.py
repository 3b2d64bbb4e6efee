"""Several nodes over one real Kafka as Kafka's own clients meet them: each with a door, and a port for the broker."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka.admin import AdminClient

from tests.support.kafka.stage import NODE, Worker
from tests.support.kafka_backend.proxied import free_ports
from tests.support.kafka_backend.served import over
from tests.support.node import NodeProcess, SeveralNodes

BROKER: Final = 1
"""The id of the tests' broker."""
LEASE_MS: Final = 3_000
LONG_SESSION_MS: Final = 30_000
"""Of members that are to outlive a node that is killed, on a busy machine too."""
ASK_S: Final = 30.0


class ProxyNodes(SeveralNodes):
    """By node id, from 1 on. A node keeps its ports over its lives."""

    def __init__(self, kafka: str, cluster: str, place: Path, count: int = 2) -> None:
        self.kafka = kafka
        self.nodes = {
            number: NodeProcess(place / f"n{number}", self._settings(cluster, number)) for number in numbered(count)
        }

    def _settings(self, cluster: str, number: int) -> dict[str, str]:
        [port] = free_ports(1)
        more = {
            "node.id": str(number),
            "engine.kafka.broker.ports": str(port),
            "engine.kafka.broker.id.first": str(BROKER),
            "engine.kafka.session.timeout.ms": str(LEASE_MS),
            "engine.kafka.heartbeat.interval.ms": "300",
            "group.consumer.session.timeout.ms": str(LONG_SESSION_MS),
        }
        return {**over(self.kafka, cluster), **NODE, **more}

    def groups_upstream(self) -> set[str]:
        """As Kafka itself has them."""
        admin = AdminClient({"bootstrap.servers": self.kafka})  # what it was asked for is lost with it
        found = admin.list_consumer_groups().result(timeout=ASK_S)
        return {each.group_id for each in found.valid}

    def past_muster(self, workers: Sequence[Worker]) -> list[str]:
        """Those of these processes that have a connection to the broker itself."""
        port = int(self.kafka.rpartition(":")[2])
        return [worker.name for worker in workers if port in ports_of(worker.process.pid)]


def numbered(count: int) -> range:
    return range(1, count + 1)


def ports_of(pid: int) -> set[int]:
    """The other ends of its connections."""
    try:
        found = psutil.Process(pid).net_connections("tcp")
    except psutil.NoSuchProcess:
        return set()
    return {each.raddr.port for each in found if each.raddr}


@contextmanager
def proxy_nodes(kafka: str, cluster: str, place: Path, count: int = 2) -> Iterator[ProxyNodes]:
    nodes = ProxyNodes(kafka, cluster, place, count)
    try:
        with ThreadPoolExecutor(count) as beside:
            list(beside.map(NodeProcess.start, nodes.nodes.values()))
        yield nodes
    finally:
        for node in nodes.nodes.values():
            node.stop()
