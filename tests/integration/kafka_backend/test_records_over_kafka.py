"""KB-G2: records of nodes over a real Kafka are read and written there, behind the same methods."""

from collections.abc import Iterator
from typing import Any

import pytest

from muster.client import Consumer, Producer
from muster.client.types import Message, RecordMetadata, TopicPartition
from tests.support.kafka_backend.served import make_topics, over
from tests.support.node import NodeProcess, running_node

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOPIC, PARTITIONS, RECORDS = "read-there", 3, 300
HEADERS = [("kind", b"test")]


@pytest.fixture(scope="module")
def node(real_kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    pytest.importorskip("confluent_kafka")
    make_topics(real_kafka.address, {TOPIC: PARTITIONS})
    with running_node(tmp_path_factory.mktemp("over"), over(real_kafka.address, "records")) as node:
        yield node


@pytest.fixture(scope="module")
def written(node: NodeProcess) -> list[RecordMetadata]:
    told: list[RecordMetadata] = []

    def delivered(error: Exception | None, metadata: RecordMetadata | None) -> None:
        assert error is None, error
        assert metadata is not None
        told.append(metadata)

    with Producer(bootstrap_servers=node.address) as producer:
        for number in range(RECORDS):
            producer.produce(
                TOPIC, f"v{number}", key=f"k{number}", headers=HEADERS, timestamp=1_000 + number, on_delivery=delivered
            )
        producer.flush()
    return told


def read(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        found += consumer.consume(count - len(found), 1.0)
    return found


def test_what_is_written_is_read_by_a_group_with_keys_headers_times_and_offsets(
    node: NodeProcess, written: list[RecordMetadata]
) -> None:
    with Consumer(
        bootstrap_servers=node.address, group_id="all-of-it", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe([TOPIC])
        found = read(consumer, RECORDS)
        assert {(each.key, each.value) for each in found} == {
            (f"k{number}".encode(), f"v{number}".encode()) for number in range(RECORDS)
        }
        assert {each.headers for each in found} == {tuple(HEADERS)}
        assert {(each.partition, each.offset) for each in found} == {(each.partition, each.offset) for each in written}
        assert {each.timestamp_ms for each in found} == {1_000 + number for number in range(RECORDS)}
        consumer.commit()
    ends = {each.partition: 0 for each in written}
    for each in written:
        ends[each.partition] = max(ends[each.partition], each.offset + 1)
    with Consumer(bootstrap_servers=node.address, group_id="all-of-it") as again:
        places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        found_ends = {tp.partition: at.offset for tp, at in again.committed(places).items() if at is not None}
    assert found_ends == ends


def test_who_reads_by_hand_goes_where_it_is_told(node: NodeProcess, written: list[RecordMetadata]) -> None:
    place = TopicPartition(TOPIC, 0)
    with Consumer(bootstrap_servers=node.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        first = read(consumer, 5)
        assert [each.offset for each in first] == [0, 1, 2, 3, 4]
        consumer.seek(place, 2)
        assert [each.offset for each in read(consumer, 3)] == [2, 3, 4]
        consumer.pause(place)
        assert consumer.consume(1, 0.3) == []
        consumer.resume(place)
        assert [each.offset for each in read(consumer, 2)] == [5, 6]
        consumer.seek(place, 1_000_000)
        assert [each.offset for each in read(consumer, 2)] == [0, 1]


def test_a_record_that_kafka_does_not_take_is_told(node: NodeProcess) -> None:
    told: list[Exception | None] = []
    with Producer(bootstrap_servers=node.address, max_request_size=4 << 20, delivery_timeout_ms=20_000) as producer:
        producer.produce(TOPIC, b"x" * (2 << 20), on_delivery=lambda error, metadata: told.append(error))
        with pytest.raises(Exception, match="Kafka did not take a record"):
            producer.flush()
    assert "too large" in str(told[0]).lower() or "size" in str(told[0]).lower()
