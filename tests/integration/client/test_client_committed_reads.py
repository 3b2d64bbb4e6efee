"""Our consumer reads what transactional producers wrote: what is committed, up to the last stable offset."""

import asyncio
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from muster.client import Consumer, Producer
from muster.client.aio import AsyncConsumer
from muster.client.errors import NoOffset, Refused
from tests.integration.kafka.test_transactional_clients import (
    KAFKA,
    PARTITIONS,
    PATIENCE_S,
    new_topic,
    producer_of,
    send,
)
from tests.support.node import MUSTER, NodeProcess, running_node
from tests.support.pace import Patience

pytestmark = pytest.mark.integration

numbers = count()
COMMITTED, EVERYTHING = "read_committed", "read_uncommitted"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("committed") / "data"), KAFKA) as running:
        yield running


@pytest.fixture
def topic(node: NodeProcess) -> str:
    return new_topic(node)


def write(node: NodeProcess, topic: str) -> ConfluentProducer:
    """Ten transactions of six records each, every second one aborted, and one that stays open. Its producer."""
    producer = producer_of(node, topic)
    for number in range(10):
        producer.begin_transaction()
        send(producer, topic, *(b"%d-%d" % (number, each) for each in range(6)))
        if number % 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    producer.begin_transaction()
    send(producer, topic, *(b"open-%d" % each for each in range(6)))
    return producer


ENDED = sorted(b"%d-%d" % (number, each) for number in range(0, 10, 2) for each in range(6))
ABORTED = sorted(b"%d-%d" % (number, each) for number in range(1, 10, 2) for each in range(6))
OPEN = sorted(b"open-%d" % each for each in range(6))


def places(topic: str) -> list[tuple[str, int]]:
    return [(topic, number) for number in range(PARTITIONS)]


def reader(node: NodeProcess, level: str, **more: object) -> Consumer:
    given = {"bootstrap.servers": node.address, "isolation.level": level, "auto.offset.reset": "earliest"}
    return Consumer(given | {name.replace("_", "."): value for name, value in more.items()})


ENDS = 11 * (6 // PARTITIONS + 1)
"""Of each partition once the last transaction has its markers as well."""


def await_markers(consumer: Consumer, topic: str) -> None:
    """The answer to the end of a transaction does not wait for its markers."""
    patience = Patience(PATIENCE_S)
    while set(consumer.end_offsets(places(topic)).values()) != {ENDS}:
        assert patience.lasts(), consumer.end_offsets(places(topic))
        consumer.poll(0.01)


def read_to_the_end(consumer: Consumer, topic: str) -> list[bytes | None]:
    """Until the position is where reading ends, in each partition: it goes over markers and aborted records."""
    found: list[bytes | None] = []
    ends = consumer.end_offsets(places(topic))
    patience = Patience(PATIENCE_S)
    while any(consumer.position(tp) < end for tp, end in ends.items()):
        assert patience.lasts(), {tp: (consumer.position(tp), end) for tp, end in ends.items()}
        found += [message.value for message in consumer.consume(500, timeout=0.2)]
    return found


def test_both_levels_read_what_they_promise_and_stand_at_their_own_ends(node: NodeProcess, topic: str) -> None:
    producer = write(node, topic)
    with reader(node, COMMITTED) as careful, reader(node, EVERYTHING) as careless:
        careful.assign(places(topic))
        careless.assign(places(topic))
        assert sorted(read_to_the_end(careful, topic)) == ENDED
        assert sorted(read_to_the_end(careless, topic)) == sorted(ENDED + ABORTED + OPEN)
        held = careful.end_offsets(places(topic))
        assert all(held[tp] < end for tp, end in careless.end_offsets(places(topic)).items())
        assert careful.get_watermark_offsets((topic, 0)).high == held[topic, 0]
        producer.commit_transaction(PATIENCE_S)
        await_markers(careless, topic)
        assert sorted(read_to_the_end(careful, topic)) == OPEN
        careful.seek_to_beginning()
        assert sorted(read_to_the_end(careful, topic)) == sorted(ENDED + OPEN), "again, from the first record"


def test_what_our_own_producer_wrote_is_read_alike(node: NodeProcess, topic: str) -> None:
    with (
        Producer(bootstrap_servers=node.address, transactional_id=topic) as producer,
        reader(node, COMMITTED) as careful,
        reader(node, EVERYTHING) as careless,
    ):

        def produce(*values: bytes) -> None:
            for place, value in enumerate(values):
                producer.produce(topic, value, partition=place % PARTITIONS)
            producer.flush()

        for number in range(10):
            producer.begin()
            produce(*(b"%d-%d" % (number, each) for each in range(6)))
            producer.abort() if number % 2 else producer.commit()
        producer.begin()
        produce(*(b"open-%d" % each for each in range(6)))
        careful.assign(places(topic))
        careless.assign(places(topic))
        assert sorted(read_to_the_end(careful, topic)) == ENDED
        assert sorted(read_to_the_end(careless, topic)) == sorted(ENDED + ABORTED + OPEN)
        producer.commit()
        await_markers(careless, topic)
        assert sorted(read_to_the_end(careful, topic)) == OPEN


def test_the_end_is_the_last_stable_offset_wherever_it_is_asked_for(node: NodeProcess, topic: str) -> None:
    producer = write(node, topic)
    with reader(node, COMMITTED, auto_offset_reset="latest") as consumer:
        consumer.assign(places(topic))
        held = consumer.end_offsets(places(topic))
        assert {tp: consumer.position(tp) for tp in places(topic)} == held, "auto.offset.reset=latest"
        consumer.seek_to_beginning()
        consumer.seek_to_end()
        assert {tp: consumer.position(tp) for tp in places(topic)} == held
        producer.abort_transaction(PATIENCE_S)
        await_markers(consumer, topic)
        assert read_to_the_end(consumer, topic) == []
        assert {consumer.position(tp) for tp in places(topic)} == {ENDS}


@pytest.mark.parametrize("limit", [1, 7])
def test_records_come_in_order_each_once_in_small_portions_too(node: NodeProcess, topic: str, limit: int) -> None:
    write(node, topic).abort_transaction(PATIENCE_S)
    with reader(
        node, COMMITTED, max_poll_records=limit, max_partition_fetch_bytes=200, fetch_max_bytes=400
    ) as consumer:
        consumer.assign(places(topic))
        found = read_to_the_end(consumer, topic)
    assert sorted(found) == ENDED


def test_the_asyncio_twin_reads_the_same(node: NodeProcess, topic: str) -> None:
    write(node, topic)

    async def run() -> list[bytes | None]:
        found: list[bytes | None] = []
        given = {"bootstrap.servers": node.address, "isolation.level": COMMITTED, "auto.offset.reset": "earliest"}
        async with AsyncConsumer(given) as consumer:
            await consumer.assign(places(topic))
            patience = Patience(PATIENCE_S)
            while len(found) < len(ENDED):
                assert patience.lasts(), found
                found += [message.value for message in await consumer.consume(500, timeout=0.2)]
        return found

    assert sorted(asyncio.run(run())) == ENDED


def test_a_group_that_has_read_everything_has_committed_up_to_the_end(node: NodeProcess, topic: str) -> None:
    """No lag stays behind for the marker of the last transaction."""
    write(node, topic).commit_transaction(PATIENCE_S)
    with reader(node, COMMITTED, group_id=topic, enable_auto_commit=False) as consumer:
        consumer.subscribe(topic)
        patience = Patience(PATIENCE_S)
        while len(consumer.assignment()) < PARTITIONS:
            assert patience.lasts()
            consumer.poll(0.1)
        await_markers(consumer, topic)
        consumer.seek_to_beginning()
        assert sorted(read_to_the_end(consumer, topic)) == sorted(ENDED + OPEN)
        consumer.commit()
        committed = consumer.committed(places(topic))
        assert {tp: at.offset if at else None for tp, at in committed.items()} == consumer.end_offsets(places(topic))


# Back to the committed offsets
# -----------------------------


def test_seek_to_committed_returns_the_records_again_that_are_not_committed(node: NodeProcess, topic: str) -> None:
    write(node, topic).abort_transaction(PATIENCE_S)
    with reader(node, COMMITTED, group_id=topic, enable_auto_commit=False) as consumer:
        consumer.assign(places(topic))
        first = read_to_the_end(consumer, topic)
        consumer.seek_to_committed()
        assert sorted(read_to_the_end(consumer, topic)) == sorted(first), "nothing was committed: auto.offset.reset"
        consumer.commit(offsets={(topic, 0): 3})
        consumer.seek_to_committed()
        positions = {tp: consumer.position(tp) for tp in places(topic)}
        assert positions == {(topic, 0): 3, (topic, 1): 0, (topic, 2): 0}
    with reader(node, COMMITTED, group_id=topic, auto_offset_reset="none", enable_auto_commit=False) as strict:
        strict.assign(places(topic))
        with pytest.raises(NoOffset, match="no offset is committed for"):
            strict.seek_to_committed()


def test_offsets_in_an_open_transaction_are_waited_for(node: NodeProcess, topic: str) -> None:
    """A producer of another kind holds the group's offsets: until it ends, nobody knows where to go on."""
    producer = producer_of(node, topic)
    other = ConfluentConsumer({"bootstrap.servers": node.kafka_address, "group.id": topic, "log_level": 0})
    producer.begin_transaction()
    producer.send_offsets_to_transaction([ConfluentPartition(topic, 0, 5)], other.consumer_group_metadata(), PATIENCE_S)
    with reader(node, COMMITTED, group_id=topic, default_api_timeout_ms=300) as consumer:
        consumer.assign(places(topic))
        for ask in (lambda: consumer.committed([(topic, 0)]), consumer.seek_to_committed):
            with pytest.raises(Refused, match=r"UNSTABLE_OFFSET_COMMIT: .*an open transaction holds an offset"):
                ask()
        assert consumer.committed([(topic, 1)]) == {(topic, 1): None}, "the others are not held"
        producer.commit_transaction(PATIENCE_S)
        with reader(node, COMMITTED, group_id=topic) as patient:
            assert patient.committed([(topic, 0)])[topic, 0].offset == 5  # type: ignore[union-attr,index]
    other.close()


# The command
# -----------


def consume(node: NodeProcess, topic: str, *words: str) -> list[bytes]:
    done = subprocess.run(
        [MUSTER, "consume", "--bootstrap", node.address, "--topic", topic, "--idle-timeout", "0.5", *words],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.split())


def test_muster_consume_reads_at_the_level_that_is_asked_for(node: NodeProcess, topic: str) -> None:
    write(node, topic)
    assert consume(node, topic, "--from-beginning", "--isolation-level", COMMITTED) == ENDED
    assert consume(node, topic, "--from-beginning") == sorted(ENDED + ABORTED + OPEN), "as kafka-console-consumer"
    assert consume(node, topic, "--from", "-100", "--isolation-level", COMMITTED) == ENDED, "before the stable end"
