"""Console producers and consumers of Kafka 0.8.2 to 1.1, of both kinds, against a node of today."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from tests.era.releases import SCALA, run_program
from tests.support.node import NodeProcess, running_node
from tests.support.pace import Patience

pytestmark = pytest.mark.integration

LINES = [f"line {number}" for number in range(300)]
PATIENCE_S = 30.0
WITH_OLD_PRODUCER = {"0.8.2.2": [], "0.9.0.1": ["--old-producer"], "0.10.2.2": ["--old-producer"]}
"""What makes the console's producer the Scala one. 0.8.2 has the Java one as an offer."""
WITH_NEW_PRODUCER = {"0.8.2.2": ["--new-producer"]} | {release: [] for release in SCALA if release != "0.8.2.2"}
PRODUCERS = [*WITH_OLD_PRODUCER.items(), *WITH_NEW_PRODUCER.items()]
numbers = count()


@pytest.fixture(scope="module")
def connect(zookeeper_server: LocalEnsemble) -> str:
    return f"{zookeeper_server.connect}/era-clients"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, connect: str) -> Iterator[NodeProcess]:
    more = {"kafka.listeners": "127.0.0.1:0", "zookeeper.connect": connect}
    with running_node(tmp_path_factory.mktemp("era") / "data", more) as node:
        yield node


def new_topic(node: NodeProcess, partitions: int = 1) -> str:
    topic = f"era-{next(numbers)}"
    admin = AdminClient({"bootstrap.servers": node.kafka_address})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE_S)
    return topic


def read(node: NodeProcess, topic: str) -> list[str]:
    told = {"bootstrap.servers": node.kafka_address, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer(told)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    patience = Patience(PATIENCE_S)
    while True:
        assert patience.lasts(), f"{topic} has no end; {len(found)} records were read"
        message = consumer.poll(1.0)
        if message is not None and message.error():
            break
        if message is not None:
            found.append((message.value() or b"").decode())
    consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize(("release", "how"), PRODUCERS, ids=[f"{release}{''.join(how)}" for release, how in PRODUCERS])
def test_what_a_console_producer_sends_is_read_by_a_client_of_today(
    node: NodeProcess, release: str, how: list[str], codec: str
) -> None:
    """Consoles before 0.11 want no answer (acks=0), and close their connection behind the last record."""
    topic = new_topic(node)
    told = ["--broker-list", node.kafka_address, "--topic", topic, *how]
    if codec != "none":
        told += ["--compression-codec", codec]
    run_program(release, "kafka.tools.ConsoleProducer", *told, said="".join(f"{line}\n" for line in LINES))
    assert read(node, topic) == LINES


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
@pytest.mark.parametrize("release", ["0.8.2.2", "0.9.0.1", "0.10.2.2"])
def test_a_scala_consumer_keeps_its_positions_where_it_says(
    tmp_path: Path, node: NodeProcess, connect: str, release: str, storage: str
) -> None:
    """`offsets.storage=kafka` is the second step of a group's way out of ZooKeeper."""
    topic, group = new_topic(node, 2), f"old-{next(numbers)}"
    producer = Producer({"bootstrap.servers": node.kafka_address})
    for number, line in enumerate(LINES):
        producer.produce(topic, line.encode(), partition=number % 2)
    assert producer.flush(PATIENCE_S) == 0
    told = tmp_path / "consumer.properties"
    told.write_text(f"group.id={group}\noffsets.storage={storage}\ndual.commit.enabled=false\n")
    found = run_program(
        *(release, "kafka.tools.ConsoleConsumer", "--zookeeper", connect, "--topic", topic),
        *("--consumer.config", str(told), "--from-beginning", "--max-messages", str(len(LINES))),
    )
    assert sorted(found.split("\n")[:-1]) == sorted(LINES)
    consumer = Consumer({"bootstrap.servers": node.kafka_address, "group.id": group})
    places = consumer.committed([TopicPartition(topic, number) for number in range(2)], PATIENCE_S)
    assert [each.offset for each in places] == [150, 150]
    consumer.close()
