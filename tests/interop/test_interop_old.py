"""Kafka's own consumers of a time whose requests Kafka 4 has given up."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.interop.peers import STORY_S
from tests.support.node import running_node

MESSAGES = 2_000


def test_a_console_consumer_of_old_reads(tmp_path: Path) -> None:
    """Of 0.9 or 0.10: one that can consume through a node, and that knows no version of Fetch from 4 on."""
    classpath = os.environ.get("KAFKA_OLD_CLASSPATH")
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    if not classpath:
        pytest.skip("KAFKA_OLD_CLASSPATH names no jars, such as those of org.apache.kafka:kafka_2.11:0.9.0.1 ('DIR/*')")
    with running_node(tmp_path / "data", {"kafka.listeners": "127.0.0.1:0"}) as node:
        sent = []
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            producer = Producer({"bootstrap.servers": node.kafka_address, "compression.type": codec})
            for number in range(MESSAGES):
                sent.append(f"{codec} {number}")
                producer.produce("t", sent[-1])
            assert producer.flush(STORY_S) == 0
        command = ["java", "-cp", classpath, "kafka.tools.ConsoleConsumer", "--new-consumer", "--topic", "t"]
        command += ["--bootstrap-server", node.kafka_address, "--from-beginning", "--max-messages", str(len(sent))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=STORY_S, check=True)
    assert done.stdout.splitlines() == sent
