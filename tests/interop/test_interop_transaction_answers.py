"""The recorded answers about transactions are those of a real Kafka. A node's are compared with them by `make test`."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.interop.kafka_broker import kafka_broker
from tests.support.kafka.transaction_script import ANSWERS, play_script

OFTEN = "\ntransaction.abort.timed.out.transaction.cleanup.interval.ms=500\n"


def test_a_kafka_answers_as_recorded(tmp_path: Path) -> None:
    classpath = os.environ.get("KAFKA_BROKER_CLASSPATH")
    if shutil.which("java") is None or not classpath:
        pytest.skip("it takes java, and KAFKA_BROKER_CLASSPATH with the jars of org.apache.kafka:kafka_2.13:4.1.1")
    with kafka_broker(classpath, tmp_path / "kafka", OFTEN) as address:
        said = asyncio.run(play_script(address))
    assert said == json.loads(ANSWERS.read_text())
