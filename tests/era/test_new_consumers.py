"""Java consumers of Kafka 0.9 to 1.1 in one group with each other and with clients of today.

They join, leave and are killed. Each record is read once: before a member is killed, the group has committed.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.era.releases import java_command
from tests.support.kafka.stage import NODE, PARTITIONS, PATIENCE_S, Stage, Worker
from tests.support.node import NodeProcess, running_node
from tests.support.pace import pace, until

pytestmark = pytest.mark.integration

CONSOLE = "kafka.tools.ConsoleConsumer"
CONSOLE_TODAY = "org.apache.kafka.tools.consumer.ConsoleConsumer"
ASSIGNORS = {"range": "RangeAssignor", "roundrobin": "RoundRobinAssignor"}


class ConsoleMember(Worker):
    """A console consumer. It prints the values, which say where they are; what it owns the coordinator says."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.lines = 0
        super().__init__(name, command)

    def heard(self, line: bytes) -> None:
        self.lines += 1
        partition, offset = line.split()
        self.read.add((int(partition), int(offset)))

    def leave(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S * pace())
        self.assigned = []


class OldStage(Stage):
    """A topic whose records say where they are, and a group in which console consumers are."""

    def __init__(self, node: NodeProcess, assignor: str, folder: Path) -> None:
        super().__init__(node, assignor)
        self._folder = folder
        self._admin = AdminClient({"bootstrap.servers": node.kafka_address, "log_level": 0})

    def start_console(self, name: str, command: list[str], flag: str) -> ConsoleMember:
        told = self._folder / f"{self.group}-{name}.properties"
        told.write_text(
            f"group.id={self.group}\nclient.id={name}\nauto.offset.reset=earliest\nauto.commit.interval.ms=200\n"
            "session.timeout.ms=6000\nheartbeat.interval.ms=500\n"
            f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{ASSIGNORS[self.assignor]}\n"
        )
        arguments = ["--bootstrap-server", self.node.kafka_address, "--topic", self.topic, flag, str(told)]
        member = ConsoleMember(name, [*command, *arguments])
        self.workers.append(member)
        return member

    def start_old(self, release: str) -> ConsoleMember:
        new = ["--new-consumer"] if release == "0.9.0.1" else []
        return self.start_console(f"java-{release}", java_command(release, CONSOLE, *new), "--consumer.config")

    def start_today(self) -> ConsoleMember | None:
        """Kafka's own of today, where its jars are."""
        java, classpath = shutil.which("java"), os.environ.get("KAFKA_BROKER_CLASSPATH")
        if java is None or not classpath:
            return None
        command = [java, "-Xmx128m", "-XX:+UseSerialGC", "-cp", classpath, CONSOLE_TODAY]
        return self.start_console("java-today", command, "--consumer.config")

    def send_to(self, partition: int, count: int) -> None:
        for offset in range(self.sent[partition], self.sent[partition] + count):
            self._producer.produce(self.topic, f"{partition} {offset}".encode(), partition=partition)
        self.sent[partition] += count
        assert self._producer.flush(PATIENCE_S) == 0

    def settle(self, *owners: Worker) -> None:
        """Every partition has one owner, of these; each owns some."""
        until(lambda: self._look(owners), lambda: f"{self._what_is_known()}", PATIENCE_S)
        self.until_shared(*owners)

    def _look(self, owners: tuple[Worker, ...]) -> bool:
        try:
            found = self._admin.describe_consumer_groups([self.group])[self.group].result(PATIENCE_S)
        except KafkaException:
            return False
        owned = {
            member.client_id: sorted(each.partition for each in member.assignment.topic_partitions)
            for member in found.members
            if member.assignment is not None
        }
        for worker in self.workers:
            if isinstance(worker, ConsoleMember):
                worker.assigned = owned.get(worker.name, [])
        assert all(owner.process.poll() is None for owner in owners), self._what_is_known()
        shares = [partition for owner in owners for partition in owner.assigned]
        return sorted(shares) == list(range(PARTITIONS)) and all(owner.assigned for owner in owners)

    def check_each_was_read_once(self) -> None:
        self.until_all_read()
        times = sum(each.lines if isinstance(each, ConsoleMember) else len(each.read) for each in self.workers)
        assert times == sum(self.sent), [(str(worker), len(worker.read)) for worker in self.workers]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("new") / "data", NODE) as node:
        yield node


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_old_java_consumers_share_a_group_with_those_of_today(node: NodeProcess, tmp_path: Path, assignor: str) -> None:
    stage = OldStage(node, assignor, tmp_path)
    try:
        stage.send(20)
        first = stage.start("confluent")
        stage.settle(first)
        oldest, newest = stage.start_old("0.9.0.1"), stage.start_old("1.1.1")
        stage.settle(first, oldest, newest)
        stage.send(20)
        older, old, ours = stage.start_old("0.10.2.2"), stage.start_old("0.11.0.3"), stage.start("grpc")
        stage.settle(first, oldest, newest, older, old, ours)
        stage.send(20)
        stage.check_each_was_read_once()
        stage.until_committed()

        oldest.kill()
        stage.settle(first, newest, older, old, ours)
        stage.send(20)
        old.leave()
        stage.settle(first, newest, older, ours)
        more = [each for each in (stage.start("kafka-python"), stage.start_today()) if each is not None]
        stage.settle(first, newest, older, ours, *more)
        stage.send(20)
        stage.check_each_was_read_once()
    finally:
        for worker in stage.workers:
            worker.kill()
