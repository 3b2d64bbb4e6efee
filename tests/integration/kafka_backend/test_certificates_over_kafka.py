"""Clients come to a node by certificates, and to a real Kafka with an authorizer by credentials of the proxy's own:
Muster's lists go by the certificate's name, that Kafka's by the one principal (KB-X10)."""

import asyncio
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
)
from confluent_kafka.admin import ResourceType as Resource

from muster.cli.engine import acl_commands, client_acl_commands
from muster.coordinator.config import Settings, load_settings
from muster.coordinator.kafka_backend.backend_settings import proxy_address_of
from muster.coordinator.kafka_backend.proxy.proxy_principal import excess_rights
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.security.access_model import Operation, ResourceType
from tests.interop.kafka_broker import kafka_with_acls
from tests.support.certificates import client, write
from tests.support.kafka_backend.secured import PATIENCE_S, Member, SecuredNode, allow, until
from tests.support.kafka_backend.served import make_topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
CLUSTER: Final = "certs"
TOPIC: Final = "guarded"
REFUSED_START_S: Final = 30.0


class There(NamedTuple):
    """A broker's addresses: where whoever comes may do all, and where he is asked who he is."""

    open: str
    asking: str


def of_proxy(who: str) -> dict[str, str]:
    """Settings of a node with these credentials for its clients; the broker knows everybody's password: his name."""
    return {
        "engine.kafka.proxy.principal": f"User:{who}",
        "engine.kafka.proxy.sasl.username": who,
        "engine.kafka.proxy.sasl.password": who,
    }


def settings_of(there: There, who: str) -> Settings:
    given = {
        "engine": f"kafka://{there.asking}",
        "engine.kafka.cluster": CLUSTER,
        "engine.kafka.security.protocol": "SASL_PLAINTEXT",
        "engine.kafka.sasl.mechanism": "PLAIN",
        "engine.kafka.sasl.username": "muster",
        "engine.kafka.sasl.password": "muster",
    }
    return load_settings(None, given | of_proxy(who))


def bindings(commands: Iterable[str]) -> Iterator[AclBinding]:
    """What `muster engine acls` prints, as a client asks for it."""
    for command in commands:
        if command.startswith("#"):
            continue
        words = shlex.split(command)
        named = {word: words[at + 1] for at, word in enumerate(words[:-1]) if word.startswith("--")}
        who = next(word for word in named if word.endswith("-principal"))
        kind = next(word for word in named if word in ("--topic", "--group", "--transactional-id"))
        pattern = named.get("--resource-pattern-type", "literal").upper()
        for at, word in enumerate(words):
            if word == "--operation":
                yield AclBinding(
                    Resource[kind.removeprefix("--").replace("-", "_").upper()],
                    named[kind],
                    ResourcePatternType[pattern],
                    named[who],
                    "*",
                    AclOperation[{"DescribeConfigs": "DESCRIBE_CONFIGS"}.get(words[at + 1], words[at + 1].upper())],
                    AclPermissionType.ALLOW if who == "--allow-principal" else AclPermissionType.DENY,
                )


def of_applications(who: str) -> Iterator[AclBinding]:
    """Everything with topics and transactional ids, as it is given when nobody thinks of Muster."""
    for kind in (Resource.TOPIC, Resource.TRANSACTIONAL_ID):
        yield AclBinding(
            kind, "*", ResourcePatternType.LITERAL, f"User:{who}", "*", AclOperation.ALL, AclPermissionType.ALLOW
        )


@pytest.fixture(scope="module")
def there(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[There]:
    place = tmp_path_factory.mktemp("upstream") / "kafka"
    with kafka_with_acls(kafka_classpath, place, ["muster", "apps", "mighty"]) as addresses:
        found = There(*addresses)
        make_topics(found.open, {TOPIC: 2})
        settings = settings_of(found, "apps")
        wanted = [*bindings([*acl_commands(settings, "User:muster", (), ()), *client_acl_commands(settings)])]
        wanted += [*of_applications("apps"), *of_applications("mighty")]
        admin = AdminClient({"bootstrap.servers": found.open})
        for done in admin.create_acls(wanted).values():
            done.result(30)
        yield found


class CertifiedNode(SecuredNode):
    """Kafka's clients come to it by certificates."""

    def __init__(self, there: There, place: Path, who: str, number: int = 1) -> None:
        given = of_proxy(who) | {
            "kafka.listeners": "SSL://127.0.0.1:0",
            "sasl.enabled.mechanisms": "",
            "listener.name.kafka.ssl.client.auth": "required",
            "engine.kafka.session.timeout.ms": "6000",
        }
        super().__init__(there.asking, CLUSTER, number, place, "muster")
        self.settings |= given

    def given(self, name: str) -> dict[str, Any]:
        """Of a client of confluent-kafka, by a certificate with this name."""
        own = write(self.place, f"{name}.pem", client(name).pem())
        return {
            "bootstrap.servers": self.kafka_address,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.place / "ca.pem"),
            "ssl.certificate.location": own,
            "ssl.key.location": own,
        }


@pytest.fixture(scope="module")
def node(there: There, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CertifiedNode]:
    made = CertifiedNode(there, tmp_path_factory.mktemp("node"), "apps")
    try:
        made.start()
        with made.admin() as root:
            root.create_acls(
                [
                    allow("CN=alice", READ, ResourceType.GROUP, "of-alice"),
                    allow("CN=alice", READ, ResourceType.TOPIC, TOPIC),
                    allow("CN=alice", WRITE, ResourceType.TRANSACTIONAL_ID, "hers"),
                    # He may look for its coordinator, so that what he is refused is the rest.
                    allow("CN=bob", DESCRIBE, ResourceType.GROUP, "of-alice"),
                    allow("CN=bob", READ, ResourceType.TOPIC, TOPIC),
                ]
            )
        yield made
    finally:
        made.stop()


def produced(given: dict[str, Any], topic: str, value: bytes) -> KafkaError | None:
    """What became of one record; None: it is there."""
    told: list[KafkaError | None] = []
    producer = Producer(given, logger=None)
    producer.produce(topic, value, partition=0, on_delivery=lambda error, message: told.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return told[0]


def read(consumer: Consumer, value: bytes) -> Callable[[], bool]:
    def holds() -> bool:
        message = consumer.poll(0.1)
        return message is not None and message.value() == value

    return holds


def test_who_has_a_certificate_produces_consumes_and_commits(node: CertifiedNode) -> None:
    assert produced(node.given("alice"), TOPIC, b"by alice") is None
    alice = Member(node.given("alice"), "of-alice", TOPIC)
    try:
        until(read(alice.consumer, b"by alice"), "alice reads what she wrote", node)
        until(lambda: alice.commits(TOPIC), "alice commits", node)
        with node.admin() as root:
            assert {each.client_host for each in root.describe_group("of-alice").members} == {"127.0.0.1"}
    finally:
        alice.close()


def test_groups_go_by_the_name_of_the_certificate(node: CertifiedNode) -> None:
    bob = Member(node.given("bob"), "of-alice", TOPIC)
    try:
        until(lambda: bob.refused, "bob is refused", node)
        assert {*bob.errors} == {KafkaError.GROUP_AUTHORIZATION_FAILED}
        with pytest.raises(KafkaException) as refused:
            bob.consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
        assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    finally:
        bob.close()


@pytest.mark.parametrize(("name", "code"), [("alice", None), ("bob", KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)])
def test_positions_in_transactions_go_by_it_too(node: CertifiedNode, name: str, code: int | None) -> None:
    """KB-E1: bob may begin one by the id, which is Kafka's to say for all of them, and put no positions into it."""
    alice = Member(node.given("alice"), "of-alice", TOPIC)
    producer = Producer({**node.given(name), "transactional.id": "hers"}, logger=None)
    try:
        until(lambda: alice.joined, "alice is in", node)
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(TOPIC, b"in a transaction", partition=1)
        position, membership = [TopicPartition(TOPIC, 1, 7)], alice.consumer.consumer_group_metadata()
        if code is None:
            producer.send_offsets_to_transaction(position, membership, PATIENCE_S)
            producer.commit_transaction(PATIENCE_S)
            committed = alice.consumer.committed([TopicPartition(TOPIC, 1)], timeout=PATIENCE_S)
            assert committed[0].offset == 7
        else:
            with pytest.raises(KafkaException) as refused:
                producer.send_offsets_to_transaction(position, membership, PATIENCE_S)
            assert refused.value.args[0].code() == code
    finally:
        alice.close()


@pytest.mark.parametrize("topic", [f"{CLUSTER}.state", f"{CLUSTER}.security"])
def test_what_is_muster_s_there_is_refused_by_that_kafka(node: CertifiedNode, topic: str) -> None:
    refused = produced({**node.given("alice"), "message.timeout.ms": int(PATIENCE_S * 1000)}, topic, b"mine")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_who_shows_no_certificate_is_not_let_in(node: CertifiedNode) -> None:
    given = {key: value for key, value in node.given("alice").items() if key not in CERTIFICATE}
    with pytest.raises(KafkaException):
        AdminClient(given, logger=None).list_topics(timeout=5)


CERTIFICATE: Final = ("ssl.certificate.location", "ssl.key.location")


def test_a_start_with_credentials_that_may_too_much_is_refused(
    there: There, node: CertifiedNode, tmp_path: Path
) -> None:
    """node: once the topics are there."""
    mighty = CertifiedNode(there, tmp_path, "mighty", 2)
    with pytest.raises(AssertionError, match="did not start"):
        mighty.start()
    assert mighty.wait(REFUSED_START_S) not in (0, None)
    told = mighty.log_path.read_text()
    assert "engine.kafka.proxy.principal is User:mighty, and the brokers allow WRITE and DELETE" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("who", "found"),
    [
        ("apps", []),
        (
            "mighty",
            [
                f"WRITE and DELETE and ALTER and ALTER_CONFIGS on the topic {CLUSTER}.state",
                f"READ and WRITE and DELETE and ALTER and ALTER_CONFIGS on the topic {CLUSTER}.security",
                f"WRITE or DESCRIBE on the transactional id {CLUSTER}.shard-0",
                f"WRITE or DESCRIBE on the transactional id {CLUSTER}.security",
            ],
        ),
    ],
)
def test_a_kafka_tells_what_they_may(there: There, node: CertifiedNode, who: str, found: list[str]) -> None:
    settings = settings_of(there, who)
    reach = proxy_address_of(settings)
    assert reach is not None

    async def asked() -> list[str]:
        upstream = Upstream(reach)
        try:
            return await excess_rights(upstream, settings.state_topic, settings.security_topic, CLUSTER)
        finally:
            upstream.close()

    assert sorted(asyncio.run(asked())) == sorted(found)
