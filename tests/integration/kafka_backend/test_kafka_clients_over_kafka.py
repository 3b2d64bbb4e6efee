"""Unmodified Kafka clients whose bootstrap.servers is a node over their Kafka: groups are Muster's, records Kafka's."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from muster.client import Admin
from muster.client.errors import ClientError
from tests.support.kafka.client import KafkaClient
from tests.support.kafka_backend.door import BROKER
from tests.support.kafka_backend.door import DoorNode as Node
from tests.support.kafka_backend.served import make_topics
from tests.support.node import MUSTER
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PATIENCE_S = 90.0
PARTITIONS: Final = 6
RECORDS: Final = 600
NODES_FROM: Final = 1_000_000
"""Clients see nodes behind this id, unless engine.kafka.node.id.base says another."""


@pytest.fixture(scope="module")
def nodes(real_kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Node]]:
    make_topics(real_kafka.address, {"passes": PARTITIONS})
    place = Path(tmp_path_factory.mktemp("passes"))
    both = {number: Node(real_kafka.address, "passes", number, place) for number in (1, 2)}
    with ExitStack() as stack:
        for node in both.values():
            stack.callback(node.stop)
            node.start()
        yield both


def until(holds: Callable[[], bool], what: str, nodes: dict[int, Node]) -> None:
    patience = Patience(PATIENCE_S)
    while not holds():
        tails = "\n".join(node.log_tail() for node in nodes.values())
        assert patience.lasts(), f"not within {PATIENCE_S} s: {what}\n{tails}"


def produce(servers: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    failed: list[Any] = []
    for number in range(first, first + RECORDS):
        producer.produce(
            "passes",
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


class Readers:
    """Two members of a group; what each has read."""

    def __init__(self, servers: str, group: str, **more: Any) -> None:
        self.read: list[int] = []
        self.revoked: list[Any] = []
        given = {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **more,
        }
        self.members = [Consumer(given) for _ in range(2)]
        for member in self.members:
            member.subscribe(["passes"], on_revoke=lambda _, partitions: self.revoked.append(partitions))

    def poll(self) -> None:
        for member in self.members:
            message = member.poll(0.01)
            if message is not None and message.error() is None:
                self.read.append(int(message.value()))

    def has(self, count: int) -> bool:
        self.poll()
        return len(set(self.read)) >= count

    @property
    def shared(self) -> bool:
        self.poll()
        owned = [{(each.topic, each.partition) for each in member.assignment()} for member in self.members]
        return all(owned) and sum(map(len, owned)) == len(set().union(*owned)) == PARTITIONS

    def close(self) -> None:
        for member in self.members:
            member.close()


def stood(admin: Admin, group: str) -> tuple[str, int]:
    """Its state, and how many rebalances it had. While its shard moves nobody can tell."""
    try:
        return admin.describe_group(group).state, len(admin.explain(group))
    except ClientError:
        return "", 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_confluent_kafka_outlives_the_node_that_owns_it(
    nodes: dict[int, Node], kafka: str, protocol: str
) -> None:
    servers = ",".join(node.kafka_address for node in nodes.values())
    group = f"reads-{protocol}"
    more = {"group.protocol": protocol} if protocol == "consumer" else {"session.timeout.ms": 45_000}
    before = 0 if protocol == "classic" else 2 * RECORDS
    produce(servers, before)
    readers = Readers(servers, group, **more)
    try:
        until(lambda: readers.shared, "both members have their share", nodes)
        until(lambda: readers.has(before + RECORDS), "all was read", nodes)
        for member in readers.members:
            member.commit(asynchronous=False)
        with Admin(bootstrap_servers=",".join(node.address for node in nodes.values())) as admin:
            described = admin.describe_group(group)
            owner = next(number for number, node in nodes.items() if node.address == described.coordinator)
            rebalances = len(admin.explain(group))
            nodes[owner].kill()
            survivor = nodes[3 - owner]
            produce(survivor.kafka_address, before + RECORDS)
            until(lambda: readers.has(before + 2 * RECORDS), "all was read behind the kill", nodes)
            nodes[owner].start()
            until(lambda: stood(admin, group) == (described.state, rebalances), "it is as it was", nodes)
        assert sorted(set(readers.read)) == list(range(before + 2 * RECORDS))
        broker = AdminClient({"bootstrap.servers": kafka})  # what it was asked for is lost with it
        there = broker.list_consumer_groups().result(timeout=30)
        assert group not in [each.group_id for each in there.valid]
    finally:
        readers.close()


def test_a_broker_without_a_port_is_said_at_the_start(nodes: dict[int, Node], tmp_path: Path) -> None:
    settings = {**nodes[1].settings, "kafka.listeners": "127.0.0.1:0", "engine.kafka.broker.id.first": "5"}
    command = [MUSTER, "serve", "--listen", "127.0.0.1:0"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    nodes[1].stop()  # its ports are wanted
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    nodes[1].start()
    assert ended.returncode == 1
    port = nodes[1].ports[0]
    told = f"a broker of id 1, and engine.kafka.broker.ports ({port}-{port}) has ports for the ids 5 to 5"
    assert told in ended.stderr


def test_the_demo_proves_what_it_promises(kafka: str) -> None:
    command = [MUSTER, "demo", "--engine", f"kafka://{kafka}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "all of it holds" in ended.stdout
    there = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=30)
    assert not [topic for topic in there.topics if topic.startswith("muster-demo")]


def test_a_node_that_begins_tells_clients_of_all_nodes_or_has_them_wait(nodes: dict[int, Node]) -> None:
    """Who hears that there is one only gives up the others: librdkafka, the coordinator of its groups."""
    begins = nodes[2]
    begins.kill()

    async def first_told() -> set[int]:
        starting = asyncio.create_task(asyncio.to_thread(begins.start))
        host, port = begins.kafka_address.split(":")
        patience = Patience(PATIENCE_S)
        try:
            while patience.lasts():
                with suppress(OSError):  # its port is not taken yet
                    async with KafkaClient(host, int(port)) as client:
                        told = await client.ask("Metadata", 8, topics=[])
                        return {each.node_id for each in told.brokers}
        finally:
            await starting
        raise AssertionError(f"nobody was let in within {PATIENCE_S} s")

    assert asyncio.run(first_told()) == {BROKER, NODES_FROM + 1, NODES_FROM + 2}
