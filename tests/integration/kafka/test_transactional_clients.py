"""Transactional producers that nobody here wrote, and nodes that are killed in the middle of their transactions."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

from tests.support.node import NodeProcess, running_node
from tests.support.pace import Patience

pytestmark = pytest.mark.integration

PARTITIONS = 3
KAFKA = {"kafka.listeners": "127.0.0.1:0", "transaction.state.log.num.partitions": "4"}
PATIENCE_S = 30.0
numbers = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("transactions") / "data"), KAFKA) as running:
        yield running


def new_topic(node: NodeProcess) -> str:
    topic = f"topic-{next(numbers)}"
    make_topic(AdminClient({"bootstrap.servers": node.kafka_address}), topic, PARTITIONS)
    return topic


def make_topic(admin: AdminClient, topic: str, partitions: int) -> None:
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE_S)


@pytest.fixture
def topic(node: NodeProcess) -> str:
    return new_topic(node)


def read(node: NodeProcess, topic: str, level: str = "read_committed") -> list[bytes]:
    """All that such a reader gets, up to the ends that it is told of, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka_address,
            "group.id": f"reader-{next(numbers)}",
            "isolation.level": level,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[bytes] = []
    ended: set[int] = set()
    patience = Patience(PATIENCE_S)
    while len(ended) < PARTITIONS:
        assert patience.lasts(), f"{topic}: no end was told of {PARTITIONS - len(ended)} partitions"
        message = consumer.poll(1.0)
        if message is not None and message.error():
            ended.add(message.partition())
        elif message is not None:
            found.append(message.value())
    consumer.close()
    return sorted(found)


def producer_of(node: NodeProcess, name: str, **more: object) -> Producer:
    producer = Producer({"bootstrap.servers": node.kafka_address, "transactional.id": name, "log_level": 0} | more)
    producer.init_transactions(PATIENCE_S)
    return producer


def send(producer: Producer, topic: str, *values: bytes) -> None:
    for place, value in enumerate(values):
        producer.produce(topic, value, partition=place % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def by_confluent(node: NodeProcess, topic: str) -> None:
    producer = producer_of(node, topic)
    for number in range(4):
        producer.begin_transaction()
        send(producer, topic, *(b"%d-%d" % (number, each) for each in range(6)))
        if number % 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)


def by_kafka_python(node: NodeProcess, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=node.kafka_address, transactional_id=topic)
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        for each in range(6):
            producer.send(topic, b"%d-%d" % (number, each), partition=each % PARTITIONS).get(PATIENCE_S)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()


def by_aiokafka(node: NodeProcess, topic: str) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=node.kafka_address, transactional_id=topic)
        await producer.start()
        for number in range(4):
            await producer.begin_transaction()
            for each in range(6):
                await producer.send_and_wait(topic, b"%d-%d" % (number, each), partition=each % PARTITIONS)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
        await producer.stop()

    asyncio.run(run())


@pytest.mark.parametrize("produce", [by_confluent, by_kafka_python, by_aiokafka])
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    node: NodeProcess, topic: str, produce: Callable[[NodeProcess, str], None]
) -> None:
    produce(node, topic)
    assert read(node, topic) == sorted(b"%d-%d" % (number, each) for number in (0, 2) for each in range(6))
    assert len(read(node, topic, "read_uncommitted")) == 24


def test_a_second_instance_fences_the_first_and_aborts_what_it_had_open(node: NodeProcess, topic: str) -> None:
    zombie = producer_of(node, topic)
    zombie.begin_transaction()
    send(zombie, topic, b"undone")
    living = producer_of(node, topic)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(PATIENCE_S)
    assert fenced.value.args[0].fatal()
    living.begin_transaction()
    send(living, topic, b"done")
    living.commit_transaction(PATIENCE_S)
    assert read(node, topic) == [b"done"]


def test_who_falls_silent_holds_readers_back_for_its_timeout_and_no_longer(node: NodeProcess, topic: str) -> None:
    silent = producer_of(node, topic, **{"transaction.timeout.ms": 2_000})
    silent.begin_transaction()
    send(silent, topic, b"a", b"b", b"c")
    other = Producer({"bootstrap.servers": node.kafka_address})
    other.produce(topic, b"plain", partition=0)
    assert other.flush(PATIENCE_S) == 0
    assert read(node, topic) == []
    patience = Patience(PATIENCE_S)
    while read(node, topic) != [b"plain"]:
        assert patience.lasts(), "the silent producer's transaction was not ended"


def test_a_node_that_is_killed_keeps_what_was_committed_and_what_is_open(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", KAFKA) as node:
        topic = new_topic(node)
        producer = producer_of(node, "app")
        open_one = producer_of(node, "open", **{"transaction.timeout.ms": 600_000})
        open_one.begin_transaction()
        send(open_one, topic, b"later")
        kept = []
        for number in range(2):
            producer.begin_transaction()
            kept.append(b"%d" % number)
            send(producer, topic, kept[-1])
            producer.commit_transaction(PATIENCE_S)
            node.kill()
            node.start()
        producer.begin_transaction()
        send(producer, topic, b"more")
        producer.commit_transaction(PATIENCE_S)
        open_one.commit_transaction(PATIENCE_S)
        assert read(node, topic) == sorted([*kept, b"later", b"more"])


@pytest.mark.parametrize("killed", [False, True])
def test_a_topic_that_is_made_again_with_fewer_partitions_holds_up_no_transaction(tmp_path: Path, killed: bool) -> None:
    """The marker of a partition that there will never be was waited for, and the id could not be used any more."""
    with running_node(tmp_path / "data", KAFKA) as node:
        topic, other = new_topic(node), new_topic(node)
        producer = producer_of(node, "app")
        producer.begin_transaction()
        for number in range(PARTITIONS):
            producer.produce(topic, b"lost", partition=number)
        send(producer, other, b"kept")
        admin = AdminClient({"bootstrap.servers": node.kafka_address})
        admin.delete_topics([topic])[topic].result(PATIENCE_S)
        make_topic(admin, topic, 1)
        if killed:
            node.kill()
            node.start()
        producer.commit_transaction(PATIENCE_S)
        producer.begin_transaction()
        send(producer, other, b"next")
        producer.commit_transaction(PATIENCE_S)
        assert read(node, other) == [b"kept", b"next"]
