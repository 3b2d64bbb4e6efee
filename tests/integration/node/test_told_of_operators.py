"""Who set or deleted positions, or the group: told by its ledger, through whichever door it was done."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.client import Admin, Consumer
from tests.support.client_stories import poll_until
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("told") / "data"), {"kafka.listeners": "127.0.0.1:0"}) as running:
        yield running


@pytest.fixture(scope="module")
def kafka(node: NodeProcess) -> Any:
    admin = pytest.importorskip("confluent_kafka.admin")
    return admin.AdminClient({"bootstrap.servers": node.kafka_address})


def muster(node: NodeProcess, *words: str) -> Any:
    """What `muster groups` prints as JSON, or says."""
    arguments = ["groups", words[0], "--bootstrap", node.address, *words[1:]]
    run = f"import sys; from muster.cli.main import main; sys.exit(main({arguments!r}))"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "json" in words else done.stdout + done.stderr


def shared(node: NodeProcess, group: str) -> None:
    """A group that a member has shared, and left."""
    with Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic(group, 3)
    with Consumer(bootstrap_servers=node.address, group_id=group, enable_auto_commit=False) as consumer:
        consumer.subscribe([group])
        poll_until(lambda: len(consumer.assignment()) == 3, consumer, what="all partitions")


def told(node: NodeProcess, group: str) -> list[tuple[str, list[tuple[int, Any, Any]]]]:
    """Outcome and positions of what operators did."""
    entries = muster(node, "explain", "--entries", "-o", "json", group)
    return [
        (entry["outcome"], [(each["partition"], each["before"], each["after"]) for each in entry["positions"]])
        for entry in entries
        if entry["outcome"] in ("POSITIONS_CHANGED", "GROUP_DELETED")
    ]


def test_by_the_command_line(node: NodeProcess) -> None:
    shared(node, "ours")
    reset = ("reset-offsets", "--topic", "ours", "--to", "start", "--execute", "--reason", "read it all again")
    muster(node, *reset, "ours")
    assert told(node, "ours") == [("POSITIONS_CHANGED", [(0, None, 0), (1, None, 0), (2, None, 0)])]
    assert "operator at 127.0.0.1 (read it all again) set 3 positions" in muster(node, "explain", "ours")
    muster(node, "delete-offsets", "--topic", "ours:1", "--reason", "a slip", "ours")
    assert told(node, "ours")[1:] == [("POSITIONS_CHANGED", [(1, 0, None)])]
    muster(node, "delete", "--reason", "retired", "ours")
    assert told(node, "ours") == [("GROUP_DELETED", [(0, 0, None), (2, 0, None)])]
    said = muster(node, "history", "-o", "wide", "ours")
    assert "operator at 127.0.0.1 (retired) deleted the group, with 2 positions and 4 entries of its ledger" in said


def test_by_kafkas_door(node: NodeProcess, kafka: Any) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    shared(node, "theirs")
    moved = ConsumerGroupTopicPartitions("theirs", [TopicPartition("theirs", 0, 0), TopicPartition("theirs", 2, 0)])
    kafka.alter_consumer_group_offsets([moved])["theirs"].result(30)
    assert told(node, "theirs") == [("POSITIONS_CHANGED", [(0, None, 0), (2, None, 0)])]
    kafka.delete_consumer_groups(["theirs"])["theirs"].result(30)
    assert told(node, "theirs") == [("GROUP_DELETED", [(0, 0, None), (2, 0, None)])]


def test_a_consumer_that_assigns_itself_partitions_is_no_operator(node: NodeProcess, kafka: Any) -> None:
    from confluent_kafka import Consumer as KafkaConsumer
    from confluent_kafka import TopicPartition

    with Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic("alone", 1)
    consumer = KafkaConsumer({"bootstrap.servers": node.kafka_address, "group.id": "alone"})
    try:
        consumer.assign([TopicPartition("alone", 0, 0)])
        consumer.commit(offsets=[TopicPartition("alone", 0, 0)], asynchronous=False)
    finally:
        consumer.close()
    assert told(node, "alone") == []


def test_it_is_known_after_a_crash(node: NodeProcess) -> None:
    shared(node, "gone")
    muster(node, "delete", "gone")
    node.kill()
    node.start()
    assert [outcome for outcome, _ in told(node, "gone")] == ["GROUP_DELETED"]
