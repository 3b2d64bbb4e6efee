"""The state topic of a running node is deleted, made anew, cut or grown: it is said, nothing is made anew by itself,
and `muster engine init --again` has it go on (KB-H1)."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from muster.cli.main import main
from muster.client import Admin
from muster.client.errors import ClientError
from muster.client.types import TopicPartition
from muster.coordinator.config import parse_address
from muster.coordinator.kafka_backend.shard_ownership.topic_presence import UpstreamTopic
from muster.coordinator.kafka_backend.state_topic import TopicMarks
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from tests.support.kafka_backend.served import SHARDS, make_topics, over
from tests.support.node import MUSTER, NodeProcess
from tests.support.pace import pace, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SOON = {"engine_kafka_metadata_refresh_ms": "500", "engine_kafka_topic_gone_after_ms": "1000"}
GROUPS = [f"g{number}" for number in range(8)]


class Story:
    """A node with positions in each shard, and the upstream's own tools."""

    def __init__(self, kafka: str, cluster: str, place: Path) -> None:
        self.kafka, self.topic = kafka, f"{cluster}.state"
        self.tools = AdminClient({"bootstrap.servers": kafka})
        self.node = NodeProcess(place / cluster, over(kafka, cluster, **SOON))
        self._given = ["--engine", f"kafka://{kafka}", "--set", f"engine.kafka.cluster={cluster}"]
        self._given += ["--set", f"offsets.topic.num.partitions={SHARDS}"]
        self._given += ["--set", "engine.kafka.state.replication.factor=1"]

    def commits(self, offset: int) -> bool:
        """Of each group; whether all were taken."""
        with Admin(bootstrap_servers=self.node.address, default_api_timeout_ms=2_000) as admin:
            try:
                for group in GROUPS:
                    admin.alter_offsets(group, {TopicPartition("lost-orders", 0): offset})
            except ClientError:
                return False
            return True

    def positions(self) -> set[int]:
        with Admin(bootstrap_servers=self.node.address, default_api_timeout_ms=2_000) as admin:
            try:
                return {at.offset for group in GROUPS for at in admin.group_offsets(group).values()}
            except ClientError:
                return set()

    def log(self) -> str:
        return self.node.log_path.read_text(errors="replace")

    def says(self, *words: str) -> None:
        until(lambda: all(word in self.log() for word in words), lambda: f"{words}\n{self.node.log_tail()}")

    def serves(self, offset: int) -> None:
        until(lambda: self.commits(offset), self.node.log_tail)

    def is_refused(self, *words: str) -> None:
        """Another node, at its start."""
        given = [word for name, value in self.node.settings.items() for word in ("--set", f"{name}={value}")]
        command = [MUSTER, "serve", "--listen", "127.0.0.1:0", *given]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60 * pace(), check=False)
        assert ended.returncode == 1
        assert all(word in ended.stderr for word in words), ended.stderr

    def init(self, *more: str) -> int:
        return main(["engine", "init", *self._given, *more])

    def delete(self) -> None:
        self.tools.delete_topics([self.topic])[self.topic].result(30)
        until(lambda: self.topic not in self.tools.list_topics(timeout=10).topics, lambda: "it is still there")

    def make(self, partitions: int = SHARDS) -> None:
        made = NewTopic(self.topic, partitions, 1, config={"cleanup.policy": "compact"})
        self.tools.create_topics([made])[self.topic].result(30)

    def is_emptied(self) -> bool:
        """Its records are deleted; a broker refuses that until it has heard of another policy than compact (44)."""
        places = [Place(self.topic, shard, -1) for shard in range(SHARDS)]
        try:
            for told in self.tools.delete_records(places).values():
                told.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.POLICY_VIOLATION:
                raise
            return False
        return True

    def policy(self, value: str) -> None:
        entry = ConfigEntry("cleanup.policy", value, incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(ResourceType.TOPIC, self.topic, incremental_configs=[entry])
        self.tools.incremental_alter_configs([wanted])[wanted].result(30)


@pytest.fixture
def story(kafka: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Story]:
    make_topics(kafka, {"lost-orders": 1})
    story = Story(kafka, request.node.name.removeprefix("test_")[:24].strip("_"), tmp_path)
    story.node.start()
    try:
        story.serves(5)
        cluster = story.topic.removesuffix(".state")
        until(lambda: asyncio.run(remembered(kafka, cluster, story.topic)), story.node.log_tail)
        yield story
    finally:
        story.node.stop()


async def remembered(kafka: str, cluster: str, topic: str) -> bool:
    upstream = Upstream(UpstreamAddress((parse_address(kafka),)))
    try:
        await upstream.refresh([topic])
        seen = upstream.view.topics[topic]
        return await TopicMarks(upstream, cluster, topic).knows(UpstreamTopic(seen.topic_id, len(seen.parts)))
    finally:
        upstream.close()


def test_deleted_while_it_runs_and_while_it_does_not(story: Story) -> None:
    story.delete()
    story.says("state-topic", f"the state topic {story.topic} (id ", "is deleted, and groups and positions with it")
    assert not story.commits(6)
    assert story.node.stop() == 0
    story.is_refused(f"the state topic {story.topic} is not there, and it was")
    assert story.init() == 1
    assert story.topic not in story.tools.list_topics(timeout=10).topics
    assert story.init("--again") == 0
    story.node.start()
    story.serves(7)
    assert story.positions() == {7}


def test_made_anew_by_somebody(story: Story) -> None:
    """Its brokers would take what the owner writes: they know no producer, and any sequence will do."""
    story.delete()
    story.make()
    story.says("state-topic", f"the state topic {story.topic} (id ", "another one of that name (id ")
    assert not story.commits(6)
    story.is_refused(f"the state topic {story.topic} (id ", "is not the one it was")
    assert story.init("--again") == 0
    story.serves(7)
    assert story.positions() == {7}


def test_cut_by_retention_of_another_policy(story: Story) -> None:
    story.policy("delete")
    until(story.is_emptied, story.node.log_tail)
    story.policy("compact")
    until(lambda: not story.commits(6), story.node.log_tail)
    story.says("state-topic", f"of the state topic {story.topic} are not served", "its log begins at offset ")
    story.node.kill()
    story.node.start()
    until(lambda: story.log().count("its log begins at offset ") >= 2, story.node.log_tail)
    assert not story.commits(6)
    assert story.init("--again") == 0
    story.serves(7)
    assert story.positions() == {7}


def test_grown(story: Story) -> None:
    story.tools.create_partitions([NewPartitions(story.topic, SHARDS + 2)])[story.topic].result(30)
    story.says("state-topic", f"has {SHARDS + 2} partitions, and had {SHARDS}")
    assert not story.commits(6)
    story.is_refused(f"has {SHARDS + 2} partitions and every group's place depends on it")
    assert story.init("--again") == 0
    until(lambda: story.positions() == {5}, story.node.log_tail)
    story.node.kill()
    story.node.start()
    story.serves(6)
