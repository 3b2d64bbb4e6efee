"""Exactly-once through a node: an unmodified client's transactions have positions of a group of Muster's in them."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from muster.client import Admin
from muster.client.errors import ClientError
from tests.interop.peers import java_story
from tests.support.kafka_backend.door import DoorNode
from tests.support.kafka_backend.served import make_topics
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PATIENCE_S: Final = 60.0
INPUT, OUTPUT = "eos-in", "eos-out"
MOVING: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


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
    """With require_stable: it waits for what is open, and for a shard that moves."""
    patience = Patience(PATIENCE_S)
    while True:
        try:
            [found] = consumer.committed([TopicPartition(INPUT, partition)], timeout=PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() not in MOVING or not patience.lasts():
                raise
        else:
            assert found.error is None
            return int(found.offset)


def sends(made: Producer, consumer: Consumer, offset: int, value: bytes) -> None:
    made.produce(OUTPUT, value)
    made.send_offsets_to_transaction([TopicPartition(INPUT, 0, offset)], consumer.consumer_group_metadata(), PATIENCE_S)


def outputs(servers: str, last: bytes) -> list[bytes]:
    """What a read_committed reader finds, up to that."""
    reader = member(servers, "reader")
    reader.assign([TopicPartition(OUTPUT, 0, 0)])
    found: list[bytes] = []
    patience = Patience(PATIENCE_S)
    while found[-1:] != [last]:
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
    assert outputs(servers, b"two") == [b"one", b"two"]
    consumer.close()


def owner_of(nodes: dict[int, DoorNode], group: str) -> int:
    with Admin(bootstrap_servers=",".join(node.address for node in nodes.values())) as admin:
        at = admin.describe_group(group).coordinator
    return next(number for number, node in nodes.items() if node.address == at)


def has_owner(nodes: dict[int, DoorNode], group: str) -> bool:
    """Whether one of these has it."""
    address = ",".join(node.address for node in nodes.values())
    with Admin(bootstrap_servers=address, default_api_timeout_ms=2_000) as admin:
        try:
            return admin.describe_group(group).coordinator in {node.address for node in nodes.values()}
        except ClientError:
            return False


def test_the_owner_dies_between_positions_and_marker(nodes: dict[int, DoorNode], servers: str) -> None:
    consumer, made = member(servers, "outlives"), producer(servers, "outlives.app")
    consumer.commit(offsets=[TopicPartition(INPUT, 0, 1)], asynchronous=False)
    made.begin_transaction()
    sends(made, consumer, 4, b"three")
    struck = owner_of(nodes, "outlives")
    nodes[struck].kill()
    other = {number: node for number, node in nodes.items() if number != struck}
    patience = Patience(PATIENCE_S)
    while not has_owner(other, "outlives"):
        assert patience.lasts(), "nobody takes the group"
    # librdkafka goes on to ask for the transaction's coordinator where that was: a broker does not change its address.
    nodes[struck].start()
    made.commit_transaction(PATIENCE_S)
    assert committed(consumer) == 4, "the next owner found it in the log, and its marker"
    consumer.close()


def test_a_producer_dies_and_the_next_one_of_its_name_ends_what_it_began(servers: str) -> None:
    consumer, first = member(servers, "succeeds"), producer(servers, "succeeds.app")
    first.begin_transaction()
    sends(first, consumer, 8, b"never")
    second = producer(servers, "succeeds.app")
    second.begin_transaction()
    sends(second, consumer, 3, b"four")
    second.commit_transaction(PATIENCE_S)
    assert committed(consumer) == 3
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    consumer.close()


def test_positions_that_wait_are_not_told_to_who_wants_stable_ones(servers: str) -> None:
    consumer, made = member(servers, "waits"), producer(servers, "waits.app")
    made.begin_transaction()
    sends(made, consumer, 6, b"never")
    with pytest.raises(KafkaException):
        consumer.committed([TopicPartition(INPUT, 0)], timeout=2)
    made.abort_transaction(PATIENCE_S)
    assert committed(consumer) < 0
    consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_who_is_a_member_no_more_cannot_send_positions(servers: str, protocol: str) -> None:
    """KIP-447: the generation, or the member's epoch, goes along."""
    group = f"fenced-{protocol}"
    more = {"group.protocol": protocol} if protocol == "consumer" else {"session.timeout.ms": 10_000}
    first, second = member(servers, group, **more), member(servers, group, **more)
    first.subscribe([INPUT])
    patience = Patience(PATIENCE_S)
    while not first.assignment():
        assert patience.lasts()
        first.poll(0.1)
    before = first.consumer_group_metadata()
    made = producer(servers, f"{group}.app")
    made.begin_transaction()
    made.send_offsets_to_transaction([TopicPartition(INPUT, 0, 1)], before, PATIENCE_S)
    made.commit_transaction(PATIENCE_S)
    assert committed(first) == 1
    second.subscribe([INPUT])
    while not (first.assignment() and second.assignment()):
        assert patience.lasts()
        first.poll(0.05)
        second.poll(0.05)
    moved = second.assignment()[0].partition
    made.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        made.send_offsets_to_transaction([TopicPartition(INPUT, moved, 2)], before, PATIENCE_S)
    assert refused.value.args[0].txn_requires_abort()
    assert refused.value.args[0].code() == KafkaError.ILLEGAL_GENERATION
    made.abort_transaction(PATIENCE_S)
    assert (committed(first, moved), committed(first)) == (-1001 if moved else 1, 1)
    first.close()
    second.close()


def test_kafka_s_own_client_in_java(servers: str) -> None:
    assert java_story("ExactlyOnce", servers, "java-group", INPUT, OUTPUT) == ["5", "5", "7"]
    assert outputs(servers, b"java-7")[-2:] == [b"java-5", b"java-7"]
