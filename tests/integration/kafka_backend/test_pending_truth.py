"""What Kafka's own group coordinator makes of positions that wait for a transaction: the rules that Muster follows."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PATIENCE_S = 30
TOPIC = "truth"


@pytest.fixture
def clients(kafka: str, request: pytest.FixtureRequest) -> Iterator[tuple[Consumer, Producer, AdminClient]]:
    """A group of its own for each test; the producer's transaction is begun, and has position 5 of the group."""
    group = request.node.name
    admin = AdminClient({"bootstrap.servers": kafka})
    if TOPIC not in admin.list_topics(timeout=PATIENCE_S).topics:
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": f"{group}.app"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, 5)], consumer.consumer_group_metadata(), PATIENCE_S)
    yield consumer, producer, admin
    consumer.close()


def committed(consumer: Consumer) -> int:
    [found] = consumer.committed([TopicPartition(TOPIC, 0)], timeout=PATIENCE_S)
    return int(found.offset)


def test_a_commit_behind_it_is_the_later_word(clients: tuple[Consumer, Producer, AdminClient]) -> None:
    consumer, producer, _ = clients
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 3)], asynchronous=False)
    producer.commit_transaction(PATIENCE_S)
    assert committed(consumer) == 3


def test_a_group_that_is_deleted_takes_along_what_waits(clients: tuple[Consumer, Producer, AdminClient]) -> None:
    consumer, producer, admin = clients
    group = "test_a_group_that_is_deleted_takes_along_what_waits"
    admin.delete_consumer_groups([group])[group].result(PATIENCE_S)
    producer.commit_transaction(PATIENCE_S)
    assert committed(consumer) < 0
