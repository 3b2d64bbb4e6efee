"""Logins by clients that nobody here wrote: confluent-kafka, kafka-python and aiokafka, by each mechanism."""

import asyncio
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.errors import KafkaError as PythonError
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokens

from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.broker.broker import Broker
from tests.support.certificates import secure
from tests.support.logins import user
from tests.support.node import NodeProcess, running_node
from tests.support.pace import Patience
from tests.support.signed import AUDIENCE, ISSUER, jwk, jwks, signed

pytestmark = pytest.mark.integration
PASSWORD = "correct horse"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")


class Door(NamedTuple):
    node: NodeProcess
    protocol: str
    ca: str
    """The file of the authority, where the protocol is encrypted."""


@pytest.fixture(scope="module", params=["SASL_PLAINTEXT", "SASL_SSL"])
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A node that knows alice, who may do everything, and whoever has a token of our key."""
    place: Path = tmp_path_factory.mktemp("sasl")
    encrypted = request.param == "SASL_SSL"
    (place / "keys.json").write_bytes(jwks(jwk("EC", "k")))
    broker = Broker(place / "data", node_id=1)
    store = SecurityStore(broker)
    store.load()
    asyncio.run(store.write([user("alice", PASSWORD)]))
    broker.close()
    settings = {
        "kafka.listeners": f"{request.param}://127.0.0.1:0",
        "authorizer": "acl",
        "super.users": "User:alice;User:robot",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.plain.allow.plaintext": str(not encrypted).lower(),
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{place / 'keys.json'}",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "connection.failed.authentication.delay.ms": "10",
    }
    settings |= secure(place) if encrypted else {}
    with running_node(place / "data", settings) as running:
        yield Door(running, request.param, str(place / "ca.pem") if encrypted else "")


class PlainTokens(PythonTokens):  # type: ignore[misc]
    def __init__(self, made: str) -> None:
        self._made = made

    def token(self) -> str:
        return self._made


def by_confluent(door: Door, mechanism: str, password: str) -> bool:
    told: list[Any] = []
    config = {
        "bootstrap.servers": door.node.kafka_address, "security.protocol": door.protocol, "sasl.mechanism": mechanism,
        "error_cb": told.append, "log_level": 0,
    }  # fmt: skip
    if door.ca:
        config["ssl.ca.location"] = door.ca
    if mechanism == "OAUTHBEARER":
        token = signed() if password == PASSWORD else signed(number=1)
        config["oauth_cb"] = lambda _: (token, time.time() + 60)
    else:
        config |= {"sasl.username": "alice", "sasl.password": password}
    admin = AdminClient(config)
    patience = Patience(30)
    while patience.lasts():
        admin.poll(0.05)
        with suppress(Exception):
            admin.list_topics(timeout=1)
            return True
        if any(error.code() == KafkaError._AUTHENTICATION for error in told):
            return False
    raise AssertionError(told)


def by_python(door: Door, mechanism: str, password: str) -> bool:
    given: dict[str, Any] = {"sasl_plain_username": "alice", "sasl_plain_password": password}
    if mechanism == "OAUTHBEARER":
        token = signed() if password == PASSWORD else signed(number=1)
        given = {"sasl_oauth_token_provider": PlainTokens(token)}
    if door.ca:
        given["ssl_cafile"] = door.ca
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=door.node.kafka_address,
            security_protocol=door.protocol,
            sasl_mechanism=mechanism,
            request_timeout_ms=5_000,
            bootstrap_timeout_ms=10_000 if password == PASSWORD else 500,
            **given,
        )
    except PythonError:
        return False
    admin.list_topics()
    admin.close()
    return True


def by_aiokafka(door: Door, mechanism: str, password: str) -> bool:
    async def story() -> bool:
        given: dict[str, Any] = {"sasl_plain_username": "alice", "sasl_plain_password": password}
        if mechanism == "OAUTHBEARER":
            token = signed() if password == PASSWORD else signed(number=1)
            given = {"sasl_oauth_token_provider": AioTokens(token)}
        if door.ca:
            given["ssl_context"] = ssl.create_default_context(cafile=door.ca)
        producer = AIOKafkaProducer(
            bootstrap_servers=door.node.kafka_address,
            security_protocol=door.protocol,
            sasl_mechanism=mechanism,
            **given,
        )
        try:
            await producer.start()
            await producer.send_and_wait("logged-in", b"x")
        except Exception:
            return False
        finally:
            await producer.stop()
        return True

    return asyncio.run(story())


class AioTokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, made: str) -> None:
        self._made = made

    async def token(self) -> str:
        return self._made


CLIENTS = {"confluent-kafka": by_confluent, "kafka-python": by_python, "aiokafka": by_aiokafka}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_the_right_password_is_let_in_and_a_wrong_one_is_not(door: Door, client: str, mechanism: str) -> None:
    assert CLIENTS[client](door, mechanism, PASSWORD)
    assert not CLIENTS[client](door, mechanism, "wrong horse")
