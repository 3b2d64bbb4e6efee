"""Read, process, write, exactly once: unmodified clients whose groups' positions are part of their transactions."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonPartition

from tests.integration.kafka.test_transactional_clients import KAFKA, PARTITIONS, PATIENCE_S, new_topic, read
from tests.support.node import NodeProcess, running_node
from tests.support.pace import Patience

pytestmark = pytest.mark.integration

INPUTS = 60
numbers = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("once") / "data"), KAFKA) as running:
        yield running


def filled_topic(node: NodeProcess) -> str:
    topic = new_topic(node)
    producer = Producer({"bootstrap.servers": node.kafka_address})
    for number in range(INPUTS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0
    return topic


def by_confluent(node: NodeProcess, source: str, target: str) -> None:
    """Every third transaction is aborted, and done again from the committed positions."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka_address,
            "group.id": target,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([source])
    producer = Producer({"bootstrap.servers": node.kafka_address, "transactional.id": target})
    producer.init_transactions(PATIENCE_S)
    done, patience = 0, Patience(PATIENCE_S)
    for attempt in count():
        assert patience.lasts(), f"{done} of {INPUTS} after {attempt} transactions"
        some = [message for message in consumer.consume(10, timeout=1.0) if not message.error()]
        if not some:
            continue
        producer.begin_transaction()
        for message in some:
            producer.produce(target, message.value(), partition=message.partition())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), PATIENCE_S
        )
        if attempt % 3 == 1:
            producer.abort_transaction(PATIENCE_S)
            for place in consumer.committed(consumer.assignment(), PATIENCE_S):
                consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))
            continue
        producer.commit_transaction(PATIENCE_S)
        done += len(some)
        if done == INPUTS:
            break
    consumer.close()


def by_kafka_python(node: NodeProcess, source: str, target: str) -> None:
    consumer = KafkaConsumer(
        source,
        bootstrap_servers=node.kafka_address,
        group_id=target,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    producer = KafkaProducer(bootstrap_servers=node.kafka_address, transactional_id=target)
    producer.init_transactions()
    done, patience = 0, Patience(PATIENCE_S)
    while done < INPUTS:
        assert patience.lasts(), f"{done} of {INPUTS}"
        found = consumer.poll(1_000, max_records=20)
        if not found:
            continue
        producer.begin_transaction()
        positions = {}
        for place, records in found.items():
            for record in records:
                producer.send(target, record.value, partition=record.partition)
            positions[PythonPartition(*place)] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
            done += len(records)
        producer.send_offsets_to_transaction(positions, target)
        producer.commit_transaction()
    consumer.close()
    producer.close()


def by_aiokafka(node: NodeProcess, source: str, target: str) -> None:
    async def run() -> None:
        consumer = AIOKafkaConsumer(
            source,
            bootstrap_servers=node.kafka_address,
            group_id=target,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        producer = AIOKafkaProducer(bootstrap_servers=node.kafka_address, transactional_id=target)
        await consumer.start()
        await producer.start()
        done, patience = 0, Patience(PATIENCE_S)
        while done < INPUTS:
            assert patience.lasts(), f"{done} of {INPUTS}"
            found = await consumer.getmany(timeout_ms=1_000, max_records=20)
            if not found:
                continue
            async with producer.transaction():
                for records in found.values():
                    for record in records:
                        await producer.send(target, record.value, partition=record.partition)
                    done += len(records)
                await producer.send_offsets_to_transaction(
                    {place: records[-1].offset + 1 for place, records in found.items()}, target
                )
        await consumer.stop()
        await producer.stop()

    asyncio.run(run())


def committed_positions(node: NodeProcess, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": node.kafka_address, "group.id": group})
    places = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], PATIENCE_S)
    consumer.close()
    return sum(max(place.offset, 0) for place in places)


@pytest.mark.parametrize("process", [by_confluent, by_kafka_python, by_aiokafka])
def test_each_input_is_written_once_and_positions_move_with_it(
    node: NodeProcess, process: Callable[[NodeProcess, str, str], None]
) -> None:
    source, target = filled_topic(node), new_topic(node)
    process(node, source, target)
    assert Counter(read(node, target)) == Counter(b"%d" % number for number in range(INPUTS))
    assert committed_positions(node, target, source) == INPUTS


def test_positions_of_an_aborted_transaction_never_count(node: NodeProcess) -> None:
    source, target = filled_topic(node), new_topic(node)
    consumer = Consumer({"bootstrap.servers": node.kafka_address, "group.id": target, "auto.offset.reset": "earliest"})
    producer = Producer({"bootstrap.servers": node.kafka_address, "transactional.id": target})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(source, 0, 7)], metadata, PATIENCE_S)
    producer.abort_transaction(PATIENCE_S)
    assert committed_positions(node, target, source) == 0
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(source, 0, 7)], metadata, PATIENCE_S)
    producer.commit_transaction(PATIENCE_S)
    assert committed_positions(node, target, source) == 7
    consumer.close()


def test_a_node_that_is_killed_moves_positions_with_their_records_or_not_at_all(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", KAFKA) as node:
        source, target = filled_topic(node), new_topic(node)
        for number in range(2):
            producer = Producer({"bootstrap.servers": node.kafka_address, "transactional.id": "app", "log_level": 0})
            consumer = Consumer({"bootstrap.servers": node.kafka_address, "group.id": "app", "log_level": 0})
            producer.init_transactions(PATIENCE_S)
            for value, committed in ((b"kept", True), (b"undone", False)):
                producer.begin_transaction()
                producer.produce(target, value, partition=number)
                assert producer.flush(PATIENCE_S) == 0
                places = [TopicPartition(source, number, 1 if committed else 9)]
                producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), PATIENCE_S)
                if committed:
                    producer.commit_transaction(PATIENCE_S)
            consumer.close()
            node.kill()
            node.start()
            # Its next instance fences it, and aborts what it left open.
            Producer({"bootstrap.servers": node.kafka_address, "transactional.id": "app"}).init_transactions(PATIENCE_S)
            assert read(node, target) == [b"kept"] * (number + 1)
            assert committed_positions(node, "app", source) == number + 1
