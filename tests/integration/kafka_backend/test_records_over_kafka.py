"""KB-G2: records of nodes over a real Kafka are read and written there, behind the same methods."""

from collections.abc import Iterator
from typing import Any

import pytest

from muster.client import Admin, Consumer, Producer
from muster.client.errors import Refused, TransactionalIdNotAuthorized
from muster.client.types import Message, RecordMetadata, TopicPartition
from tests.support.kafka_backend.served import make_topics, over
from tests.support.node import NodeProcess, running_node

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOPIC, PARTITIONS, RECORDS = "read-there", 3, 300
COMMITTED = "read-committed"
HEADERS = [("kind", b"test")]


@pytest.fixture(scope="module")
def node(real_kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    pytest.importorskip("confluent_kafka")
    make_topics(real_kafka.address, {TOPIC: PARTITIONS, COMMITTED: 1})
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


# Transactions: Kafka's brokers coordinate them
# ---------------------------------------------

REMEDY = "Write with a transactional producer of Kafka's own clients, through this node's Kafka listener"


def test_our_transactional_producer_is_refused_at_once_and_told_what_to_do(node: NodeProcess) -> None:
    producer = Producer(bootstrap_servers=node.address, transactional_id="ours")
    for call in (producer.init_transactions, producer.begin):
        with pytest.raises(TransactionalIdNotAuthorized, match=REMEDY):
            call()
    producer.close()
    with (
        pytest.raises(TransactionalIdNotAuthorized, match=REMEDY),
        Producer(bootstrap_servers=node.address, transactional_id="ours"),
    ):
        pass
    with Admin(bootstrap_servers=node.address) as admin:
        for ask in (
            admin.list_transactions,
            lambda: admin.describe_transaction("ours"),
            lambda: admin.explain_transactions("ours"),
            lambda: admin.terminate_transaction("ours"),
        ):
            with pytest.raises(TransactionalIdNotAuthorized, match=r"kafka-transactions\.sh"):
                ask()
        with pytest.raises(Refused, match="Use Kafka's own clients and tools there"):
            admin.describe_producers([TopicPartition(TOPIC, 0)])


def test_our_reader_of_committed_records_gets_what_a_transaction_of_kafkas_client_committed(
    node: NodeProcess, real_kafka: Any
) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": real_kafka.address, "transactional.id": "theirs", "log_level": 0}
    )
    producer.init_transactions(60)
    for values, end in (("ab", producer.commit_transaction), ("xy", producer.abort_transaction)):
        producer.begin_transaction()
        for value in values:
            producer.produce(COMMITTED, value)
        assert producer.flush(60) == 0
        end(60)
    producer.begin_transaction()
    producer.produce(COMMITTED, "c")
    producer.commit_transaction(60)
    with Consumer(bootstrap_servers=node.address, isolation_level="read_committed") as consumer:
        consumer.assign([(COMMITTED, 0)])
        consumer.seek_to_beginning()
        assert [each.value for each in read(consumer, 3)] == [b"a", b"b", b"c"]
