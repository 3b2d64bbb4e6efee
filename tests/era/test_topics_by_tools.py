"""`kafka-topics --zookeeper` and `kafka-configs --zookeeper` of Kafka 0.8.2 to 1.1, at a node on its own and a cluster.

A group of today reads the topic meanwhile: what an old tool adds reaches consumers that run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.era.releases import SCALA, run_program
from tests.support.cluster_nodes import running_cluster
from tests.support.node import running_node
from tests.support.pace import until
from tests.support.zookeeper.servers import running

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0
TOPICS = "kafka.admin.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
ACLS = "kafka.admin.AclCommand"
WITHOUT_CONFIGS = "0.8.2.2"
"""Its kafka-configs is not there yet, nor is kafka-acls: kafka-topics changes settings."""
WARNING = "access control lists in ZooKeeper are not applied"


class Served(NamedTuple):
    """zookeeper.connect, bootstrap.servers, and what the nodes have logged last."""

    zookeeper: str
    servers: str
    logged: Callable[[], str]


@pytest.fixture(scope="module", params=["alone", "cluster"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("tools")
    more = {"kafka.listeners": "127.0.0.1:0"}
    with running(1) as ensemble:
        if request.param == "alone":
            with running_node(directory / "d", more | {"zookeeper.connect": ensemble.connect}) as node:
                yield Served(ensemble.connect, node.kafka_address, node.log_tail)
        else:
            with running_cluster(directory, ensemble.connect) as cluster:
                logs = [node.log_tail for node in cluster.nodes.values()]
                yield Served(ensemble.connect, cluster.kafka_address, lambda: "".join(log() for log in logs))


class Reader:
    """A member of a group, and what it has read."""

    def __init__(self, servers: str, topic: str) -> None:
        told = {"bootstrap.servers": servers, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
        self._consumer = Consumer(told | {"topic.metadata.refresh.interval.ms": 200, "log_level": 0})
        self._consumer.subscribe([topic])
        self.values: list[str] = []

    def has(self, value: str) -> bool:
        message = self._consumer.poll(0.2)
        if message is not None and not message.error():
            self.values.append((message.value() or b"").decode())
        return value in self.values

    def owns(self, partitions: int) -> bool:
        self.has("")
        return len(self._consumer.assignment()) == partitions

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def reading(servers: str, topic: str) -> Iterator[Reader]:
    reader = Reader(servers, topic)
    try:
        yield reader
    finally:
        reader.close()


def settings_of(admin: AdminClient, topic: str) -> tuple[str, str]:
    """retention.ms and max.message.bytes."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    return found["retention.ms"].value, found["max.message.bytes"].value


@pytest.mark.parametrize("release", SCALA)
def test_topics_of_old_tools_are_made_grown_set_and_deleted(served: Served, release: str) -> None:
    zookeeper, servers = served.zookeeper, served.servers
    topic = f"by-{release.replace('.', '-')}"
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})

    def by_tool(program: str, *arguments: str) -> str:
        return run_program(release, program, "--zookeeper", zookeeper, *arguments)

    def partitions() -> int:
        found = admin.list_topics(timeout=PATIENCE_S).topics.get(topic)
        return 0 if found is None or found.error is not None else len(found.partitions)

    named = ("--topic", topic)
    by_tool(
        TOPICS,
        "--create",
        *named,
        *("--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=60000"),
    )
    until(lambda: partitions() == 2, lambda: f"{topic} has {partitions()} partitions", PATIENCE_S)
    assert settings_of(admin, topic)[0] == "60000"
    said = by_tool(TOPICS, "--describe", *named)
    assert "PartitionCount:2" in said, said
    assert "retention.ms=60000" in said, said
    with reading(servers, topic) as reader:
        until(lambda: reader.owns(2), lambda: "the reader got nothing", PATIENCE_S)
        by_tool(TOPICS, "--alter", *named, "--partitions", "3")
        until(lambda: partitions() == 3, lambda: f"{topic} has {partitions()} partitions", PATIENCE_S)
        until(lambda: reader.owns(3), lambda: "the new partition did not reach the reader", PATIENCE_S)
        producer.produce(topic, b"in the new one", partition=2)
        assert producer.flush(PATIENCE_S) == 0
        until(lambda: reader.has("in the new one"), lambda: f"read were {reader.values}", PATIENCE_S)
    if release == WITHOUT_CONFIGS:
        by_tool(TOPICS, "--alter", *named, "--config", "max.message.bytes=50000")
    else:
        entity = ("--entity-type", "topics", "--entity-name", topic)
        by_tool(CONFIGS, "--alter", *entity, "--add-config", "max.message.bytes=50000")
        assert "max.message.bytes=50000" in by_tool(CONFIGS, "--describe", *entity)
    until(
        lambda: settings_of(admin, topic) == ("60000", "50000"),
        lambda: f"the settings are {settings_of(admin, topic)}",
        PATIENCE_S,
    )
    by_tool(TOPICS, "--delete", *named)
    until(lambda: partitions() == 0, lambda: f"{topic} still has {partitions()} partitions", PATIENCE_S)
    until(lambda: topic not in by_tool(TOPICS, "--list").split(), lambda: f"{topic} is still listed", PATIENCE_S)


@pytest.mark.parametrize("release", [release for release in SCALA if release != WITHOUT_CONFIGS])
def test_rights_of_kafka_acls_are_kept_in_zookeeper_and_said_not_to_count(served: Served, release: str) -> None:
    """The tool sees what it wrote. No node applies it, and the node that sees it says so."""
    topic = ("--topic", f"secret-{release}")
    place = ("--authorizer-properties", f"zookeeper.connect={served.zookeeper}")
    run_program(release, ACLS, *place, "--add", "--allow-principal", "User:ann", "--operation", "Read", *topic)
    assert "User:ann has Allow permission for operations: Read" in run_program(release, ACLS, *place, "--list", *topic)
    until(lambda: WARNING in served.logged(), lambda: f"not said: {served.logged()}", PATIENCE_S)
