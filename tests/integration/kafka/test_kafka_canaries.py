"""Canaries of groups whose members are real, unmodified clients: run, rolled back, promoted, and a guard that trips."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client import Admin
from muster.client.described import Canary
from tests.support.kafka.stage import NODE, Stage, stage
from tests.support.node import NodeProcess, running_node
from tests.support.pace import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "data", NODE) as running:
        yield running


def muster(play: Stage, *words: str) -> tuple[str, str]:
    """What `muster groups ...` prints, and says beside."""
    command = [sys.executable, "-m", "muster.cli", "groups", *words, "--bootstrap", play.node.address]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def canary(play: Stage) -> Canary:
    with Admin(bootstrap_servers=play.node.address) as admin:
        found = admin.canary(play.group)
    assert found is not None
    return found


def until_planned_by(play: Stage, assignor: str) -> None:
    """The group has come to rest under a plan by this."""
    with Admin(bootstrap_servers=play.node.address) as admin:

        def by() -> tuple[str, str]:
            found = admin.describe_group(play.group)
            return found.state, found.planned_there or found.assignor

        until(lambda: by() == ("Stable", assignor), lambda: f"{by()}")


@pytest.mark.parametrize(
    ("asks", "libraries"),
    [
        pytest.param("consumer", ("confluent", "confluent", "confluent"), id="kip-848"),
        pytest.param("cooperative-sticky", ("confluent", "kafka-python", "confluent"), id="cooperative"),
        pytest.param("range", ("kafka-python", "aiokafka", "kafka-python"), id="eager"),
    ],
)
def test_a_canary_of_real_clients_from_beginning_to_end(
    node: NodeProcess, asks: str, libraries: tuple[str, str, str]
) -> None:
    with stage(node, asks) as play:
        first, second = play.start(libraries[0]), play.start(libraries[1])
        play.until_shared(first, second)
        if asks != "consumer":
            muster(play, "set", play.group, "assignor=uniform")
        until_planned_by(play, "uniform")
        play.until_shared(first, second)
        play.send(50)

        muster(play, "canary", play.group, "--assignor", "roundrobin", "--for", "1h")
        until_planned_by(play, "roundrobin")
        play.until_shared(first, second)
        play.send(50)
        play.until_all_read()
        assert "CANARY: roundrobin in place of uniform: until " in muster(play, "describe", play.group)[1]
        (row,) = json.loads(muster(play, "describe", "--state", "-o", "json", play.group)[0])
        assert (row["canary"]["state"], row["canary"]["assignor"]) == ("canary", "roundrobin")
        muster(play, "rollback", play.group, "--reason", "enough seen")
        until_planned_by(play, "uniform")
        play.until_shared(first, second)

        muster(play, "canary", play.group, "--assignor", "roundrobin", "--for", "1h")
        until_planned_by(play, "roundrobin")
        play.until_shared(first, second)
        second.kill()
        until(lambda: canary(play).state == "rolled back", lambda: f"{canary(play)}")
        assert canary(play).ended.startswith("guard 'expired > 0' tripped: 1 ")
        until_planned_by(play, "uniform")
        play.until_shared(first)

        third = play.start(libraries[2])
        play.until_shared(first, third)
        muster(play, "canary", play.group, "--assignor", "roundrobin", "--for", "1h", "--then", "wait")
        until_planned_by(play, "roundrobin")
        muster(play, "promote", play.group)
        play.until_shared(first, third)
        play.send(50)
        play.until_all_read()
        with Admin(bootstrap_servers=node.address) as admin:
            assert admin.group_settings(play.group).values["assignor"] == "roundrobin"
            told = "\n".join(entry.detail for entry in admin.explain(play.group))
        assert "enough seen" in told, told
        assert "guard 'expired > 0' tripped: 1 " in told, told
        assert "canary roundrobin was promoted" in told, told
