"""Three real nodes of a cluster, in processes of their own, at a real ZooKeeper."""

import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from kazoo.client import KazooClient

from tests.support.node import NodeProcess, SeveralNodes

SHARDS = 4
SESSION_MS = 3_000

SETTINGS = {
    "inter.broker.listeners": "127.0.0.1:0",
    "kafka.listeners": "127.0.0.1:0",
    "offsets.topic.num.partitions": str(SHARDS),
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "50",
    "replica.lag.time.max.ms": "2000",
}


class ClusterNodes(SeveralNodes):
    """By node id, from 1 on. A node keeps its directory and its clients' ports over its lives."""

    def __init__(
        self, directory: Path, connect: str, nodes: int = 3, settings: Mapping[str, str] | None = None
    ) -> None:
        self._connect = connect
        self.nodes = {
            number: NodeProcess(
                directory / f"node{number}",
                {**SETTINGS, "zookeeper.connect": connect, "node.id": str(number), **(settings or {})},
            )
            for number in range(1, nodes + 1)
        }
        self.frozen: set[int] = set()

    def start(self) -> None:
        """The first becomes controller; the others start beside each other."""
        first, *others = self.nodes.values()
        first.start()
        with ThreadPoolExecutor(max(1, len(others))) as beside:
            list(beside.map(NodeProcess.start, others))

    def until_session_is_over(self, number: int) -> None:
        """Of a node that was killed: its registration is gone."""
        client = KazooClient(self._connect)
        client.start()
        try:
            gone = threading.Event()
            while client.exists(f"/brokers/ids/{number}", watch=lambda event: gone.set()) is not None:
                gone.wait()
                gone.clear()
        finally:
            client.stop()
            client.close()

    def controller(self) -> int:
        """The node that holds `/controller`."""
        client = KazooClient(self._connect)
        client.start()
        try:
            return int(json.loads(client.get("/controller")[0])["brokerid"])
        finally:
            client.stop()
            client.close()

    def freeze(self, number: int) -> None:
        """SIGSTOP: it stands still, and its connections stay."""
        os.kill(self.nodes[number].pid, signal.SIGSTOP)
        self.frozen.add(number)

    def thaw(self, number: int) -> None:
        self.frozen.discard(number)
        os.kill(self.nodes[number].pid, signal.SIGCONT)

    def stop(self) -> None:
        for number in list(self.frozen):
            self.thaw(number)
        for node in self.nodes.values():
            node.kill()


@contextmanager
def running_cluster(
    directory: Path, connect: str, nodes: int = 3, settings: Mapping[str, str] | None = None
) -> Iterator[ClusterNodes]:
    cluster = ClusterNodes(directory, connect, nodes, settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
