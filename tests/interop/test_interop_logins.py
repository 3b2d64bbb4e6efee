"""Logins over TLS by kcat, kafkajs and Kafka's own client, with each mechanism of passwords; a wrong one, and a right
that is missing."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.coordinator.security.access_model import Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.state import AclKey, SecurityRecord
from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.broker.broker import Broker
from tests.interop.peers import java_story, kcat_command, node_story
from tests.support.certificates import authority, secure, write
from tests.support.logins import user
from tests.support.node import NodeProcess, running_node

PASSWORD, WRONG = "correct horse", "wrong horse"
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
TOPIC, OTHER = "orders", "secrets"

Login = Callable[[str, str, str, str, str], str]
"""Address, CA, mechanism, password and topic: what became of one record."""


def by_kcat(address: str, ca: str, mechanism: str, password: str, topic: str) -> str:
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": ca,
        "sasl.mechanisms": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
        "message.timeout.ms": "5000",
    }
    pairs = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    done = subprocess.run(
        [kcat_command(), "-P", "-b", address, "-t", topic, *pairs],
        input="one", capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    said = done.stdout + done.stderr
    return f"produced {topic}" if done.returncode == 0 and "rror" not in said else f"refused {said}"


def by_kafkajs(address: str, ca: str, mechanism: str, password: str, topic: str) -> str:
    [line] = node_story("login_story", address, ca, mechanism.lower(), "alice", password, topic)
    return line


def by_java(address: str, ca: str, mechanism: str, password: str, topic: str) -> str:
    return java_story("LoginStory", address, ca, mechanism, "alice", password, topic)[-1]


CLIENTS: dict[str, Login] = {"kcat": by_kcat, "kafkajs": by_kafkajs, "java": by_java}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logins")


@pytest.fixture(scope="module")
def node(place: Path) -> Iterator[NodeProcess]:
    broker = Broker(place / "data", node_id=1)
    broker.create_topic(TOPIC, 1)
    broker.create_topic(OTHER, 1)
    store = SecurityStore(broker)
    store.load()
    may = [
        Acl(ResourceType.TOPIC, PatternType.LITERAL, TOPIC, "User:alice", "*", Operation.WRITE, Permission.ALLOW),
        Acl(
            *(ResourceType.CLUSTER, PatternType.LITERAL, "kafka-cluster", "User:alice", "*"),
            *(Operation.IDEMPOTENT_WRITE, Permission.ALLOW),
        ),
    ]
    asyncio.run(store.write([user("alice", PASSWORD), *(SecurityRecord(AclKey(acl), acl) for acl in may)]))
    broker.close()
    settings = secure(place, kafka_listeners="SASL_SSL://127.0.0.1:0", authorizer="acl")
    with running_node(place / "data", settings | {"sasl.enabled.mechanisms": ",".join(MECHANISMS)}) as running:
        yield running


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_knows_the_password_writes_what_they_may_and_nothing_else(
    node: NodeProcess, place: Path, client: str, mechanism: str
) -> None:
    ca, login = write(place, "authority.pem", authority().certificate_pem), CLIENTS[client]
    assert login(node.kafka_address, ca, mechanism, PASSWORD, TOPIC) == f"produced {TOPIC}"
    assert login(node.kafka_address, ca, mechanism, WRONG, TOPIC).startswith("refused")
    assert login(node.kafka_address, ca, mechanism, PASSWORD, OTHER).startswith("refused")
