"""The tools of Kafka 0.8.2 to 1.1 against a node of today, one after the other; docs/kafka-clients.md lists them.

`TOOLS` is the table: which releases have a tool, and what it says of the same groups and topics.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from muster.coordinator.config import Address
from muster.coordinator.replication.protocol.cluster_metadata import ClusterNode, NodeEndpoint
from muster.coordinator.server.services.zookeeper_registration import build_registration
from muster.coordinator.zookeeper.cluster.cluster_layout import registration_json
from tests.era.releases import SCALA, run_program
from tests.support.node import NodeProcess, running_node
from tests.support.pace import Patience
from tests.support.zookeeper.servers import running

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0
TOPIC = "orders"
ROOT = Path(__file__).parents[2]
OLD_ADMIN, OLD_POSITIONS, OLD_TOPICS = (
    str(Path(__file__).parent / "java" / "clients" / f"{name}.java")
    for name in ("OldAdmin", "OldPositions", "OldTopics")
)
"""Programs of ours that Java compiles over the classes of a release as it starts them."""
ADMINISTERS = ["0.11.0.3", "1.1.1"]
"""Releases with an AdminClient."""


class Served(NamedTuple):
    """A node beside a ZooKeeper, with a topic of 2 x 50 records, `old` at 20 of each partition in ZooKeeper, and
    `new` at 30 of each in the log."""

    node: NodeProcess
    zookeeper: str
    folder: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("tools")
    with running(1) as ensemble:
        more = {"kafka.listeners": "127.0.0.1:0", "zookeeper.connect": ensemble.connect}
        with running_node(folder / "d", more) as node:
            admin = AdminClient({"bootstrap.servers": node.kafka_address, "log_level": 0})
            admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(PATIENCE_S)
            producer = Producer({"bootstrap.servers": node.kafka_address, "log_level": 0})
            for number in range(100):
                producer.produce(TOPIC, str(number).encode(), partition=number % 2)
            assert producer.flush(PATIENCE_S) == 0
            make_group(node, "new")
            yield Served(node, ensemble.connect, folder)


def make_group(node: NodeProcess, group: str) -> None:
    """It has had a member: old tools list no other groups."""
    consumer = Consumer({"bootstrap.servers": node.kafka_address, "group.id": group, "log_level": 0})
    consumer.subscribe([TOPIC])
    patience = Patience(PATIENCE_S)
    while not consumer.assignment():
        assert patience.lasts(), "the member was assigned nothing"
        consumer.poll(0.1)
    consumer.close()


@pytest.fixture(autouse=True)
def positions(served: Served) -> None:
    """As `Served` says, again before each tool."""
    zookeeper = KazooClient(served.zookeeper)
    zookeeper.start()
    for number in range(2):
        path = f"/consumers/old/offsets/{TOPIC}/{number}"
        zookeeper.ensure_path(path)
        zookeeper.set(path, b"20")
    for empty in ("ids", f"owners/{TOPIC}"):
        zookeeper.ensure_path(f"/consumers/old/{empty}")
    zookeeper.stop()
    zookeeper.close()
    consumer = Consumer({"bootstrap.servers": served.node.kafka_address, "group.id": "new", "log_level": 0})
    consumer.commit(offsets=[TopicPartition(TOPIC, number, 30) for number in range(2)], asynchronous=False)
    consumer.close()


def old_positions(served: Served) -> list[bytes]:
    zookeeper = KazooClient(served.zookeeper)
    zookeeper.start()
    found = [zookeeper.get(f"/consumers/old/offsets/{TOPIC}/{number}")[0] for number in range(2)]
    zookeeper.stop()
    zookeeper.close()
    return found


def new_positions(served: Served) -> list[int]:
    consumer = Consumer({"bootstrap.servers": served.node.kafka_address, "group.id": "new", "log_level": 0})
    found = consumer.committed([TopicPartition(TOPIC, number) for number in range(2)], PATIENCE_S)
    consumer.close()
    return [each.offset for each in found]


class Tool(NamedTuple):
    """A tool as a row of the table. `arguments`: {zookeeper}, {kafka}, {topic} and {folder} stand for those of the
    node. `says`: what has to be in what it prints, spaces being one."""

    name: str
    program: str
    releases: tuple[str, ...]
    arguments: str
    says: tuple[str, ...]
    needs_new_consumer: tuple[str, ...] = ()
    """Releases that take `--bootstrap-server` with `--new-consumer` only."""


ALL = tuple(SCALA)
SCALA_CONSUMERS = ("0.8.2.2", "0.9.0.1", "0.10.2.2")
GROUPS = ("0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1")
EARLY = ("0.9.0.1", "0.10.2.2")
TOOLS = [
    Tool(
        "ConsumerOffsetChecker",
        "kafka.tools.ConsumerOffsetChecker",
        SCALA_CONSUMERS,
        "--zookeeper {zookeeper} --group old --topic {topic}",
        ("old orders 0 20 50 30 none", "old orders 1 20 50 30 none"),
    ),
    Tool(
        "GetOffsetShell --time -1",
        "kafka.tools.GetOffsetShell",
        ALL,
        "--broker-list {kafka} --topic {topic} --time -1",
        ("orders:0:50", "orders:1:50"),
    ),
    Tool(
        "GetOffsetShell --time -2",
        "kafka.tools.GetOffsetShell",
        ALL,
        "--broker-list {kafka} --topic {topic} --time -2",
        ("orders:0:0", "orders:1:0"),
    ),
    Tool(
        "kafka-consumer-groups --zookeeper --list",
        "kafka.admin.ConsumerGroupCommand",
        GROUPS,
        "--zookeeper {zookeeper} --list",
        ("old",),
    ),
    Tool(
        "kafka-consumer-groups --zookeeper --describe",
        "kafka.admin.ConsumerGroupCommand",
        GROUPS,
        "--zookeeper {zookeeper} --describe --group old",
        ("orders 0 20 50 30", "orders 1 20 50 30"),
    ),
    Tool(
        "kafka-consumer-groups --bootstrap-server --list",
        "kafka.admin.ConsumerGroupCommand",
        GROUPS,
        "--bootstrap-server {kafka} --list",
        ("new",),
        EARLY,
    ),
    Tool(
        "kafka-consumer-groups --bootstrap-server --describe",
        "kafka.admin.ConsumerGroupCommand",
        GROUPS[1:],
        "--bootstrap-server {kafka} --describe --group new",
        ("orders 0 30 50 20", "orders 1 30 50 20"),
        EARLY,
    ),
    Tool(
        "VerifyConsumerRebalance",
        "kafka.tools.VerifyConsumerRebalance",
        SCALA_CONSUMERS,
        "--zookeeper.connect {zookeeper} --group old",
        ("Rebalance operation successful !",),
    ),
    Tool(
        "kafka-topics --zookeeper --describe",
        "kafka.admin.TopicCommand",
        ALL,
        "--zookeeper {zookeeper} --describe --topic {topic}",
        (
            "Topic:orders PartitionCount:2 ReplicationFactor:1",
            "Partition: 0 Leader: 1 Replicas: 1 Isr: 1",
            "Partition: 1 Leader: 1 Replicas: 1 Isr: 1",
        ),
    ),
    Tool(
        "kafka-configs --zookeeper --describe",
        "kafka.admin.ConfigCommand",
        GROUPS,
        "--zookeeper {zookeeper} --describe --entity-type topics --entity-name {topic}",
        ("onfigs for topic",),
    ),
]
CASES = [(release, tool) for tool in TOOLS for release in tool.releases]


def run(served: Served, release: str, program: str, arguments: str) -> str:
    """What it prints, each row of a table with one space between its columns and without commas."""
    given = arguments.format(
        zookeeper=served.zookeeper, kafka=served.node.kafka_address, topic=TOPIC, folder=served.folder
    )
    return re.sub(r"[ \t,]+", " ", run_program(release, program, *given.split()))


@pytest.mark.parametrize(("release", "tool"), CASES, ids=[f"{release}-{tool.name}" for release, tool in CASES])
def test_what_a_tool_shows(served: Served, release: str, tool: Tool) -> None:
    arguments = tool.arguments + (" --new-consumer" if release in tool.needs_new_consumer else "")
    said = run(served, release, tool.program, arguments)
    for line in tool.says:
        assert line in said, said


@pytest.mark.parametrize("release", SCALA_CONSUMERS)
def test_positions_in_zookeeper_are_exported_imported_and_set(served: Served, release: str) -> None:
    """The import has the older positions again, and they are what the node shows."""
    file = served.folder / f"positions-{release}"
    run(served, release, "kafka.tools.ExportZkOffsets", f"--zkconnect {{zookeeper}} --group old --output-file {file}")
    assert file.read_text().split() == [f"/consumers/old/offsets/{TOPIC}/{number}:20" for number in range(2)]
    told = served.folder / f"properties-{release}"
    told.write_text(f"group.id=old\nzookeeper.connect={served.zookeeper}\n")
    run(served, release, "kafka.tools.UpdateOffsetsInZK", f"latest {told} {{topic}}")
    assert old_positions(served) == [b"50", b"50"]
    run(served, release, "kafka.tools.ImportZkOffsets", f"--zkconnect {{zookeeper}} --input-file {file}")
    assert old_positions(served) == [b"20", b"20"]


@pytest.mark.parametrize("release", GROUPS)
def test_a_group_in_zookeeper_is_deleted_by_its_tool(served: Served, release: str) -> None:
    run(served, release, "kafka.admin.ConsumerGroupCommand", "--zookeeper {zookeeper} --delete --group old")
    said = run(served, release, "kafka.admin.ConsumerGroupCommand", "--zookeeper {zookeeper} --list")
    assert "old" not in said.split()


@pytest.mark.parametrize("release", ADMINISTERS)
def test_positions_of_a_group_are_reset(served: Served, release: str) -> None:
    program, group = "kafka.admin.ConsumerGroupCommand", "--bootstrap-server {kafka} --reset-offsets --group new"
    run(served, release, program, f"{group} --topic {{topic}} --to-earliest --execute")
    assert new_positions(served) == [0, 0]
    run(served, release, program, f"{group} --topic {{topic}}:1 --shift-by 7 --execute")
    assert new_positions(served) == [0, 7]
    said = run(served, release, program, f"{group} --all-topics --export --to-current")
    assert sorted(re.findall(r"orders \d \d+", said)) == ["orders 0 0", "orders 1 7"]


@pytest.mark.parametrize("release", SCALA_CONSUMERS)
def test_a_simple_consumer_keeps_positions_in_zookeeper_and_in_the_log(served: Served, release: str) -> None:
    """Versions 0 of OffsetCommit and OffsetFetch are about ZooKeeper, versions 1 about the log."""
    host, port = served.node.kafka_address.split(":")
    said = run(served, release, OLD_POSITIONS, f"{host} {port} simple {{topic}} 0=7 1=9 0 1")
    assert said.splitlines() == ["commit 0 0", "commit 1 0", "fetch 0 7 0", "fetch 1 9 0"]


@pytest.mark.parametrize("release", ["0.10.2.2"])
def test_topics_are_created_as_clients_before_the_admin_client_did(served: Served, release: str) -> None:
    """Versions 0 and 1 of CreateTopics, and 0 of DeleteTopics, by the classes of that release."""
    host, port = served.node.kafka_address.split(":")
    assert run(served, release, OLD_TOPICS, f"{host} {port}").splitlines() == [
        "create 0 made-by-0: NONE",
        "create 0 made-by-0: TOPIC_ALREADY_EXISTS",
        "create 1 not-made: NONE",
        "create 1 made-by-1: NONE",
        "create 1 made-by-1: TOPIC_ALREADY_EXISTS and says why",
        "create 1 without: INVALID_PARTITIONS and says why",
        "delete 0 made-by-0: NONE",
        "delete 0 made-by-1: NONE",
        "delete 0 not-made: UNKNOWN_TOPIC_OR_PARTITION",
    ]


@pytest.mark.parametrize("release", ADMINISTERS)
def test_an_admin_client_makes_topics_sets_them_and_gives_rights(tmp_path: Path, release: str) -> None:
    more = {"kafka.listeners": "127.0.0.1:0", "authorizer": "acl", "super.users": "User:ANONYMOUS"}
    with running_node(tmp_path / "d", more) as node:
        said = run(Served(node, "", tmp_path), release, OLD_ADMIN, "{kafka} made")
    assert said.splitlines() == [
        "nodes: 1",
        "create: done",
        "create again: TopicExistsException",
        "listed: true",
        "partitions: 2",
        "set: 60000",
        "alter: done",
        "set: 70000",
        "allow: done",
        "rights: 1",
        "forbid: 1",
        "rights: 0",
        "delete: done",
        "delete again: UnknownTopicOrPartitionException",
    ]


REGISTRATIONS = {
    "both": build_registration(Address("box", 9290), Address("box", 9092), 17).to_json(),
    "tls": build_registration(Address("box", 9290), Address("box", 9093), 17, "SASL_SSL").to_json(),
    "none": build_registration(Address("box", 9290), None, 17).to_json(),
    "cluster": registration_json(
        ClusterNode(
            1,
            0,
            "a" * 22,
            endpoints=(
                NodeEndpoint("REPLICATION", "box", 9291),
                NodeEndpoint("GRPC", "box", 9290),
                NodeEndpoint("PLAINTEXT", "box", 9092),
            ),
            rack="r1",
        ),
        timestamp_ms=17,
    ),
}


@pytest.mark.parametrize("release", SCALA)
def test_each_release_reads_the_registrations_of_nodes(release: str) -> None:
    """By its own parser. 0.8 knows host and port alone; later ones must not see a listener that is not Kafka's."""
    said = run_program(release, "OldBrokers", said="".join(f"{each.decode()}\n" for each in REGISTRATIONS.values()))
    found = dict(zip(REGISTRATIONS, said.splitlines(), strict=True))
    if release == "0.8.2.2":
        reached, nowhere = "id:1,host:box,port:9092", "id:1,host:null,port:-1"
        assert found == {"both": reached, "tls": nowhere, "none": nowhere, "cluster": reached}
        return
    ports = {name: re.findall(r"EndPoint\(box,(\d+),.*?(SASL_SSL|PLAINTEXT)\)+", text) for name, text in found.items()}
    plain = [("9092", "PLAINTEXT")]
    assert ports == {"both": plain, "tls": [("9093", "SASL_SSL")], "none": [], "cluster": plain}, found


def test_the_page_names_these_tools() -> None:
    """docs/kafka-clients.md has a row for each, with its releases."""
    page = (ROOT / "docs" / "kafka-clients.md").read_text()
    rows = dict(re.findall(r"^\| `([^`]+)` \| ([0-9., ]+) \|", page, re.MULTILINE))
    wanted = {tool.name: ", ".join(tool.releases) for tool in TOOLS}
    wanted |= dict.fromkeys(("ExportZkOffsets", "ImportZkOffsets", "UpdateOffsetsInZK"), ", ".join(SCALA_CONSUMERS))
    wanted["kafka-consumer-groups --zookeeper --delete"] = ", ".join(GROUPS)
    wanted["kafka-consumer-groups --reset-offsets"] = ", ".join(ADMINISTERS)
    wanted["kafka-acls --authorizer-properties zookeeper.connect=..."] = ", ".join(GROUPS)
    wanted["AdminClient"] = ", ".join(ADMINISTERS)
    assert {name: rows.get(name) for name in wanted} == wanted
