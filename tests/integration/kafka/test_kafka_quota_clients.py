"""Clients of Kafka that nobody here wrote, over their quotas on a real node: they wait, and lose nothing."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from muster.coordinator.kafka.codec.codec import struct
from tests.support.kafka.client import KafkaClient
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {"authorizer": "acl", "super.users": "User:ANONYMOUS", "kafka.listeners": "127.0.0.1:0"}
    with running_node(tmp_path_factory.mktemp("quotas") / "data", settings) as node:
        yield node


async def limit(node: NodeProcess, client_id: str, **figures: float) -> None:
    path = "AlterClientQuotasRequest.entries"
    entity = [struct(f"{path}.entity")(entity_type="client-id", entity_name=client_id)]
    ops = [struct(f"{path}.ops")(key=name, value=float(value)) for name, value in figures.items()]
    host, _, port = node.kafka_address.rpartition(":")
    async with KafkaClient(host, int(port)) as kafka:
        answer = await kafka.ask("AlterClientQuotas", 1, entries=[struct(path)(entity=entity, ops=ops)])
        assert answer.entries[0].error_code == 0


def test_librdkafka_hears_that_it_is_throttled_and_delivers_everything(run: Any, node: NodeProcess) -> None:
    throttled: list[float] = []
    run(lambda: limit(node, "noisy", producer_byte_rate=100_000))
    producer = Producer(
        {
            "bootstrap.servers": node.kafka_address,
            "client.id": "noisy",
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    failed: list[Any] = []
    for number in range(12):
        producer.produce("t", bytes(100_000), partition=0, on_delivery=lambda error, _: failed.append(error))
        if number == 0:
            producer.flush(PATIENCE_S)
    assert producer.flush(PATIENCE_S) == 0
    assert [error for error in failed if error is not None] == []
    assert max(throttled) > 0


def test_librdkafka_asks_in_a_version_that_waits_for_partitions_beyond_its_quota(run: Any, node: NodeProcess) -> None:
    run(lambda: limit(node, "maker", controller_mutation_rate=1))
    throttled: list[float] = []
    told = {"throttle_cb": lambda event: throttled.append(event.throttle_time)}
    admin = AdminClient({"bootstrap.servers": node.kafka_address, "client.id": "maker", **told})
    for name, partitions in (("wide", 12), ("more", 1)):
        made = admin.create_topics([NewTopic(name, partitions, 1)], request_timeout=PATIENCE_S)
        made[name].result(PATIENCE_S)
        admin.poll(0)
    assert {"wide", "more"} <= admin.list_topics(timeout=PATIENCE_S).topics.keys()
    admin.poll(0)
    assert max(throttled) > 0
