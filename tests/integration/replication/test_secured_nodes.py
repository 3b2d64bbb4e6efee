"""Three real nodes that ask who may do what: told to one, in force on all, whoever dies."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.integration.cli.test_accounts_of_a_node import muster
from tests.support import certificates
from tests.support.cluster_nodes import ClusterNodes
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

TOPIC = "orders"
PATIENCE_S = 60.0
NO_SUCH_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._NOENT)
OWN = "listener.name.replication."


def settings(directory: Path) -> dict[str, str]:
    return {
        "authorizer": "acl",
        "super.users": "User:CN=localhost;User:admin",
        "inter.broker.listeners": "SSL://127.0.0.1:0",
        "kafka.listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "ssl.keystore.location": certificates.write(directory, "node.pem", certificates.server().pem()),
        f"{OWN}ssl.client.auth": "required",
        f"{OWN}ssl.truststore.location": certificates.write(
            directory, "ca.pem", certificates.authority().certificate_pem
        ),
    }


def bootstrapped(directory: Path, given: dict[str, str]) -> str:
    """The token of the first user, made while no node runs."""
    password = directory / "password"
    password.write_text("correct horse\n")
    sets = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    data = ("--data", str(directory / "node2"), "--set", "node.id=2", "--set", "zookeeper.connect=127.0.0.1")
    return muster(
        "storage", "bootstrap-user", *data, *sets, "--password-file", str(password), "--token", "admin"
    ).strip()


def of(node: str, user: str, password: str) -> dict[str, object]:
    return {
        "bootstrap.servers": node,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def rights(*operations: AclOperation, permission: AclPermissionType = AclPermissionType.ALLOW) -> list[AclBinding]:
    literal = ResourcePatternType.LITERAL
    return [
        AclBinding(ResourceType.TOPIC, TOPIC, literal, "User:alice", "*", operation, permission)
        for operation in operations
    ]


class Secured:
    def __init__(self, cluster: ClusterNodes, token: str) -> None:
        self.cluster = cluster
        self.token = token
        self._admins: dict[int, AdminClient] = {}

    def admin(self, node: int) -> AdminClient:
        if node not in self._admins:
            self._admins[node] = AdminClient(of(self.cluster.nodes[node].kafka_address, "admin", "correct horse"))
        return self._admins[node]

    def until_done(self, node: int, ask: Callable[[AdminClient], Mapping[Any, Any]]) -> None:
        """By a client of its own for each try. One of librdkafka that was told of a controller when that had just died
        waits for it to come back, and asks again only after topic.metadata.refresh.interval.ms."""
        patience = Patience(PATIENCE_S)
        while True:
            admin = AdminClient(of(self.cluster.nodes[node].kafka_address, "admin", "correct horse"))
            try:
                for result in ask(admin).values():
                    result.result(PATIENCE_S)
                return
            except KafkaException:
                if not patience.lasts():
                    raise

    def sees(self, node: int) -> bool:
        """Whether alice may see the topic, as this node has it; LookupError where she is not known there."""
        client = AdminClient(of(self.cluster.nodes[node].kafka_address, "alice", "pencil"))
        try:
            return TOPIC in client.list_topics(timeout=30).topics
        except KafkaException as error:
            raise LookupError from error

    def until_all(self, nodes: tuple[int, ...], seen: bool) -> float:
        """Seconds until all of these say so."""
        began, patience = time.monotonic(), Patience(PATIENCE_S)
        for node in nodes:
            while True:
                try:
                    if self.sees(node) is seen:
                        break
                except LookupError:
                    pass
                assert patience.lasts(), f"node {node} to say {seen}"
        return time.monotonic() - began


@pytest.fixture
def secured(zookeeper: str, tmp_path: Path) -> Iterator[Secured]:
    given = settings(tmp_path / "certificates")
    token = bootstrapped(tmp_path, given)
    cluster = ClusterNodes(tmp_path, zookeeper, settings=given)
    try:
        cluster.start()
        yield Secured(cluster, token)
    finally:
        cluster.stop()


def test_what_is_taken_from_somebody_at_one_node_is_taken_at_all_of_them(secured: Secured) -> None:
    nodes = secured.cluster.nodes
    patience = Patience(PATIENCE_S)
    while True:  # the first user is known once there are three
        try:
            users = json.loads(
                muster("users", "list", "--bootstrap", nodes[1].address, "-o", "json", token=secured.token)
            )
            break
        except AssertionError:
            assert patience.lasts(), "node 1 to know who is the first user"
    assert [row["user"] for row in users] == ["admin"]
    admin = secured.admin(1)
    admin.create_topics([NewTopic(TOPIC, 3)])[TOPIC].result(PATIENCE_S)
    alice = UserScramCredentialUpsertion("alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"pencil")
    for result in secured.admin(2).alter_user_scram_credentials([alice]).values():
        result.result(PATIENCE_S)
    for result in secured.admin(3).create_acls(rights(AclOperation.WRITE)).values():
        result.result(PATIENCE_S)
    print("granted", secured.until_all((1, 2, 3), seen=True))
    producer = Producer(of(secured.cluster.kafka_address, "alice", "pencil") | {"acks": "all"})
    failures: list[object] = []
    for number in range(30):
        producer.produce(TOPIC, b"%d" % number, on_delivery=lambda error, message: failures.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert failures == [None] * 30
    shown = set(secured.admin(2).list_topics(timeout=10).topics)
    assert "__security" not in shown
    assert TOPIC in shown
    unknown = secured.admin(2)
    for asked in (
        unknown.delete_topics(["__security"]),
        unknown.create_partitions([NewPartitions("__security", 2)]),
        unknown.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "__security")]),
        unknown.list_offsets({TopicPartition("__security", 0): OffsetSpec.earliest()}),
        unknown.delete_records([TopicPartition("__security", 0, 1)]),
    ):
        for result in asked.values():
            with pytest.raises(KafkaException) as refused:
                result.result(PATIENCE_S)
            assert refused.value.args[0].code() in NO_SUCH_TOPIC, refused.value
    with pytest.raises(KafkaException):
        unknown.create_topics([NewTopic("__security", 1)])["__security"].result(PATIENCE_S)
    denied = rights(AclOperation.ALL, permission=AclPermissionType.DENY)
    for result in secured.admin(1).create_acls(denied).values():
        result.result(PATIENCE_S)
    print("denied", secured.until_all((1, 2, 3), seen=False))

    nodes[1].kill()
    assert not secured.sees(2), "what was taken stays so, whoever dies"
    assert not secured.sees(3)
    patience = Patience(PATIENCE_S)
    while True:  # it may be answered that nobody leads yet
        try:
            at = ("--bootstrap", nodes[2].address)
            made = json.loads(muster("tokens", "create", *at, "--name", "ci", "-o", "json", token=secured.token))
            break
        except AssertionError:
            assert patience.lasts(), "node 2 to make a token"
    patience = Patience(PATIENCE_S)
    while True:
        try:
            muster("topics", "list", "--bootstrap", nodes[3].address, token=made["token"])
            break
        except AssertionError:
            assert patience.lasts(), "node 3 to know the token"
    secured.until_done(3, lambda admin: admin.delete_acls([each_of(denied[0])], request_timeout=5))
    print("granted again", secured.until_all((2, 3), seen=True))
    muster("tokens", "revoke", "--bootstrap", nodes[3].address, made["token_id"], token=secured.token)
    nodes[1].start()
    assert secured.sees(1), "it is answered by what was so when it came back"
    muster("topics", "list", "--bootstrap", nodes[1].address, token=made["token"], code=1)


def each_of(binding: AclBinding) -> object:
    from confluent_kafka.admin import AclBindingFilter

    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )
