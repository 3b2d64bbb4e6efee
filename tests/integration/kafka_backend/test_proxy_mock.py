"""The proxy before three brokers of librdkafka's mock cluster: an unmodified client changes its address only."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from muster.coordinator.config import Address
from tests.support.kafka.memory_node import until
from tests.support.kafka_backend.proxied import ID_BASE, Proxied

TOPIC = "orders"
PARTITIONS = 4
RECORDS = 300


def before(story: Callable[[Proxied, Producer], Coroutine[Any, Any, None]], **settings: str) -> None:
    """Run a story with three brokers, whose ids are 1 to 3, and a proxy before them."""
    owner = Producer({"test.mock.num.brokers": 3})
    found = owner.list_topics(TOPIC, timeout=10)
    servers = tuple(Address(each.host, each.port) for each in found.brokers.values())

    async def whole() -> None:
        settings.setdefault("engine.kafka.broker.id.first", "1")
        async with Proxied(servers, {TOPIC: PARTITIONS}, **settings) as proxied:
            await story(proxied, owner)

    asyncio.run(whole())


def test_clients_learn_of_muster_s_addresses_only() -> None:
    async def story(proxied: Proxied, owner: Producer) -> None:
        client = Producer({"bootstrap.servers": proxied.own})
        seen = await asyncio.to_thread(client.list_topics, TOPIC, timeout=10)
        told = {each.id: (each.host, each.port) for each in seen.brokers.values()}
        ports = {number: ("127.0.0.1", port) for number, port in enumerate(proxied.ports[:3], 1)}
        assert told == {**ports, ID_BASE + 1: ("127.0.0.1", proxied.door.bound.port)}
        leaders = {each.leader for each in seen.topics[TOPIC].partitions.values()}
        assert leaders <= {1, 2, 3}

    before(story)


def test_what_is_produced_and_read_passes_and_its_group_is_ours() -> None:
    async def story(proxied: Proxied, owner: Producer) -> None:
        await asyncio.to_thread(produce, proxied.own)
        read = await asyncio.to_thread(consume, proxied.own, "g")
        assert sorted(read) == list(range(RECORDS))
        assert [group.group_id for group in await listed(proxied)] == ["g"]
        assert proxied.node.bugs == []
        assert proxied.door.traffic.up > 0
        assert proxied.door.traffic.down > 0
        await until(lambda: proxied.door.connections == 0)

    before(story)


def test_a_group_that_is_kafka_s_stays_there() -> None:
    async def story(proxied: Proxied, owner: Producer) -> None:
        await asyncio.to_thread(produce, proxied.own)
        read = await asyncio.to_thread(consume, proxied.own, "theirs")
        assert sorted(read) == list(range(RECORDS))
        assert await listed(proxied) == []

    before(story, **{"engine.kafka.groups": "ours-.*"})


def produce(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    failed: list[Any] = []
    for number in range(RECORDS):
        producer.produce(
            TOPIC,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert failed == []


def consume(servers: str, group: str) -> list[int]:
    """All records, read by a group and committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
        }
    )
    consumer.subscribe([TOPIC])
    read = []
    while len(read) < RECORDS:
        message = consumer.poll(30)
        assert message is not None, f"{len(read)} records were read"
        assert message.error() is None, message.error()
        read.append(int(message.value()))
    consumer.commit(asynchronous=False)
    places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    assert sum(each.offset for each in consumer.committed(places, timeout=10)) == RECORDS
    consumer.close()
    return read


async def listed(proxied: Proxied) -> list[Any]:
    async with proxied.client() as client:
        return list((await client.ask("ListGroups", 4)).groups)
