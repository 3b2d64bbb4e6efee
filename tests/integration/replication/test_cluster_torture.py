"""kill -9 of one node after the other under load: no acknowledged record and no acknowledged offset is lost.

TORTURE_ROUNDS says how often; CL-T5 asks for 200, which take a quarter of an hour.
"""

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.numbered_records import PARTITIONS, PATIENCE_S, TOPIC, Numbered
from tests.support.pace import Patience

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "6"))

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120 + 20 * ROUNDS)]


class Commits:
    """Offsets that only rise, committed without a group of members, and the last of each that was acknowledged."""

    def __init__(self, cluster: ClusterNodes) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": cluster.kafka_address, "group.id": "torture", "enable.auto.commit": False}
            | {"socket.timeout.ms": 3_000, "log_level": 0}
        )
        self.acked: dict[int, int] = {}
        self.count = 0
        self._at = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.is_set():
            self._at += 1
            partition = self._at % PARTITIONS
            try:
                self._consumer.commit(offsets=[TopicPartition(TOPIC, partition, self._at)], asynchronous=False)
            except KafkaException:
                continue  # it was not acknowledged, and may have been done
            self.acked[partition] = self._at
            self.count += 1

    def check(self) -> None:
        """What is kept is what was acknowledged last, or one that was sent later."""
        found = self._consumer.committed([TopicPartition(TOPIC, each) for each in self.acked], timeout=PATIENCE_S)
        kept = {each.partition: each.offset for each in found}
        assert {part: (at, kept[part]) for part, at in self.acked.items() if not at <= kept[part] <= self._at} == {}

    @contextmanager
    def going_on(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()


def killed_again_and_again(cluster: ClusterNodes, rounds: int) -> None:
    draw = random.Random(20)
    work, commits = Numbered(cluster), Commits(cluster)
    with commits.going_on():
        for _ in range(rounds):
            work.send(300)
            victim = cluster.nodes[draw.choice(list(cluster.nodes))]
            work.begin(300)
            victim.kill()
            work.finish()
            victim.start()
            work.send(100)
            work.until_in_sync()
        before, patience = commits.count, Patience(PATIENCE_S)
        while commits.count == before:
            assert patience.lasts(), cluster.log_tail()
    work.check()
    commits.check()
    assert commits.count > rounds
    print(f"{rounds} kills, {len(work.acked)} records and {commits.count} commits acknowledged, none lost")


def test_kill_after_kill_under_load(zookeeper: str, tmp_path: Path) -> None:
    """CL-T5."""
    with running_cluster(tmp_path, zookeeper) as cluster:
        killed_again_and_again(cluster, ROUNDS)


def test_kill_after_kill_where_nobody_flushes(zookeeper: str, tmp_path: Path) -> None:
    """CL-T5: who is killed leaves his writes with the system, and nothing is lost by that either."""
    with running_cluster(tmp_path, zookeeper, settings={"log.flush.interval.messages": str(2**63 - 1)}) as cluster:
        killed_again_and_again(cluster, max(2, ROUNDS // 3))
