"""A node that refuses to start over a Kafka has written nothing there: no topic, no record, no producer (KB-N2)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from muster.coordinator.config import Address, load_settings
from muster.coordinator.edge.cluster_view import ClientAddresses
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.protocol import WRITE
from muster.coordinator.server.backend.node_backend import BackendContext
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.kafka_backend.backend import KafkaBackend, UpstreamRefusedNode
from tests.fakes.group_desk import GroupDesk
from tests.fakes.state_topic import StateTopic
from tests.fakes.upstream_broker import UpstreamBroker

SHARDS = 4
DOORS = ClientAddresses(Address("127.0.0.1", 9290), Address("127.0.0.1", 9092), None)
WRITES = {"Produce", "InitProducerId", "AddPartitionsToTxn", "OffsetCommit"}
DOOR = {"kafka.listeners": "127.0.0.1:0", "engine.kafka.broker.ports": "9100", "engine.kafka.broker.id.first": "1"}
BY_CERTIFICATE = {
    "kafka.listeners": "SSL://127.0.0.1:0",
    "authorizer": "acl",
    "ssl.keystore.location": "server.pem",
    "ssl.truststore.location": "ca.pem",
    "listener.name.kafka.ssl.client.auth": "required",
    "engine.kafka.security.protocol": "SASL_PLAINTEXT",
    "engine.kafka.sasl.mechanism": "PLAIN",
    "engine.kafka.sasl.username": "muster",
    "engine.kafka.proxy.principal": "User:apps",
    "engine.kafka.proxy.sasl.username": "apps",
}


class Kafka:
    """An upstream that no node was ever over."""

    def __init__(self, broker: UpstreamBroker) -> None:
        self.broker = broker
        self.topic = StateTopic(broker, "muster.state", SHARDS, exists=False)
        self.desk = GroupDesk(broker, 6_000)
        broker.answers |= {
            "SaslHandshake": lambda request: struct("SaslHandshakeResponse")(mechanisms=["PLAIN"]),
            "SaslAuthenticate": lambda request: struct("SaslAuthenticateResponse")(),
        }

    @property
    def written(self) -> list[str]:
        """What was asked that leaves something behind, by API."""
        made = [name for name, request in self.broker.asked if name == "CreateTopics" and not request.validate_only]
        return made + [name for name, _ in self.broker.asked if name in WRITES]


def start(change: Callable[[Kafka], object] = lambda kafka: None, **given: str) -> tuple[Kafka, str]:
    """What the upstream was asked, and why the node refuses to start; "": it does not."""

    async def whole() -> tuple[Kafka, str]:
        async with UpstreamBroker() as broker:
            kafka = Kafka(broker)
            change(kafka)
            over = {"engine": f"kafka://127.0.0.1:{broker.address.port}", "offsets.topic.num.partitions": str(SHARDS)}
            backend = KafkaBackend(
                BackendContext(load_settings(None, over | DOOR | given), NodeClock(), None, lambda: DOORS)
            )
            try:
                await backend.meet()
            except UpstreamRefusedNode as refused:
                return kafka, str(refused)
            finally:
                await backend.close()
                kafka.desk.close()
            return kafka, ""

    return asyncio.run(whole())


def refuses_topics(kafka: Kafka) -> None:
    kafka.topic.refusal = 44  # POLICY_VIOLATION


def refuses_members(code: int) -> Callable[[Kafka], None]:
    def change(kafka: Kafka) -> None:
        kafka.desk.refusal = code

    return change


def lets_clients_write(kafka: Kafka) -> None:
    """As a broker without an authorizer tells of a topic that is not there."""
    told = kafka.broker.answers["Metadata"]

    def metadata(request: Any) -> Any:
        answer = told(request)
        answer.topics[0].topic_authorized_operations = 1 << WRITE
        return answer

    kafka.broker.answers["Metadata"] = metadata


def test_an_upstream_that_will_do_gets_its_topic() -> None:
    kafka, why = start()
    assert why == ""
    assert [each.name for each in kafka.topic.made] == ["muster.state"]
    assert len(kafka.broker.of("LeaveGroup")) == 1, "who has asked whether it may join is not waited for"


@pytest.mark.parametrize(
    ("change", "given", "why"),
    [
        (lambda kafka: None, {"engine.kafka.broker.id.first": "5"}, "has ports for the ids 5 to 5 only"),
        (lambda kafka: None, {"engine.kafka.node.id.base": "1"}, "raise engine.kafka.node.id.base"),
        (refuses_topics, {}, "making the topic muster.state"),
        (refuses_topics, {"authorizer": "acl"}, "making the topic muster.state"),
        (refuses_members(26), {}, "engine.kafka.session.timeout.ms is"),
        (refuses_members(30), {}, "allow its principal READ on it"),
        (lets_clients_write, BY_CERTIFICATE, "the brokers allow WRITE on the topic muster.state"),
    ],
)
def test_a_node_that_refuses_to_start_has_written_nothing(
    change: Callable[[Kafka], object], given: dict[str, str], why: str
) -> None:
    kafka, said = start(change, **given)
    assert why in said
    assert kafka.written == []
