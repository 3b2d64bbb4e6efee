"""Kafka Streams with exactly_once_v2 through nodes over a Kafka: killed once, or their node is, and each sum is written
once and right."""

from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from muster.client import Admin
from tests.integration.kafka_backend.conftest import kafka_classpath, real_kafka
from tests.interop.peers import streams_command
from tests.support.kafka.stage import Worker
from tests.support.kafka_backend.proxy_nodes import ProxyNodes, proxy_nodes
from tests.support.kafka_backend.served import make_topics
from tests.support.pace import until

__all__ = ["kafka_classpath", "real_kafka"]

pytestmark = pytest.mark.timeout(300)

PATIENCE_S: Final = 60.0
PARTITIONS: Final = 2
KEYS: Final = 7
RECORDS: Final = 3_000
AT_ONCE: Final = 20
AHEAD: Final = 300
"""So many records the application may be behind what is sent."""


@pytest.fixture(scope="module")
def nodes(real_kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyNodes]:
    with proxy_nodes(real_kafka.address, "streams", Path(tmp_path_factory.mktemp("streams"))) as running:
        yield running


class Sums:
    """What is put in, and what a read_committed reader finds of it, at the broker itself."""

    def __init__(self, kafka: str, given: str, made: str) -> None:
        make_topics(kafka, {given: PARTITIONS, made: PARTITIONS})
        self._given = given
        self._producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True, "linger.ms": 0})
        at_broker = {"bootstrap.servers": kafka, "group.id": f"{made}-reader", "enable.auto.commit": False}
        self._reader, self._witness = (
            Consumer(at_broker | {"isolation.level": f"read_{seen}"}) for seen in ("committed", "uncommitted")
        )
        for consumer in (self._reader, self._witness):
            consumer.assign([TopicPartition(made, number, 0) for number in range(PARTITIONS)])
        self._tried = 0
        self.sent: dict[str, list[int]] = {}
        self.found: dict[str, list[int]] = {}

    def put(self, numbers: range) -> None:
        for number in numbers:
            key = f"key-{number % KEYS}"
            self.sent.setdefault(key, []).append(number)
            self._producer.produce(self._given, str(number).encode(), key.encode())
        assert self._producer.flush(PATIENCE_S) == 0

    def read(self) -> int:
        """How many sums there are by now."""
        for message in self._reader.consume(1_000, 0.05):
            assert message.error() is None
            self.found.setdefault(message.key().decode(), []).append(int(message.value()))
        return sum(map(len, self.found.values()))

    def tried(self) -> int:
        """How many there are with those of transactions that are open, or were aborted."""
        self._tried += len(self._witness.consume(1_000, 0.05))
        return self._tried

    def in_transaction(self) -> bool:
        """Whether there are sums by now whose transaction is open."""
        return self.tried() > self.read()

    def close(self) -> None:
        self._reader.close()
        self._witness.close()

    @property
    def wanted(self) -> dict[str, list[int]]:
        return {key: list(accumulate(numbers)) for key, numbers in self.sent.items()}


class Application:
    """`instances`: the last one runs."""

    def __init__(self, *told: str) -> None:
        self._told = told
        self.instances: list[Worker] = []
        self.start()

    def start(self) -> None:
        name = f"instance-{len(self.instances)}"
        self.instances.append(Worker(name, streams_command("StreamsSums", *self._told, name)))

    def again(self) -> None:
        """Killed, and another one comes: with a state directory and transactional ids of its own."""
        self.instances[-1].kill()
        self.start()

    def __str__(self) -> str:
        return "\n".join(map(str, self.instances))


def owner_dies(nodes: ProxyNodes, group: str) -> Callable[[], None]:
    """What kills the node that coordinates the group, and starts it again."""

    def strike() -> None:
        with Admin(bootstrap_servers=nodes.address) as admin:
            at = admin.describe_group(group).coordinator
        node = next(node for node in nodes.nodes.values() if node.address == at)
        node.kill()
        node.start()

    return strike


@pytest.mark.parametrize("struck", ["application", "node"])
def test_sums_are_written_once_each_whoever_is_killed(real_kafka: Any, nodes: ProxyNodes, struck: str) -> None:
    group, given, made = (f"sums-{struck}{part}" for part in ("", "-in", "-out"))
    sums = Sums(real_kafka.address, given, made)
    application = Application(nodes.kafka_address, group, given, made)
    strike = application.again if struck == "application" else owner_dies(nodes, group)
    try:
        for first in range(0, RECORDS, AT_ONCE):
            sums.put(range(first, first + AT_ONCE))
            if first == RECORDS // 2:
                until(sums.in_transaction, lambda: f"{application}\n{nodes.log_tail()}")
                strike()
            until(lambda first=first: sums.read() >= first - AHEAD, lambda: f"{application}\n{nodes.log_tail()}")
        until(lambda: sums.read() >= RECORDS, lambda: f"{sums.read()} sums\n{application}\n{nodes.log_tail()}")
        assert sums.found == sums.wanted
        if struck == "application":
            until(lambda: sums.tried() > RECORDS, "it was killed in a transaction, which was aborted".__str__)
        with Admin(bootstrap_servers=nodes.address) as admin:
            until(lambda: committed(admin, group, given) == RECORDS, lambda: f"{committed(admin, group, given)}")
        assert group not in nodes.groups_upstream()
        assert nodes.past_muster(application.instances[-1:]) == []
        application.instances[-1].leave()
        until(lambda: application.instances[-1].ended == "left", lambda: f"{application}")
    finally:
        for instance in application.instances:
            instance.kill()
        sums.close()


def committed(admin: Admin, group: str, topic: str) -> int:
    """How many records its positions are past."""
    found = admin.group_offsets(group)
    return sum(position.offset for place, position in found.items() if place.topic == topic)
