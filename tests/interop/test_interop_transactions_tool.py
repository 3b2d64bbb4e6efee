"""Kafka's kafka-transactions.sh says the same at a node as at a broker, and muster transactions says it as well."""

import asyncio
import io
import os
import re
import shutil
import subprocess
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

import pytest

from muster.cli.main import main
from tests.interop.kafka_broker import kafka_broker
from tests.support.kafka.transaction_script import Server, given
from tests.support.node import running_node

UNVERIFIED = "transaction.partition.verification.enable"
"""Without it a log takes transactions that no coordinator knows: they hang."""
STRANGER = (4_711, 3)
TOOL_S = 120

TIMES = re.compile(r"\b1[0-9]{12}\b")
AT_BOTH = (
    ("list",),
    ("list", "--transactional-id-pattern", "ap+"),
    ("describe", "--transactional-id", "app"),
    ("describe-producers", "--topic", "tools", "--partition", "1"),
    ("find-hanging", "--topic", "tools", "--max-transaction-timeout", "0"),
)
"""Also what `muster transactions` understands, word for word."""
ENDS = (
    ("abort", "--topic", "tools", "--partition", "1", "--start-offset", "0"),
    ("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0"),
    ("forceTerminateTransaction", "--transactionalId", "app"),
    ("describe", "--transactional-id", "app"),
)


async def leave_open(address: str) -> None:
    """A transaction that its coordinator has, and one that nobody has."""
    server = Server(address, "")
    await server.ready()
    topic = await server.topic("tools")
    held = given(await server.init("app"))
    assert await server.add("app", held, (topic, 0)) == [0]
    assert await server.send("app", held, (topic, 0), 0) == (0, 0)
    assert await server.send("nobody", STRANGER, (topic, 1), 0, version=9) == (0, 0)


def rows_of(text: str) -> list[list[str]]:
    """The cells of a table, heading first, but for times, how long ago they were, and ids of producers."""
    heading, *rows = [TIMES.sub("TIME", line).split() for line in text.splitlines() if line.strip()]
    hidden = [heading.index(each) for each in ("TransactionDurationMs", "ProducerId") if each in heading]
    for row in rows:
        for place in hidden:
            if row[place] not in ("None", str(STRANGER[0])):
                row[place] = "*"
    return [heading, *sorted(rows)]


def kafka_says(classpath: str, address: str, *words: str) -> list[list[str]]:
    tool = "org.apache.kafka.tools.TransactionsCommand"
    command = ["java", "-Xmx128m", "-cp", classpath, tool, "--bootstrap-server", address, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S, check=False)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return rows_of(done.stdout) if done.stdout.strip() else []


def muster_says(address: str, *words: str) -> list[list[str]]:
    out = io.StringIO()
    with mock.patch.dict(os.environ, {"MUSTER_BOOTSTRAP": address}), redirect_stdout(out):
        assert main(["transactions", *words]) == 0
    return rows_of(out.getvalue())


def test_the_tool_says_the_same_at_both(tmp_path: Path) -> None:
    classpath = os.environ.get("KAFKA_BROKER_CLASSPATH")
    if shutil.which("java") is None or not classpath:
        pytest.skip("it takes java, and KAFKA_BROKER_CLASSPATH with the jars of org.apache.kafka:kafka_2.13:4.1.1")
    settings = {"kafka.listeners": "127.0.0.1:0", UNVERIFIED: "false"}
    with (
        kafka_broker(classpath, tmp_path / "kafka", f"\n{UNVERIFIED}=false\n") as kafka,
        running_node(tmp_path / "data", settings) as node,
    ):
        for address in (kafka, node.kafka_address):
            asyncio.run(leave_open(address))
        for words in AT_BOTH:
            theirs = kafka_says(classpath, kafka, *words)
            assert kafka_says(classpath, node.kafka_address, *words) == theirs, words
            assert muster_says(node.address, *words) == theirs, words
        assert [row[:4] for row in theirs[1:]] == [["tools", "1", str(STRANGER[0]), str(STRANGER[1])]]
        for words in ENDS:
            theirs = kafka_says(classpath, kafka, *words)
            assert kafka_says(classpath, node.kafka_address, *words) == theirs, words
