"""Kafka's own command line tools, asked of each of three nodes."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.peers import HERE, lines_of
from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.kafka.stage import NODE, stage
from tests.support.zookeeper.servers import zookeeper, zookeeper_server

__all__ = ["zookeeper", "zookeeper_server"]

pytestmark = pytest.mark.timeout(300)

TOPICS = "org.apache.kafka.tools.TopicCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
MOVES = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LEADERS = "org.apache.kafka.tools.LeaderElectionCommand"
CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture
def cluster(zookeeper: str, tmp_path: Path) -> Iterator[ClusterNodes]:
    with running_cluster(tmp_path, zookeeper, settings=NODE) as running:
        yield running


def tools(*commands: tuple[str, ...]) -> list[tuple[int, str]]:
    """The exit code of each, and what it printed."""
    java, classpath = shutil.which("java"), os.environ.get("KAFKA_BROKER_CLASSPATH")
    if java is None or not classpath:
        pytest.skip(
            "Kafka's tools want java, and KAFKA_BROKER_CLASSPATH: the jars of a Kafka broker (kafka_2.13, 4.1.1)"
        )
    words = [word for command in commands for word in (*command, "--then")]
    found: list[tuple[int, str]] = []
    for line in lines_of([java, "-cp", classpath, str(HERE / "java" / "Tools.java"), *words], HERE):
        if line.startswith("== "):
            said: list[str] = []
        elif line.startswith("-- "):
            found.append((int(line[3:]), "\n".join(said)))
        else:
            said.append(line)
    return found


def test_each_node_answers_kafkas_tools(cluster: ClusterNodes, tmp_path: Path) -> None:
    with stage(cluster, "range") as play:
        member = play.start("confluent")
        play.until_shared(member)
        play.send(10)
        play.until_committed()
        for number, node in cluster.nodes.items():
            at = ("--bootstrap-server", node.kafka_address)
            name = f"made-{number}"
            plan = tmp_path / f"plan-{number}.json"
            replicas = [number, number % 3 + 1]
            moved = [{"topic": name, "partition": partition, "replicas": replicas} for partition in range(2)]
            plan.write_text(json.dumps({"version": 1, "partitions": moved}))
            entity = ("--entity-type", "topics", "--entity-name", name)
            found = tools(
                (TOPICS, *at, "--create", "--topic", name, "--partitions", "2", "--replication-factor", "3"),
                (TOPICS, *at, "--describe", "--topic", name),
                (TOPICS, *at, "--list"),
                (GROUPS, *at, "--list"),
                (GROUPS, *at, "--describe", "--group", play.group),
                (GROUPS, *at, "--describe", "--group", play.group, "--members", "--verbose"),
                (GROUPS, *at, "--describe", "--group", play.group, "--state"),
                (CONFIGS, *at, *entity, "--alter", "--add-config", "retention.ms=86400001"),
                (CONFIGS, *at, *entity, "--describe"),
                (MOVES, *at, "--execute", "--reassignment-json-file", str(plan)),
                (MOVES, *at, "--verify", "--reassignment-json-file", str(plan)),
                (LEADERS, *at, "--election-type", "preferred", "--all-topic-partitions"),
                (TOPICS, *at, "--describe", "--under-replicated-partitions"),
                (TOPICS, *at, "--delete", "--topic", name),
            )
            failed = [(place, code, said) for place, (code, said) in enumerate(found) if code]
            assert failed == [], cluster.log_tail()
            _, described, listed, groups, group, members, state, _, configs, _, _, _, _, _ = [said for _, said in found]
            assert "PartitionCount: 2\tReplicationFactor: 3" in described
            assert {name, play.topic} <= set(listed.split())
            assert play.group in groups.split()
            rows = [line.split() for line in group.splitlines() if line.startswith(play.group)]
            assert sorted((int(row[2]), int(row[3]), int(row[4]), int(row[5])) for row in rows) == [
                (partition, 10, 10, 0) for partition in range(6)
            ]
            assert "confluent-0" in members
            assert "Stable" in state
            assert "retention.ms=86400001" in configs
