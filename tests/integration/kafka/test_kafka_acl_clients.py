"""Rights as clients that nobody here wrote meet them: confluent-kafka's and kafka-python's, by SASL."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka.admin import ACLFilter, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePatternFilter
from kafka.admin import ResourceType as PythonResourceType

from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.broker.broker import Broker
from tests.support.logins import user
from tests.support.node import NodeProcess, running_node
from tests.support.pace import Patience

pytestmark = pytest.mark.integration
PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One that knows root, who may do everything, and alice, who may do what the lists say."""
    data = tmp_path_factory.mktemp("acl") / "data"
    broker = Broker(data, node_id=1)
    store = SecurityStore(broker)
    store.load()
    asyncio.run(store.write([user("root", PASSWORD), user("alice", PASSWORD)]))
    broker.close()
    settings = {
        "kafka.listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "authorizer": "acl",
        "super.users": "User:root",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    with running_node(data, settings) as running:
        yield running


def as_user(node: NodeProcess, name: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": node.kafka_address, "security.protocol": "SASL_PLAINTEXT", "log_level": 0,
        "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": name, "sasl.password": PASSWORD,
    }  # fmt: skip


def entry(
    kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType = AclPermissionType.ALLOW
) -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, permission)


def put(root: AdminClient, *entries: AclBinding) -> None:
    for made in root.create_acls(list(entries)).values():
        made.result(10)


def produced(node: NodeProcess, topic: str) -> KafkaError | None:
    """What becomes of a record."""
    told: list[KafkaError | None] = []
    producer = Producer(as_user(node, "alice") | {"message.timeout.ms": 20_000})
    producer.produce(topic, b"value", on_delivery=lambda error, _: told.append(error))
    producer.flush(30)
    return told[0]


def test_confluents_client_may_what_the_lists_say_and_no_more(node: NodeProcess) -> None:
    root = AdminClient(as_user(node, "root"))
    for made in root.create_topics([NewTopic("orders", 1), NewTopic("secret", 1)]).values():
        made.result(10)
    alice = AdminClient(as_user(node, "alice"))
    assert set(alice.list_topics(timeout=10).topics) == set()
    failed = produced(node, "orders")
    assert failed is not None
    assert failed.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    put(
        root,
        entry(ResourceType.TOPIC, "orders", AclOperation.ALL),
        entry(ResourceType.GROUP, "readers", AclOperation.READ),
    )
    assert produced(node, "orders") is None
    assert set(alice.list_topics(timeout=10).topics) == {"orders"}
    assert read(node, "orders", "readers") == b"value"
    with pytest.raises(KafkaException) as refused:
        read(node, "orders", "others")
    assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as refused:
        put(alice, entry(ResourceType.TOPIC, "*", AclOperation.ALL))
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    found = root.describe_acls(every).result(10)
    assert {(each.name, each.operation) for each in found} == {
        ("orders", AclOperation.ALL),
        ("readers", AclOperation.READ),
    }
    put(root, entry(ResourceType.TOPIC, "orders", AclOperation.WRITE, AclPermissionType.DENY))
    failed = produced(node, "orders")
    assert failed is not None
    assert failed.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    (gone,) = root.delete_acls([every]).values()
    assert len(gone.result(10)) == 3


def read(node: NodeProcess, topic: str, group: str) -> bytes:
    """The first value, by a member of the group. Raises KafkaException."""
    more = {"group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(as_user(node, "alice") | more)
    with closing(consumer):
        consumer.subscribe([topic])
        patience = Patience(30)
        while patience.lasts():
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                raise KafkaException(message.error())
            consumer.commit(offsets=[TopicPartition(topic, 0, message.offset() + 1)], asynchronous=False)
            value = message.value()
            assert isinstance(value, bytes)
            return value
    raise AssertionError("nothing came")


def test_kafka_pythons_admin_reads_the_lists(node: NodeProcess) -> None:
    put(AdminClient(as_user(node, "root")), entry(ResourceType.TOPIC, "python", AclOperation.READ))
    admin = KafkaAdminClient(
        bootstrap_servers=node.kafka_address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="root",
        sasl_plain_password=PASSWORD,
    )
    with closing(admin):
        wanted = ACLFilter(
            principal=None,
            host=None,
            operation=ACLOperation.ANY,
            permission_type=ACLPermissionType.ANY,
            resource_pattern=ResourcePatternFilter(PythonResourceType.TOPIC, "python", ACLResourcePatternType.ANY),
        )
        found, error = admin.describe_acls(wanted)
        assert error.errno == 0
        assert [(each.principal, each.operation) for each in found] == [("User:alice", ACLOperation.READ)]
