"""Who may do what, decided as Kafka decides it: the same lists, the same requests, the same codes."""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop.kafka_broker import kafka_with_acls
from tests.interop.kafka_rights import DRAWN, STAYS, cases, decisions, differences
from tests.support.node import running_node


def jars() -> str:
    """Of a broker and its tools; who has none skips."""
    classpath = os.environ.get("KAFKA_BROKER_CLASSPATH")
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    if not classpath:
        pytest.skip(
            "KAFKA_BROKER_CLASSPATH names no jars, such as those of org.apache.kafka:kafka_2.13:4.1.1 ('DIR/*')"
        )
    return classpath


def test_a_node_refuses_what_kafka_refuses(tmp_path: Path) -> None:
    classpath = jars()
    every = cases()
    assert len(every) > 250
    with kafka_with_acls(classpath, tmp_path / "kafka", [case.user for case in every]) as (admin, users):
        found = asyncio.run(differences(admin, users, every))
    unknown = {label: answers for label, answers in found.items() if not any(re.match(each, label) for each in STAYS)}
    assert unknown == {}, "Kafka's answers, and the node's"
    gone = [each for each in STAYS if not any(re.match(each, label) for label in found)]
    assert gone == [], "these are the same by now: strike them out"


def test_drawn_lists_are_decided_alike(tmp_path: Path) -> None:
    """By what each user is told of its rights, and by who may write to any topic at all."""
    classpath, names = jars(), [f"d{number}" for number in range(DRAWN)]
    with kafka_with_acls(classpath, tmp_path / "kafka", names) as (admin, users):
        theirs, ours = asyncio.run(decisions(admin, users))
    assert len({str(each) for each in theirs.values()}) > DRAWN // 2, "they may do different things"
    assert {label: (theirs[label], ours[label]) for label in theirs if theirs[label] != ours[label]} == {}


COMMANDS = (
    "--add --allow-principal User:alice --operation Read --topic orders",
    "--add --allow-principal User:alice --producer --topic or --resource-pattern-type prefixed",
    "--add --allow-principal User:carol --allow-host 10.0.0.7 --consumer --topic orders --group readers",
    "--add --deny-principal User:* --deny-host 10.9.9.9 --operation All --cluster",
    "--add --allow-principal User:alice --operation IdempotentWrite --cluster",
    "--add --allow-principal User:tx --operation Write --transactional-id tx- --resource-pattern-type prefixed",
    "--list",
    "--list --topic orders --resource-pattern-type match",
    "--list --topic orders --resource-pattern-type any",
    "--list --principal User:carol",
    "--remove --force --allow-principal User:carol --allow-host 10.0.0.7 --consumer --topic orders --group readers",
    "--remove --force --topic or --resource-pattern-type prefixed",
    "--list",
    "--add --allow-principal User:alice --operation Write --group readers",
    "--add --allow-principal nobody --operation Read --topic orders",
)


def test_kafkas_own_command_says_the_same_of_both(tmp_path: Path) -> None:
    classpath = jars()
    settings = {"kafka.listeners": "127.0.0.1:0", "authorizer": "acl", "super.users": "User:ANONYMOUS"}
    with (
        kafka_with_acls(classpath, tmp_path / "kafka", ["nobody"]) as (kafka, _),
        running_node(tmp_path / "data", settings) as node,
    ):
        for command in COMMANDS:
            theirs, ours = (kafka_acls(classpath, address, command) for address in (kafka, node.kafka_address))
            assert ours == theirs, command


def kafka_acls(classpath: str, address: str, command: str) -> tuple[int, list[str]]:
    """How AclCommand ended, and what it told; entries come in no order of their own."""
    ask = ["java", "-cp", classpath, "org.apache.kafka.tools.AclCommand", "--bootstrap-server", address]
    done = subprocess.run([*ask, *shlex.split(command)], capture_output=True, text=True, check=False, timeout=200)
    return done.returncode, sorted(line.strip() for line in done.stdout.splitlines() if line.strip())
