"""Kafka's own command line tools whose --bootstrap-server is a node over that Kafka: what passes, and what is
told of what does not. docs/over-your-kafka.md has the same as a table."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from muster.workshop.bench.kafka_peer import KAFKA, JarsUnavailable, find_jars
from tests.interop.peers import HERE
from tests.support.kafka.stage import stage
from tests.support.kafka_backend.late_writes import UNSTABLE, LateWrites
from tests.support.kafka_backend.proxy_nodes import ProxyNodes, proxy_nodes
from tests.support.kafka_backend.served import make_topics
from tests.support.pace import pace, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOOLS: Final = "org.apache.kafka:kafka-tools:4.1.1"
TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
ALL_GROUPS: Final = "org.apache.kafka.tools.GroupsCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
OFFSETS: Final = "org.apache.kafka.tools.GetOffsetShell"
PRODUCES: Final = "org.apache.kafka.tools.ConsoleProducer"
CONSUMES: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PERFORMS: Final = "org.apache.kafka.tools.ProducerPerformance"
READS_FAST: Final = "org.apache.kafka.tools.ConsumerPerformance"
TRANSACTIONS: Final = "org.apache.kafka.tools.TransactionsCommand"
LOG_DIRS: Final = "org.apache.kafka.tools.LogDirsCommand"
CLUSTER: Final = "org.apache.kafka.tools.ClusterTool"
ELECTIONS: Final = "org.apache.kafka.tools.LeaderElectionCommand"
QUORUM: Final = "org.apache.kafka.tools.MetadataQuorumCommand"
VERSIONS: Final = "org.apache.kafka.tools.BrokerApiVersionsCommand"
MOVES: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
HEAP: Final = "-Xmx128m"
TOOL_S: Final = 90.0


class Said(NamedTuple):
    code: int
    text: str


class Tools:
    """Runs them; all words of one call in one virtual machine."""

    def __init__(self, classpath: str, nodes: ProxyNodes) -> None:
        self._java = [shutil.which("java") or "java", HEAP, "-cp", classpath]
        self.nodes = nodes

    def at(self, number: int = 1) -> tuple[str, str]:
        return "--bootstrap-server", self.nodes.nodes[number].kafka_address

    def run(self, *commands: Sequence[str]) -> list[Said]:
        words = [word for command in commands for word in (*command, "--then")]
        done = self._run([str(HERE / "java" / "Tools.java"), *words], "", TOOL_S * len(commands))
        assert done.returncode == 0, done.stderr[-4000:]
        found: list[Said] = []
        for line in done.stdout.splitlines():
            if line.startswith("== "):
                said: list[str] = []
            elif line.startswith("-- "):
                found.append(Said(int(line[3:]), "\n".join(said)))
            else:
                said.append(line)
        return found

    def fed(self, given: str, *words: str) -> Said:
        """One that reads from its standard input."""
        done = self._run(words, given, TOOL_S)
        return Said(done.returncode, done.stdout + done.stderr)

    def _run(self, words: Sequence[str], given: str, seconds: float) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self._java, *words], input=given, capture_output=True, text=True, timeout=seconds * pace(), check=False
        )


@pytest.fixture(scope="module")
def tools(real_kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    try:
        classpath = os.pathsep.join(map(str, find_jars(KAFKA, TOOLS)))
    except JarsUnavailable as error:
        pytest.skip(f"needs Kafka's tools ({TOOLS}): {error}")
    place = Path(tmp_path_factory.mktemp("tools"))
    with proxy_nodes(real_kafka.address, "tools", place) as nodes:
        yield Tools(classpath, nodes)


def well(found: list[Said]) -> list[str]:
    assert [said for said in found if said.code] == []
    return [said.text for said in found]


def test_topics_and_their_settings(tools: Tools) -> None:
    at = tools.at()
    topic = ("--topic", "of-tools")
    entity = ("--entity-type", "topics", "--entity-name", "of-tools")
    found = tools.run(
        (TOPICS, *at, "--create", *topic, "--partitions", "2"),
        (TOPICS, *at, "--alter", *topic, "--partitions", "3"),
        (TOPICS, *at, "--describe", *topic),
        (CONFIGS, *at, *entity, "--alter", "--add-config", "retention.ms=86400001"),
        (CONFIGS, *at, *entity, "--describe"),
        (CONFIGS, *at, "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"),
        (TOPICS, *at, "--list"),
        (TOPICS, *at, "--delete", *topic),
    )
    _, _, described, _, configs, broker, listed, _ = well(found)
    assert "PartitionCount: 3" in described
    assert "Leader: 1" in described
    assert "retention.ms=86400001" in configs
    assert "of-tools" in listed.split()
    assert "num.io.threads=8" in broker
    assert tools.nodes.kafka not in broker


def test_records_are_written_and_read(tools: Tools) -> None:
    make_topics(tools.nodes.kafka, {"of-console": 1})
    at = tools.at()
    given = "".join(f"line {number}\n" for number in range(20))
    assert tools.fed(given, PRODUCES, *at, "--topic", "of-console").code == 0
    address = tools.nodes.kafka_address
    performance = ("--num-records", "2000", "--record-size", "1024", "--throughput", "-1")
    read = ("--topic", "of-console", "--from-beginning", "--max-messages", "20", "--timeout-ms", "60000")
    found = tools.run(
        (CONSUMES, *at, *read, "--group", "console"),
        (OFFSETS, *at, "--topic", "of-console"),
        (PERFORMS, "--topic", "of-console", *performance, "--producer-props", f"bootstrap.servers={address}"),
        (READS_FAST, *at, "--topic", "of-console", "--messages", "2000", "--group", "fast"),
        (GROUPS, *at, "--describe", "--group", "console"),
    )
    console, offsets, performed, _, group = well(found)
    assert [line for line in console.splitlines() if line.startswith("line")] == given.splitlines()
    assert offsets.split() == ["of-console:0:20"]
    assert "2000 records sent" in performed
    [row] = [line.split() for line in group.splitlines() if line.startswith("console")]
    assert row[1:4] == ["of-console", "0", "20"]
    assert {"console", "fast"} & tools.nodes.groups_upstream() == set()


def test_groups_are_seen_once_reset_and_deleted(tools: Tools) -> None:
    """`--list` asks every node, brokers and Muster's (KB-X8)."""
    with stage(tools.nodes, "range") as play:
        member = play.start("confluent")
        play.until_shared(member)
        play.send(10)
        play.until_committed()
        group = ("--group", play.group)
        at = tools.at(2)
        found = tools.run(
            (GROUPS, *at, "--list"),
            (ALL_GROUPS, *at, "--list"),
            (GROUPS, *at, "--describe", *group),
            (GROUPS, *at, "--describe", *group, "--members", "--verbose"),
            (GROUPS, *at, "--describe", *group, "--state"),
            (GROUPS, *at, "--delete", *group),
        )
        listed, everything, described, members, state = well(found[:5])
        assert listed.split().count(play.group) == 1
        assert len([line for line in everything.splitlines() if line.startswith(f"{play.group} ")]) == 1
        rows = [line.split() for line in described.splitlines() if line.startswith(play.group)]
        assert sorted((int(row[2]), int(row[3]), int(row[4])) for row in rows) == [(part, 10, 10) for part in range(6)]
        assert "confluent-0" in members
        assert "Stable" in state
        assert "GroupNotEmptyException" in found[5].text
        member.leave()
        until(lambda: member.ended == "left", lambda: f"{member}")
        earliest = ("--reset-offsets", "--to-earliest", "--topic", f"{play.topic}:0", "--execute")
        found = tools.run(
            (GROUPS, *at, *group, *earliest),
            (GROUPS, *at, "--describe", *group, "--offsets"),
            (GROUPS, *at, "--delete-offsets", *group, "--topic", f"{play.topic}:1"),
            (GROUPS, *at, "--describe", *group, "--offsets"),
            (GROUPS, *at, "--delete", *group),
            (GROUPS, *at, "--list"),
        )
        reset, behind, _, without, _, gone = well(found)
        assert play.topic in reset
        rows = [line.split() for line in behind.splitlines() if line.startswith(play.group)]
        assert sorted((int(row[2]), int(row[3])) for row in rows) == [(0, 0), *((part, 10) for part in range(1, 6))]
        rows = [line.split() for line in without.splitlines() if line.startswith(play.group)]
        assert sorted(int(row[2]) for row in rows) == [0, 2, 3, 4, 5]
        assert play.group not in gone.split()


def test_what_is_asked_of_every_node_is_told_once(tools: Tools) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": tools.nodes.kafka_address, "transactional.id": "of-tools"})
    producer.init_transactions(TOOL_S)
    at = tools.at()
    found = tools.run(
        (TRANSACTIONS, *at, "list"),
        (TRANSACTIONS, *at, "describe", "--transactional-id", "of-tools"),
        (LOG_DIRS, *at, "--describe"),
        (CLUSTER, "cluster-id", *at),
        (ELECTIONS, *at, "--election-type", "preferred", "--all-topic-partitions"),
    )
    listed, described, log_dirs, cluster, _ = well(found)
    assert len([line for line in listed.splitlines() if line.startswith("of-tools")]) == 1
    assert "Empty" in described
    assert log_dirs.count('/logs"') == 1
    assert log_dirs.count('"none"') == len(tools.nodes.nodes)
    assert "Cluster ID" in cluster


VERIFIES: Final = "transaction.partition.verification.enable"
INVALID_TXN_STATE: Final = 48


def verify(kafka: str, how: AlterConfigOpType) -> None:
    """SET: no more, DELETE: again, as by default."""
    changed = ConfigEntry(VERIFIES, "false", incremental_operation=how)
    broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[changed])
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.incremental_alter_configs([broker])[broker].result(TOOL_S)


def late_write(nodes: ProxyNodes, group: str) -> tuple[LateWrites, int]:
    """Positions that come to a transaction which their client has aborted, and the code that they are answered with."""
    writes = LateWrites(nodes, group, "of-late")

    async def story() -> int:
        await writes.begin()
        await writes.put_in()
        assert await writes.commit(5) == 0
        await writes.abort()
        return await writes.commit(9)

    return writes, asyncio.run(story())


def test_a_transaction_that_hangs_is_found_and_aborted_at_the_brokers(tools: Tools) -> None:
    """As brokers before 3.6 are: they take what comes to a transaction that is over (KIP-890)."""
    make_topics(tools.nodes.kafka, {"of-late": 1})
    assert late_write(tools.nodes, "late-and-refused")[1] == INVALID_TXN_STATE
    verify(tools.nodes.kafka, AlterConfigOpType.SET)
    try:
        writes, code = late_write(tools.nodes, "late")
    finally:
        verify(tools.nodes.kafka, AlterConfigOpType.DELETE)
    assert code == 0
    assert asyncio.run(writes.position())[0] == UNSTABLE
    state = ("--topic", "tools.state")
    [found] = well(tools.run((TRANSACTIONS, *tools.at(), "find-hanging", *state, "--max-transaction-timeout", "0")))
    [row] = [line.split() for line in found.splitlines() if line.startswith(state[1])]
    broker, place = ("--bootstrap-server", tools.nodes.kafka), (*state, "--partition", row[1], "--start-offset", row[5])
    through, itself = tools.run((TRANSACTIONS, *tools.at(), "abort", *place), (TRANSACTIONS, *broker, "abort", *place))
    assert (through.code, itself.code) == (1, 0), f"{through.text}\n{itself.text}"
    until(lambda: asyncio.run(writes.position()) == (0, -1), tools.nodes.log_tail)


def test_what_does_not_pass_says_so(tools: Tools, tmp_path: Path) -> None:
    """Tools that move partitions or look at the quorum belong at the brokers' own addresses (KB-X4, KB-X5)."""
    make_topics(tools.nodes.kafka, {"of-moves": 1})
    at = tools.at()
    plan = tmp_path / "plan.json"
    plan.write_text('{"version":1,"partitions":[{"topic":"of-moves","partition":0,"replicas":[1]}]}')
    found = tools.run(
        (MOVES, *at, "--execute", "--reassignment-json-file", str(plan)),
        (QUORUM, *at, "describe", "--status"),
    )
    assert [said.code for said in found] == [1, 1]
