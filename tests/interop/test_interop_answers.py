"""What a real Kafka answers, a node answers as well, but for the differences on purpose."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from tests.interop.kafka_answers import STAYS, differences
from tests.interop.kafka_broker import kafka_broker
from tests.support.node import running_node


def test_answers_differ_where_they_are_meant_to(tmp_path: Path) -> None:
    classpath = os.environ.get("KAFKA_BROKER_CLASSPATH")
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    if not classpath:
        pytest.skip(
            "KAFKA_BROKER_CLASSPATH names no jars, such as those of org.apache.kafka:kafka_2.13:4.1.1 ('DIR/*')"
        )
    with (
        kafka_broker(classpath, tmp_path / "kafka") as kafka,
        running_node(tmp_path / "data", {"kafka.listeners": "127.0.0.1:0"}) as node,
    ):
        asked, found = asyncio.run(differences(kafka, node.kafka_address))
    assert asked > 90
    unknown = {label: answers for label, answers in found.items() if label not in STAYS}
    assert unknown == {}, "Kafka's answers, and the node's"
    assert STAYS.keys() - found.keys() == set(), "these are the same by now: strike them out here and on the page"
