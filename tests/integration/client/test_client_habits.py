"""What programs written for confluent-kafka or kafka-python ask of a client (docs/clients.md)."""

import asyncio
import logging

import pytest

from muster.client import Admin, Consumer, Producer, aio
from muster.client.errors import UnknownTopic
from muster.client.twins import shared_loop
from tests.support.client_stories import PATIENCE_S, fill, member, poll_until, read
from tests.support.node import NodeProcess

pytestmark = pytest.mark.integration


def test_a_consumer_tells_what_there_is_and_where_it_ends(node: NodeProcess, topic: str) -> None:
    fill(node, topic, 3, partition=1)
    with Consumer(bootstrap_servers=node.address, group_id=topic) as consumer:
        assert consumer.list_topics()[topic] == 4
        assert consumer.list_topics(topic) == {topic: 4}
        assert consumer.list_topics("absent") == {}
        assert topic in consumer.topics()
        assert not any(name.startswith("__") for name in consumer.topics())
        assert consumer.partitions_for_topic(topic) == {0, 1, 2, 3}
        assert consumer.partitions_for_topic("absent") is None
        places = [(topic, 0), (topic, 1)]
        assert consumer.beginning_offsets(places) == {(topic, 0): 0, (topic, 1): 0}
        assert consumer.end_offsets(places) == {(topic, 0): 0, (topic, 1): 3}
        with pytest.raises(UnknownTopic):
            consumer.end_offsets([("absent", 0)])


def test_a_subscription_is_told_as_it_was_given_until_it_is_given_up(node: NodeProcess, topic: str) -> None:
    with Consumer(bootstrap_servers=node.address, group_id=topic) as consumer:
        assert consumer.subscription() == set()
        consumer.subscribe([topic, "^nothing-like-this"])
        assert consumer.subscription() == {topic, "^nothing-like-this"}
        consumer.subscribe(topic)
        assert consumer.subscription() == {topic}
        consumer.unsubscribe()
        assert consumer.subscription() == set()


def test_a_producer_is_polled_and_asked_for_topics(node: NodeProcess, topic: str) -> None:
    with Producer(bootstrap_servers=node.address, linger_ms=0) as producer:
        assert producer.poll() == producer.poll(1.0) == 0, "nothing is on its way"
        assert producer.list_topics(topic) == {topic: 4}
        assert producer.partitions_for(topic) == {0, 1, 2, 3}
        with pytest.raises(UnknownTopic):
            producer.partitions_for("absent")
        told: list[Exception | None] = []
        for number in range(5):
            producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: told.append(error))
        heard = 0
        while heard < 5:
            heard += producer.poll(PATIENCE_S)
        assert told == [None] * 5, "whoever was counted has been called"
        assert producer.poll() == 0


def test_the_twins_for_asyncio_do_the_same(node: NodeProcess, topic: str) -> None:
    async def story() -> None:
        async with aio.AsyncProducer(bootstrap_servers=node.address) as producer:
            assert await producer.partitions_for(topic) == {0, 1, 2, 3}
            assert await producer.list_topics(topic) == {topic: 4}
            await producer.produce(topic, b"x", partition=2)
            assert await producer.poll(PATIENCE_S) == 1
            assert await producer.poll(PATIENCE_S) == 0
        async with aio.AsyncConsumer(bootstrap_servers=node.address, group_id=f"{topic}-aio") as consumer:
            assert await consumer.end_offsets([(topic, 2)]) == {(topic, 2): 1}
            assert await consumer.beginning_offsets([(topic, 2)]) == {(topic, 2): 0}
            assert await consumer.partitions_for_topic(topic) == {0, 1, 2, 3}
            assert topic in await consumer.topics()
            assert (await consumer.list_topics())[topic] == 4
            await consumer.subscribe(topic)
            assert consumer.subscription() == {topic}

    shared_loop().run(asyncio.wait_for(story(), PATIENCE_S))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topic_that_does_not_exist_is_told_once_and_read_once_it_does(
    node: NodeProcess, admin: Admin, topic: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    late = f"{topic}-late"
    properties = {"group_protocol": protocol, "auto_offset_reset": "earliest", "metadata_max_age_ms": 100}
    with caplog.at_level(logging.WARNING), Consumer(bootstrap_servers=node.address, group_id=late, **properties) as one:
        one.subscribe([topic, late])
        poll_until(lambda: bool(caplog.messages), one, what="it is told")
        one.subscribe([late])
        one.subscribe([topic, late])
        poll_until(lambda: len(one.assignment()) == 4, one, what="the topic that is there")
        admin.create_topic(late, 1)
        fill(node, late, 1)
        assert read(one, 1)[0].topic == late
    create = f"(muster topics create {late})"
    assert caplog.messages == [f"no such topic: {late!r}; nothing can be read of it before it is created {create}"]


def test_a_record_has_its_time_by_both_names(node: NodeProcess, producer: Producer, topic: str) -> None:
    producer.produce(topic, b"x", timestamp=1_234)
    producer.flush()
    with member(node, topic) as consumer:
        consumer.subscribe(topic)
        (record,) = read(consumer, 1)
    assert record.timestamp == record.timestamp_ms == 1_234
