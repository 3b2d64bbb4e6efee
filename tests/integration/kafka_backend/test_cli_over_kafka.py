"""`muster engine` against a real Kafka, and groups that move between it and a Muster."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from muster.cli.main import main
from muster.client import Admin
from muster.client.types import OffsetAndMetadata
from tests.support.kafka_backend.served import make_topics, over
from tests.support.node import NodeProcess, running_node
from tests.support.pace import until

pytestmark = pytest.mark.integration
PATIENCE_S = 60
OWN = ["--set", "engine.kafka.cluster=cli", "--set", "offsets.topic.num.partitions=4"]
SMALL = [*OWN, "--set", "engine.kafka.state.replication.factor=1"]


@pytest.fixture
def muster(kafka: str, tmp_path: Path) -> Iterator[NodeProcess]:
    make_topics(kafka, {"moves": 3})
    with running_node(tmp_path, over(kafka, "moving")) as node:
        yield node


def committed(kafka: str, group: str, topic: str, *offsets: int) -> None:
    """By a consumer that is no member."""
    reader = Consumer({"bootstrap.servers": kafka, "group.id": group, "enable.auto.commit": False})
    reader.commit(
        offsets=[TopicPartition(topic, at, offset, leader_epoch=0) for at, offset in enumerate(offsets)],
        asynchronous=False,
    )
    reader.close()


def member(kafka: str, group: str, client: str, topic: str) -> Consumer:
    """A consumer that has its partitions, at the real broker."""
    reader = Consumer({"bootstrap.servers": kafka, "group.id": group, "client.id": client})
    there: list[object] = []
    reader.subscribe([topic], on_assign=lambda *_: there.append(_))
    until(lambda: reader.poll(0.1) is None and bool(there), lambda: "nothing was assigned")
    return reader


def test_init_and_status(kafka: str, capsys: pytest.CaptureFixture[str]) -> None:
    over = ["--engine", f"kafka://{kafka}"]
    assert main(["engine", "status", *over, *SMALL]) == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in capsys.readouterr().err
    for _ in range(2):
        assert main(["engine", "init", *over, *SMALL]) == 0
        assert "cli.state will do: 4 partitions" in capsys.readouterr().err
    assert main(["engine", "status", *over, *SMALL, "-o", "json"]) == 4
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["state_topic"], told["nodes"], len(told["shards"])) == ("cli.state", [], 4)
    assert told["shards"][0] == {"shard": 0, "node": None, "leader": 1, "records": 0}
    assert "no node is there" in err


def test_adopt_and_release(kafka: str, muster: NodeProcess, capsys: pytest.CaptureFixture[str]) -> None:
    topic = "moves"
    for group, offset in (("moves-a", 5), ("moves-b", 6)):
        committed(kafka, group, topic, offset, offset + 1)
    both = ["--engine", f"kafka://{kafka}", "--bootstrap", muster.address]
    reader = member(kafka, "moves-busy", "busy", topic)
    assert main(["engine", "adopt", *both, "moves-nowhere"]) == 3
    assert "the upstream has no group moves-nowhere" in capsys.readouterr().err
    assert main(["engine", "adopt", *both, "moves-busy"]) == 5
    assert "the group moves-busy has members upstream: busy at /127.0.0.1" in capsys.readouterr().err
    assert main(["engine", "adopt", *both, "--all", "moves-.*", "-o", "json", "--dry-run"]) == 5
    rows = json.loads(capsys.readouterr().out)
    assert [(row["group"], row["partition"], row["offset"]) for row in rows] == [
        ("moves-a", 0, 5),
        ("moves-a", 1, 6),
        ("moves-b", 0, 6),
        ("moves-b", 1, 7),
    ]
    with Admin({"bootstrap.servers": muster.address}) as here:
        assert {each.group_id for each in here.list_groups()} == set(), "nothing was adopted yet"
        reader.close()
        assert main(["engine", "adopt", *both, "moves-a"]) == 0
        assert here.group_offsets("moves-a") == {
            (topic, 0): OffsetAndMetadata(5, "", 0),
            (topic, 1): OffsetAndMetadata(6, "", 0),
        }
        here.alter_offsets("moves-a", {(topic, 0): OffsetAndMetadata(50, "note", 0)})
        capsys.readouterr()
        assert main(["engine", "release", *both, "moves-a"]) == 0
        assert "moves-a: 2 positions released" in capsys.readouterr().err
        assert here.list_groups() == []
        # Its clients come back, and are where they were.
        assert here.group_offsets("moves-a") == {
            (topic, 0): OffsetAndMetadata(50, "note", 0),
            (topic, 1): OffsetAndMetadata(6, "", 0),
        }
    admin = AdminClient({"bootstrap.servers": kafka})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("moves-a")])
    found = asked["moves-a"].result(PATIENCE_S).topic_partitions
    assert {(each.partition, each.offset) for each in found} == {(0, 50), (1, 6)}


def test_x9_who_reads_past_muster_is_told(kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_topics(kafka, {"past": 1})
    reader = member(kafka, "past-muster", "sneaks", "past")
    try:
        with running_node(tmp_path, over(kafka, "guarded")) as node:

            def told() -> str:
                reader.poll(0.1)
                main(["doctor", "--bootstrap", node.address, "--over", "0", "-o", "json"])
                return capsys.readouterr().out

            until(lambda: "past-muster (sneaks at /127.0.0.1)" in told(), told)
    finally:
        reader.close()


def test_m4_what_is_committed_here_is_there_soon(kafka: str, tmp_path: Path) -> None:
    make_topics(kafka, {"mirrored": 2})
    mirrored = {"engine.kafka.offsets.mirror": "true", "engine.kafka.offsets.mirror.interval.ms": "100"}
    admin = AdminClient({"bootstrap.servers": kafka})
    with (
        running_node(tmp_path, over(kafka, "mirroring") | mirrored) as node,
        Admin({"bootstrap.servers": node.address}) as here,
    ):
        here.alter_offsets("mirror-me", {("mirrored", 0): 7, ("mirrored", 1): 8})
        here.alter_offsets("mirror-me", {("mirrored", 0): 9})

        def there() -> set[tuple[int, int]]:
            asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("mirror-me")])
            told = asked["mirror-me"].result(PATIENCE_S).topic_partitions
            return {(each.partition, each.offset) for each in told}

        until(lambda: there() == {(0, 9), (1, 8)}, lambda: f"the upstream has {there()}")
