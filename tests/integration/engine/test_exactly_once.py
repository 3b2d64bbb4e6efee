"""Exactly-once through a node: an unmodified client's transactions have positions of a group of Muster's in them."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.engine.door import DoorNode
from tests.support.engine.served import make_topics
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PATIENCE_S: Final = 60.0
INPUT, OUTPUT = "eos-in", "eos-out"
FENCED = -144
"""librdkafka's own code for a producer that a later one has taken the place of."""


@pytest.fixture(scope="module")
def nodes(real_kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, DoorNode]]:
    make_topics(real_kafka.address, {INPUT: 2, OUTPUT: 1})
    place = Path(tmp_path_factory.mktemp("eos"))
    both = {number: DoorNode(real_kafka.address, "eos", number, place) for number in (1, 2)}
    with ExitStack() as stack:
        for node in both.values():
            stack.callback(node.stop)
            node.start()
        yield both


@pytest.fixture
def servers(nodes: dict[int, DoorNode]) -> str:
    return ",".join(node.kafka_address for node in nodes.values())


def member(servers: str, group: str, **more: Any) -> Consumer:
    given = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        **more,
    }
    return Consumer(given)


def producer(servers: str, name: str, **more: Any) -> Producer:
    made = Producer({"bootstrap.servers": servers, "transactional.id": name, **more})
    made.init_transactions(PATIENCE_S)
    return made


def committed(consumer: Consumer, partition: int = 0) -> int:
    """With require_stable: it waits for what is open."""
    [found] = consumer.committed([TopicPartition(INPUT, partition)], timeout=PATIENCE_S)
    assert found.error is None
    return int(found.offset)


def sends(made: Producer, consumer: Consumer, offset: int, value: bytes) -> None:
    made.produce(OUTPUT, value)
    made.send_offsets_to_transaction([TopicPartition(INPUT, 0, offset)], consumer.consumer_group_metadata(), PATIENCE_S)


def outputs(servers: str, count: int) -> list[bytes]:
    """What a read_committed reader finds."""
    reader = member(servers, "reader")
    reader.assign([TopicPartition(OUTPUT, 0, 0)])
    found: list[bytes] = []
    patience = Patience(PATIENCE_S)
    while len(found) < count:
        assert patience.lasts(), found
        message = reader.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.value())
    reader.close()
    return found


def test_what_commits_counts_and_what_aborts_does_not(servers: str) -> None:
    consumer, made = member(servers, "simple"), producer(servers, "simple.app")
    made.begin_transaction()
    sends(made, consumer, 5, b"one")
    made.commit_transaction(PATIENCE_S)
    assert committed(consumer) == 5
    made.begin_transaction()
    sends(made, consumer, 9, b"never")
    made.abort_transaction(PATIENCE_S)
    assert committed(consumer) == 5
    made.begin_transaction()
    sends(made, consumer, 7, b"two")
    made.commit_transaction(PATIENCE_S)
    assert committed(consumer) == 7
    assert outputs(servers, 2) == [b"one", b"two"]
    consumer.close()
