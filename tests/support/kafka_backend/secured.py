"""A node over a Kafka that asks who clients are: they log in there, and the node's own lists say who may do what."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from muster.client import Admin
from muster.coordinator.security.access_model import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from tests.support.certificates import client, secure, write
from tests.support.kafka_backend.proxied import free_ports
from tests.support.kafka_backend.served import over
from tests.support.node import NodeProcess
from tests.support.pace import Patience

PATIENCE_S: Final = 60.0
BROKER: Final = 1
"""The id of the tests' broker."""
ROOT: Final = "root"
BY_NAME: Final = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
NOT_ALLOWED: Final = {
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
}


def as_muster(password: str) -> dict[str, str]:
    """How the tests' nodes log in at the broker."""
    return {
        "engine.kafka.security.protocol": "SASL_PLAINTEXT",
        "engine.kafka.sasl.mechanism": "PLAIN",
        "engine.kafka.sasl.username": "muster",
        "engine.kafka.sasl.password": password,
    }


class SecuredNode(NodeProcess):
    """`root` may do everything by gRPC, with a certificate; Kafka's clients log in at the broker."""

    def __init__(self, broker: str, cluster: str, number: int, place: Path, password: str, **more: str) -> None:
        ports = free_ports(1)
        self.place = place
        given = {
            "node.id": str(number),
            "kafka.listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "sasl.plain.allow.plaintext": "true",
            "listeners": "SSL://127.0.0.1:0",
            "listener.name.grpc.ssl.client.auth": "required",
            "authorizer": "acl",
            "super.users": f"User:CN={ROOT};User:CN=localhost",
            "engine.kafka.broker.ports": f"{ports[0]}-{ports[-1]}",
            "engine.kafka.broker.id.first": str(BROKER),
            "engine.kafka.session.timeout.ms": "3000",
            "engine.kafka.heartbeat.interval.ms": "300",
            **as_muster(password),
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        super().__init__(place / f"n{number}", secure(place) | over(broker, cluster) | given)
        self.ports = ports

    def admin(self, who: str = ROOT) -> Admin:
        return Admin(
            {
                "bootstrap.servers": self.address,
                "security.protocol": "SSL",
                "ssl.truststore.location": str(self.place / "ca.pem"),
                "ssl.keystore.location": write(self.place, f"{who}.pem", client(who).pem()),
            }
        )


def login(servers: str, user: str, password: str, mechanism: str = "PLAIN") -> dict[str, Any]:
    """Of a client of confluent-kafka."""
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def allow(user: str, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> Acl:
    return Acl(kind, PatternType.LITERAL, name, f"User:{user}", "*", operation, Permission.ALLOW)


def make_scram_users(broker: str, names: list[str], password: str) -> None:
    """At a listener of the broker that asks nobody who he is."""
    admin = AdminClient({"bootstrap.servers": broker})
    for mechanism in BY_NAME.values():
        given = ScramCredentialInfo(mechanism, 4096)
        wanted = [UserScramCredentialUpsertion(name, given, password.encode()) for name in names]
        for done in admin.alter_user_scram_credentials(wanted).values():
            done.result(30)


class Member:
    """Of a group, in a client of confluent-kafka; what it was refused."""

    def __init__(self, given: dict[str, Any], group: str, topic: str, **more: Any) -> None:
        self.errors: list[int] = []
        more = {"auto.offset.reset": "earliest", "enable.auto.commit": False, **more}
        self.consumer = Consumer({**given, "group.id": group, **more}, logger=None)
        self.consumer.subscribe([topic])

    def poll(self) -> None:
        message = self.consumer.poll(0.1)
        if message is not None and (error := message.error()) is not None:
            self.errors.append(error.code())

    @property
    def joined(self) -> bool:
        self.poll()
        return bool(self.consumer.assignment())

    @property
    def refused(self) -> bool:
        self.poll()
        return bool(NOT_ALLOWED & {*self.errors})

    def commits(self, topic: str) -> bool:
        """Whether it could: while a shard moves it cannot."""
        try:
            self.consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() in NOT_ALLOWED:
                raise
            return False
        return True

    def close(self) -> None:
        self.consumer.close()


def until(holds: Callable[[], bool], what: str, *nodes: NodeProcess) -> None:
    patience = Patience(PATIENCE_S)
    while not holds():
        tails = "\n".join(node.log_tail() for node in nodes)
        assert patience.lasts(), f"not within {PATIENCE_S} s: {what}\n{tails}"
