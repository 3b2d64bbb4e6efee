"""How long nobody works on a partition that changes hands, when the next owner has to load first: warm against cold.

Both in one run, between two workers in this process. The old owner works until its callback returns. Cold, the new one
loads once it owns the partition; warm, it loads when it hears of it, says so, and the old one lets go then.
"""

import statistics
import threading
import time
from collections.abc import Iterator

from muster.client import Admin, RebalanceEvent, TopicPartition, Worker
from muster.workshop.bench.processes import LOAD_CORE, BenchFailed, ServerProcess, pinned, run_node
from muster.workshop.bench.rows import BenchRow, less_is_better

LOAD_S = 2.0
"""What a member needs to load before it can work on a partition."""
TAKEOVER_ROUNDS = 3
PATIENCE_S = 60.0
TAKEOVER_GOAL = 5.0
"""Work is resumed in so much less of the time."""


class PartitionTakeover:
    """One of two partitions goes from one worker to another: when one stopped working on it, and the other began."""

    def __init__(self, server: ServerProcess, group_id: str, *, warm: bool) -> None:
        self._warm = warm
        self._stopped_s: dict[TopicPartition, float] = {}
        self._begun_s: dict[TopicPartition, float] = {}
        self._loaded: set[TopicPartition] = set()
        self._done, self._over = threading.Event(), threading.Event()
        properties = {"bootstrap.servers": server.address, "group.id": group_id, "group.protocol": "consumer"}
        self._old, self._new = Worker(properties), Worker(properties)

    def seconds(self, topic: str) -> float:
        """Without anybody at work on what moved."""
        self._old.join(topics=[topic], on_lose=self._stop)
        until = time.monotonic() + PATIENCE_S
        while len(self._old.owned()) < 2 and time.monotonic() < until:
            self._old.poll(0.1)
        self._new.join(topics=[topic], on_gain=self._begin, on_prepare=self._prepare if self._warm else None)
        threads = [threading.Thread(target=self._run, args=(worker,)) for worker in (self._old, self._new)]
        for thread in threads:
            thread.start()
        came = self._done.wait(PATIENCE_S)
        self._over.set()
        for thread in threads:
            thread.join()
        self._new.close()
        self._old.close()
        if not came:
            raise BenchFailed(f"nothing changed hands within {PATIENCE_S:.0f} s; is the machine very busy?")
        (moved,) = self._begun_s
        return self._begun_s[moved] - self._stopped_s[moved]

    def _run(self, worker: Worker) -> None:
        while not self._over.is_set():
            worker.poll(0.1)

    def _stop(self, _worker: Worker, partition: TopicPartition, event: RebalanceEvent) -> None:
        if self._warm and not self._over.is_set():
            event.wait_until_ready(PATIENCE_S)
        self._stopped_s.setdefault(partition, time.perf_counter())

    def _prepare(self, _worker: Worker, partition: TopicPartition, event: RebalanceEvent) -> None:
        self._load(partition)
        event.ready()

    def _begin(self, _worker: Worker, partition: TopicPartition, _event: RebalanceEvent) -> None:
        if partition not in self._loaded:
            self._load(partition)
        self._begun_s[partition] = time.perf_counter()
        self._done.set()

    def _load(self, partition: TopicPartition) -> None:
        time.sleep(LOAD_S)
        self._loaded.add(partition)


def measure_warm_takeover(name: str, home: str) -> Iterator[BenchRow]:
    with pinned(LOAD_CORE), run_node(home, {}) as server:
        with Admin(bootstrap_servers=server.address) as admin:
            admin.create_topic("work", partitions=2)
        cold = [
            PartitionTakeover(server, f"cold-{count}", warm=False).seconds("work") for count in range(TAKEOVER_ROUNDS)
        ]
        warm = [
            PartitionTakeover(server, f"warm-{count}", warm=True).seconds("work") for count in range(TAKEOVER_ROUNDS)
        ]
    value, peer = (statistics.median(seconds) * 1e3 for seconds in (warm, cold))
    case = f"{name}: work on a partition goes on elsewhere, {LOAD_S:g} s to load, warm"
    yield less_is_better(case, value, "ms", "cold", peer, TAKEOVER_GOAL)
