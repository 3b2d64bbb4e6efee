"""A node answers to scripted requests of transactional producers and tools what a broker of Kafka 4.1.1 did."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.kafka.transaction_script import ANSWERS, STAYS, differences, play_script
from tests.support.node import running_node

pytestmark = pytest.mark.integration


def test_answers_differ_where_they_are_meant_to(tmp_path: Path) -> None:
    theirs = json.loads(ANSWERS.read_text())
    assert len(theirs) > 200
    with running_node(tmp_path / "data", {"kafka.listeners": "127.0.0.1:0"}) as node:
        found = differences(theirs, asyncio.run(play_script(node.kafka_address)))
    unknown = {label: answers for label, answers in found.items() if label not in STAYS}
    assert unknown == {}, "Kafka's answers, and the node's"
    assert STAYS.keys() - found.keys() == set(), "these are the same by now: strike them out"
