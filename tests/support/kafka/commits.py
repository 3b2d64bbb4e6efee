"""What a group has committed, as each library sees it: one offset per partition, -1 where there is none."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from tests.support.node import NodeProcess

PATIENCE_S = 30.0
TRIES: Final = 5
"""kafka-python's admin does not ask again where a connection breaks."""


def by_confluent(node: NodeProcess, group: str, topic: str, partitions: int) -> list[int]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": node.kafka_address, "group.id": group, "log_level": 0})
    found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], PATIENCE_S)
    consumer.close()
    return [place.offset if place.offset >= 0 else -1 for place in found]


def by_kafka_python(node: NodeProcess, group: str, topic: str, partitions: int) -> list[int]:
    from kafka import KafkaAdminClient, TopicPartition
    from kafka.errors import KafkaConnectionError

    def ask() -> dict[Any, Any]:
        admin = KafkaAdminClient(bootstrap_servers=node.kafka_address)
        try:
            return dict(admin.list_group_offsets(group)[group])
        finally:
            admin.close()

    for _ in range(TRIES - 1):
        with suppress(KafkaConnectionError):  # of a node that stood still, and found its clients gone
            found = ask()
            break
    else:
        found = ask()
    return [found[place].offset if (place := TopicPartition(topic, n)) in found else -1 for n in range(partitions)]


def by_aiokafka(node: NodeProcess, group: str, topic: str, partitions: int) -> list[int]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def ask() -> list[int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=node.kafka_address, group_id=group, enable_auto_commit=False)
        await consumer.start()
        found: list[Any] = [await consumer.committed(TopicPartition(topic, number)) for number in range(partitions)]
        await consumer.stop()
        return [-1 if offset is None else offset for offset in found]

    return asyncio.run(ask())


def by_grpc(node: NodeProcess, group: str, topic: str, partitions: int) -> list[int]:
    from muster.client import Consumer

    places = [(topic, number) for number in range(partitions)]
    with Consumer(bootstrap_servers=node.address, group_id=group) as consumer:
        return [-1 if one is None else one.offset for one in consumer.committed(places).values()]


COMMITTED: Final[dict[str, Callable[[NodeProcess, str, str, int], list[int]]]] = {
    "confluent": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "grpc": by_grpc,
}
