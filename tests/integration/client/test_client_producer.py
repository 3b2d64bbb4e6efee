"""Producers, and what becomes of records that cannot be sent."""

from collections.abc import Callable
from pathlib import Path

import pytest

from muster.client import Admin, Consumer, Producer
from muster.client.errors import BufferFull, ClientError, DeliveryFailed, MessageTooLarge, UnknownTopic
from muster.client.types import RecordMetadata
from tests.support.client_stories import read
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration


def test_a_record_that_is_too_large_is_refused_before_it_is_sent(node: NodeProcess, topic: str) -> None:
    with Producer(bootstrap_servers=node.address, max_request_size=1_000) as producer:
        with pytest.raises(MessageTooLarge, match=r"max\.request\.size=1000"):
            producer.produce(topic, b"x" * 2_000)
        with pytest.raises(UnknownTopic, match="partitions 0 to 3; 4 is not one"):
            producer.produce(topic, b"x", partition=4)
        with pytest.raises(TypeError, match="the value is int"):
            producer.produce(topic, 5)  # type: ignore[arg-type]


def test_a_refused_record_is_reported_by_its_listener_and_by_flush(node: NodeProcess, admin: Admin) -> None:
    admin.create_topic("small", 1, {"max.message.bytes": "200"})
    reasons: list[Exception | None] = []
    producer = Producer(bootstrap_servers=node.address)
    producer.produce("small", b"x" * 1_000, on_delivery=lambda error, metadata: reasons.append(error))
    with pytest.raises(DeliveryFailed, match=r"1 record\(s\)"):
        producer.flush()
    assert isinstance(reasons[0], MessageTooLarge)
    producer.close()


def test_a_batch_that_is_too_large_for_its_topic_is_split_and_only_a_record_that_is_by_itself_is_refused(
    node: NodeProcess, admin: Admin
) -> None:
    admin.create_topic("narrow", 1, {"max.message.bytes": "1000"})
    sent = [b"%03d" % number * (1_000 if number == 37 else 20) for number in range(90)]
    told: dict[int, tuple[Exception | None, RecordMetadata | None]] = {}

    def note(number: int) -> Callable[[Exception | None, RecordMetadata | None], None]:
        return lambda error, metadata: told.update({number: (error, metadata)})

    with Producer(bootstrap_servers=node.address, linger_ms=60_000, batch_size=1 << 20) as producer:
        for number, value in enumerate(sent):
            producer.produce("narrow", value, on_delivery=note(number))
        with pytest.raises(DeliveryFailed, match=r"^1 record\(s\).*one record is too large by itself.*max\.message"):
            producer.flush()
    refused, _ = told.pop(37)
    assert isinstance(refused, MessageTooLarge)
    assert [metadata.offset for _, (_, metadata) in sorted(told.items()) if metadata] == list(range(89))
    with Consumer(bootstrap_servers=node.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([("narrow", 0)])
        got = read(consumer, 89)
    assert [message.value for message in got] == sent[:37] + sent[38:]


def test_a_full_buffer_says_so(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic("t")
        producer = Producer(
            bootstrap_servers=node.address, buffer_memory=1 << 16, max_block_ms=50, delivery_timeout_ms=500
        )
        producer.produce("t", b"first")
        producer.flush()
        node.stop()

        def fill_it() -> None:
            for _ in range(1_000):
                producer.produce("t", b"x" * 1_000)

        with pytest.raises(BufferFull, match=r"buffer\.memory"):
            fill_it()
        with pytest.raises(DeliveryFailed, match="no answer from"):
            producer.close()


def test_records_that_were_not_delivered_in_time_fail_their_futures(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic("t")
        producer = Producer(bootstrap_servers=node.address)
        producer.send("t", b"first").result(timeout=30)
        node.kill()
        future = producer.send("t", b"second")
        with pytest.raises(ClientError, match="not delivered within"):
            producer.close(0.1)
        with pytest.raises(ClientError, match="closed before"):
            future.result(timeout=30)


def test_an_error_is_not_hidden_by_a_producer_that_cannot_deliver(tmp_path: Path) -> None:
    def interrupted(node: NodeProcess) -> None:
        with Producer(bootstrap_servers=node.address) as producer:
            producer.send("t", b"first").result(timeout=30)
            node.kill()
            producer.produce("t", b"second")
            raise KeyboardInterrupt

    with running_node(tmp_path / "data") as node:
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic("t")
        with pytest.raises(KeyboardInterrupt):
            interrupted(node)


def test_a_kill_of_the_node_under_a_producer_neither_loses_nor_repeats_a_record(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic("t")
        sent = [b"%d" % number for number in range(600)]
        with Producer(bootstrap_servers=node.address, linger_ms=0, batch_size=0) as producer:
            for number, value in enumerate(sent):
                producer.produce("t", value)
                if number % 150 == 100:
                    producer.poll(1.0)
                    node.kill()
                    node.start()
        with Consumer(bootstrap_servers=node.address, auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", 0)])
            assert [message.value for message in read(consumer, len(sent))] == sent
            assert consumer.end_offsets([("t", 0)]) == {("t", 0): len(sent)}
