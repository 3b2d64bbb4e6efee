"""The log through Kafka's own client in Java, and through kafkajs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client import Consumer
from tests.interop.peers import java_story, node_story
from tests.support.node import NodeProcess, running_node

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
MESSAGES = 2_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("interop") / "data"), {"kafka.listeners": "127.0.0.1:0"}) as running:
        yield running


def by_grpc(node: NodeProcess, topic: str, number: int) -> list[bytes]:
    """What our own consumer reads from partition 0."""
    with Consumer(bootstrap_servers=node.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        found: list[bytes] = []
        while len(found) < number:
            found += [message.value for message in consumer.consume(number, 1.0)]
    return found


def test_java_produces_fetches_and_administers(node: NodeProcess) -> None:
    sent = [f"{codec} {number} ".encode() * (1 + number % 20) for codec in CODECS for number in range(MESSAGES)]
    assert java_story("LogStory", node.kafka_address, "java") == [
        "partitions 2",
        "again TopicExistsException",
        *(f"produced {codec} {MESSAGES * (place + 1) - 1}" for place, codec in enumerate(CODECS)),
        f"consumed {len(sent)} {sum(map(len, sent))}",
        f"ends 0 {len(sent)}",
        "since 1970 0",
        "retention 86400001 DYNAMIC_TOPIC_CONFIG",
        f"latest {len(sent)}",
        "low 10",
    ]
    # The ten that it deleted are gone for everybody.
    assert by_grpc(node, "java", len(sent) - 10) == sent[10:]
    assert len(list(node.data.glob("java-*"))) == 3


def test_kafkajs_produces_fetches_and_administers(node: NodeProcess) -> None:
    sent = [f"message {number}".encode() for number in range(MESSAGES)] * 2
    assert node_story("log_story", node.kafka_address, "js") == [
        "made true false",
        "produced 0",
        f"produced {MESSAGES}",
        f"consumed {2 * MESSAGES}",
        f"ends 0-{2 * MESSAGES} 0-0",
        "retention 86400001",
    ]
    assert by_grpc(node, "js", len(sent) - 10) == sent[10:]
    assert len(list(node.data.glob("js-*"))) == 3
