"""franz-go, sarama and kafka-go write, read and share groups, with each other and with librdkafka."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.peers import go_command, go_story
from tests.support.kafka.stage import NODE, Stage, Worker, generations, stage
from tests.support.node import NodeProcess, running_node
from tests.support.pace import until

pytestmark = pytest.mark.timeout(180)

LIBRARIES = ("franz-go", "sarama", "kafka-go")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "data", NODE) as running:
        yield running


def member(play: Stage, library: str, *instance: str) -> Worker:
    name = f"{library}-{len(play.workers)}"
    told = (library, play.node.kafka_address, play.group, play.topic, name, play.assignor, *instance)
    return play.run(name, go_command("member", *told))


@pytest.mark.parametrize("library", LIBRARIES)
def test_records_are_written_and_read(node: NodeProcess, library: str) -> None:
    assert go_story("log", library, node.kafka_address, "orders") == [
        "created 0",
        *(f"record 0 {offset} k{offset} 1000 abc" for offset in range(3)),
    ]


def test_records_move_with_their_positions_each_once(node: NodeProcess) -> None:
    """franz-go's GroupTransactSession; every third transaction is aborted."""
    admin = AdminClient({"bootstrap.servers": node.kafka_address})
    for made in admin.create_topics([NewTopic("moved", 3, 1), NewTopic("moved.out", 3, 1)]).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": node.kafka_address})
    sent = [b"%d" % number for number in range(100)]
    for number, value in enumerate(sent):
        producer.produce("moved", value, partition=number % 3)
    assert producer.flush(30) == 0
    assert go_story("transactions", node.kafka_address, "moved", "100") == ["moved 100"]
    reading = {"bootstrap.servers": node.kafka_address, "isolation.level": "read_committed", "group.id": "moved.go"}
    consumer = Consumer(reading)
    places = consumer.committed([TopicPartition("moved", number) for number in range(3)], 30)
    assert sum(place.offset for place in places) == 100
    consumer.assign([TopicPartition("moved.out", number, 0) for number in range(3)])
    found = consumer.consume(100, 30)
    assert sorted(message.value() for message in found) == sorted(sent)
    assert consumer.poll(0.5) is None
    consumer.close()


@pytest.mark.parametrize(
    ("library", "assignor"),
    [
        ("franz-go", "range"),
        ("franz-go", "cooperative-sticky"),
        ("franz-go", "consumer"),
        ("sarama", "range"),
        ("kafka-go", "range"),
    ],
)
def test_members_share_and_move(node: NodeProcess, library: str, assignor: str) -> None:
    """librdkafka is among them, but with kafka-go, whose subscriptions it cannot read."""
    with stage(node, assignor) as play:
        first = member(play, library)
        second = member(play, library) if library == "kafka-go" else play.start("confluent")
        play.until_shared(first, second)
        play.send(100)
        third = member(play, library)
        play.until_shared(first, second, third)
        second.kill()
        play.until_shared(first, third)
        node.kill()
        node.start()
        play.send(100)
        play.until_all_read()
        first.leave()
        play.until_shared(third)
        play.send(10)
        play.until_all_read()
        play.until_committed()


@pytest.mark.parametrize("leader", LIBRARIES)
def test_all_three_share_one_group(node: NodeProcess, leader: str) -> None:
    """Whoever leads makes the plan for all of them."""
    with stage(node, "range") as play:
        first = member(play, leader)
        play.until_shared(first)
        members = [first, *(member(play, library) for library in LIBRARIES if library != leader)]
        play.until_shared(*members)
        play.send(100)
        play.until_all_read()
        play.until_committed()


@pytest.mark.parametrize("library", ["franz-go", "sarama"])  # kafka-go has no static members
def test_a_static_member_returns_without_a_rebalance(node: NodeProcess, library: str) -> None:
    with stage(node, "range") as play:
        leader = member(play, library, "a")
        until(lambda: bool(leader.assigned), lambda: "the first member leads")
        other = member(play, library, "b")
        play.until_shared(leader, other)
        had, before = other.assigned, generations(node, play.group)
        other.kill()
        again = member(play, library, "b")
        until(lambda: again.assigned == had, lambda: f"had {had}, got {again.assigned}")
        play.send(50)
        play.until_all_read()
        assert generations(node, play.group) == before
