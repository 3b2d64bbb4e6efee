"""SASL_SSL: a handshake, then a login, by clients that nobody here wrote; a certificate is asked for, or is not."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from kafka import KafkaAdminClient

from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.broker.broker import Broker
from tests.support.certificates import authority, client, secure, write
from tests.support.logins import user
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration

PASSWORD, PATIENCE_S = "correct horse", 30.0
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]


@pytest.fixture(scope="module", params=["none", "required"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    place: Path = tmp_path_factory.mktemp("sasl_ssl")
    broker = Broker(place / "data", node_id=1)
    store = SecurityStore(broker)
    store.load()
    asyncio.run(store.write([user("alice", PASSWORD)]))
    broker.close()
    settings = secure(place, kafka_listeners="SASL_SSL://127.0.0.1:0", authorizer="acl", super_users="User:alice")
    more = {"sasl.enabled.mechanisms": ",".join(MECHANISMS), "ssl.client.auth": request.param}
    more["ssl.principal.mapping.rules"] = "RULE:CN=carol/carol/"  # nobody is who his certificate says
    with running_node(place / "data", settings | more) as running:
        yield running


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_over_tls_is_who_it_says_whatever_certificate_it_shows(
    node: NodeProcess, mechanism: str, tmp_path: Path
) -> None:
    ca, own = (
        write(tmp_path, "ca.pem", authority().certificate_pem),
        write(tmp_path, "b.pem", client("bob").pem()),
    )
    given: dict[str, Any] = {"security.protocol": "SASL_SSL", "ssl.ca.location": ca, "sasl.mechanism": mechanism}
    given |= {"ssl.certificate.location": own, "ssl.key.location": own, "log_level": 0}
    given |= {"sasl.username": "alice", "sasl.password": PASSWORD, "bootstrap.servers": node.kafka_address}
    admin = AdminClient(given)
    [described] = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    assert described.result(PATIENCE_S), "alice may do everything, bob, whose certificate it is, nothing"

    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(own)
    login: dict[str, Any] = {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
    login |= {"security_protocol": "SASL_SSL", "sasl_mechanism": mechanism, "ssl_context": context}
    python = KafkaAdminClient(bootstrap_servers=node.kafka_address, **login)
    python.list_topics()
    python.close()

    async def story() -> None:
        async with AIOKafkaProducer(bootstrap_servers=node.kafka_address, **login) as producer:
            await producer.send_and_wait("orders", b"1")

    asyncio.run(story())
