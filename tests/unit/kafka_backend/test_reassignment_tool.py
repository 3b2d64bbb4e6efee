"""`kafka-reassign-partitions --verify` and `--cancel` through a proxy: their end takes the throttles from every broker.

A client knows Muster's nodes as brokers, too, so the tool asks them as well (`clearAllThrottles` in Kafka's
ReassignPartitionsCommand), each at its own port.
"""

import asyncio
from typing import Any

import pytest

from muster.coordinator.kafka.codec.codec import struct
from tests.support.kafka.client import KafkaClient
from tests.support.kafka_backend.faked import BROKER, broker_port, fake_kafka, node_over

BROKERS, TOPICS = 4, 2
DELETE, SET = 1, 0
NODE = 1_000_001
OF_BROKERS = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
OF_TOPICS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
INVALID_REQUEST = 42


def resource(kind: int, name: str, settings: tuple[str, ...], operation: int = DELETE, value: str | None = None) -> Any:
    path = "IncrementalAlterConfigsRequest.resources"
    rows = [struct(f"{path}.configs")(name=each, config_operation=operation, value=value) for each in settings]
    return struct(path)(resource_type=kind, resource_name=name, configs=rows)


async def alter(port: int, version: int, *resources: Any) -> dict[str, int]:
    async with KafkaClient("127.0.0.1", port) as client:
        answer = await client.ask("IncrementalAlterConfigs", version, resources=list(resources))
    return {each.resource_name: each.error_code for each in answer.responses}


@pytest.mark.parametrize("version", [0, 1])
def test_throttles_are_taken_away_from_brokers_topics_and_nodes(version: int) -> None:
    async def story() -> None:
        async with fake_kafka() as kafka, node_over(kafka) as node:
            assert node.kafka_bound is not None
            own, brokers = node.kafka_bound.port, broker_port(node)
            ours, theirs = resource(BROKERS, str(NODE), OF_BROKERS), resource(BROKERS, str(BROKER), OF_BROKERS)
            topic = resource(TOPICS, "orders", OF_TOPICS)
            assert await alter(own, version, ours) == {str(NODE): 0}
            assert kafka.broker.of("IncrementalAlterConfigs") == [], "no broker knows of the node"
            assert await alter(brokers, version, theirs) == {str(BROKER): 0}
            assert await alter(brokers, version, topic) == {"orders": 0}
            assert await alter(own, version, ours, theirs, topic) == {str(NODE): 0, str(BROKER): 0, "orders": 0}
            asked = [
                [each.resource_name for each in one.resources] for one in kafka.broker.of("IncrementalAlterConfigs")
            ]
            assert asked == [[str(BROKER)], ["orders"], [str(BROKER), "orders"]]
            limits = resource(BROKERS, str(NODE), OF_BROKERS[:1], SET, "1000")
            assert await alter(own, version, limits) == {str(NODE): INVALID_REQUEST}, "it has no throttles"

    asyncio.run(story())
