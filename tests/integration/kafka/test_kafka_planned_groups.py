"""Groups of real, unmodified clients whose plans the coordinator makes: the setting `assignor` (docs/control.md)."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.assignors.api import Snapshot
from muster.client import Admin
from muster.client.described import GroupDescription
from muster.coordinator.core.model.types import Cause
from tests.interop.peers import kcat_command
from tests.support.kafka.stage import NODE, Stage, stage
from tests.support.node import NodeProcess, running_node
from tests.support.pace import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "data", NODE) as running:
        yield running


def muster(play: Stage, *words: str) -> str:
    """What `muster groups ...` says, on both streams."""
    command = [sys.executable, "-m", "muster.cli", "groups", *words, "--bootstrap", play.node.address]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def described(play: Stage) -> GroupDescription:
    with Admin(bootstrap_servers=play.node.address) as admin:
        return admin.describe_group(play.group)


def until_planned_by(play: Stage, planner: str) -> None:
    """The plan at hand was made by this: an assignor of the coordinator, or (empty) a member."""

    def planned() -> bool:
        found = described(play)
        return found.state == "Stable" and found.planned_there == planner and bool(found.leader) == (not planner)

    until(planned, lambda: f"{described(play)}")


def test_an_unmodified_confluent_group_gets_a_lag_aware_plan_by_one_setting(tmp_path: Path) -> None:
    """Two partitions have nearly all that waits, side by side: `range`, for which they voted, would give one both."""
    slow_start = NODE | {"group.initial.rebalance.delay.ms": "3000"}
    with running_node(tmp_path / "data", slow_start) as node, stage(node, "range") as play:
        play.send(5)
        play.send_to(1, 1_000)
        play.send_to(2, 1_000)
        muster(play, "set", play.group, "assignor=lag")
        first, second = play.start("confluent"), play.start("confluent")
        play.until_shared(first, second)
        until_planned_by(play, "lag")
        with Admin(bootstrap_servers=node.address) as admin:
            newest = admin.explain(play.group, include_snapshots=True)[0]
        assert (newest.snapshot_source, newest.protocol_name) == ("setting", "lag")
        seen = Snapshot.from_json(newest.snapshot_json)
        assert seen.lags is not None
        assert list(seen.lags[play.topic]) == [5, 1_005, 1_005, 5, 5, 5]
        assert not {1, 2} <= {*first.assigned}
        assert not {1, 2} <= {*second.assigned}
        play.until_all_read()
        play.until_committed()
        said = muster(play, "describe", play.group)
        assert f"'{play.group}' is planned by the coordinator by lag, as set" in said


@pytest.mark.parametrize(
    ("assignor", "libraries"),
    [
        pytest.param("range", ("confluent", "kafka-python", "aiokafka", "grpc"), id="eager"),
        pytest.param("range", ("kafka-python", "aiokafka", "confluent", "confluent"), id="eager-other-parts"),
        pytest.param("range", ("aiokafka", "aiokafka", "aiokafka", "aiokafka"), id="aiokafka-alone"),
        pytest.param("roundrobin", ("confluent", "kafka-python", "aiokafka", "confluent"), id="roundrobin"),
        pytest.param("sticky", ("kafka-python", "aiokafka", "kafka-python", "aiokafka"), id="eager-sticky"),
        pytest.param("cooperative-sticky", ("confluent", "kafka-python", "confluent", "grpc"), id="cooperative"),
        pytest.param("cooperative-sticky", ("kafka-python", "confluent", "kafka-python", "kafka-python"), id="python"),
    ],
)
def test_real_clients_are_planned_for_and_nothing_is_lost(
    node: NodeProcess, assignor: str, libraries: tuple[str, ...]
) -> None:
    """Set and unset while they run; one is killed, one joins and leaves, and the node dies in the middle."""
    with stage(node, assignor) as play:
        first, second = play.start(libraries[0]), play.start(libraries[1])
        play.until_shared(first, second)
        play.send(100)
        with Admin(bootstrap_servers=node.address) as admin:
            admin.alter_group_settings(play.group, set={"assignor": "uniform"})
        until_planned_by(play, "uniform")
        play.until_shared(first, second)
        third, fourth = play.start(libraries[2]), play.start(libraries[3])
        play.until_shared(first, second, third, fourth)
        play.send(100)
        second.kill()
        play.until_shared(first, third, fourth)
        node.kill()
        node.start()
        play.send(100)
        play.until_all_read()
        until_planned_by(play, "uniform")
        third.leave()
        play.until_shared(first, fourth)
        with Admin(bootstrap_servers=node.address) as admin:
            admin.alter_group_settings(play.group, unset=["assignor"])
        until_planned_by(play, "")
        play.until_shared(first, fourth)
        play.send(10)
        play.until_all_read()
        play.until_committed()
        assert assignor != "cooperative-sticky" or not taken_early(play)


def taken_early(play: Stage) -> list[str]:
    """What the ledger knows of that had two owners: it was given on before its owner had let go."""
    with Admin(bootstrap_servers=play.node.address) as admin:
        moves = [move for entry in admin.explain(play.group, limit=100) for move in entry.moves]
    return [str(move) for move in moves if "had not let go" in move.why]


@pytest.mark.parametrize("library", ["confluent", "kafka-python", "aiokafka"])
def test_a_static_member_that_is_planned_for_returns_to_its_partitions(node: NodeProcess, library: str) -> None:
    with stage(node, "range") as play:
        muster(play, "set", play.group, "assignor=uniform")
        steady, restarted = play.start(library, instance="a"), play.start(library, instance="b")
        play.until_shared(steady, restarted)
        had, before = restarted.assigned, described(play).generation
        restarted.kill()
        again = play.start(library, instance="b")
        until(lambda: again.assigned == had, lambda: f"had {had}, got {again.assigned}")
        assert described(play).generation == before, "nobody else noticed"
        play.send(50)
        play.until_all_read()


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"], ids=["eager", "cooperative"])
def test_kcat_is_planned_for(node: NodeProcess, assignor: str) -> None:
    """Set while it reads; another is killed, it leaves, and nothing is lost."""
    with stage(node, assignor) as play:
        kcat, other = play.start_kcat(kcat_command()), play.start("confluent")
        play.until_shared(kcat, other)
        play.send(50)
        muster(play, "set", play.group, "assignor=uniform")
        until_planned_by(play, "uniform")
        third = play.start("kafka-python")
        play.until_shared(kcat, other, third)
        other.kill()
        play.until_shared(kcat, third)
        play.send(50)
        play.until_all_read()
        kcat.leave()
        play.until_shared(third)
        play.send(10)
        play.until_all_read()
        play.until_committed()


def test_a_client_that_insists_on_its_leader_suspends_the_setting(node: NodeProcess) -> None:
    """It does not fetch its share of two plans in a row: a member leads again, and all are told because of whom."""
    with stage(node, "range") as play:
        first = play.start("confluent", poll_ms="3000")
        play.until_shared(first)
        muster(play, "set", play.group, "assignor=uniform")
        until_planned_by(play, "uniform")
        play.until_shared(first)
        insisting = play.start("insisting", poll_ms="3000", session_ms="20000")
        with Admin(bootstrap_servers=node.address) as admin:
            until(lambda: bool(admin.group_settings(play.group).suspended), lambda: f"{insisting} {described(play)}")
            why = admin.group_settings(play.group).suspended
            assert re.match(
                r"member insisting-1-\S+ \(insisting-1 at /?127.0.0.1, kafka-python 3\.\S+\) did not", why
            ), why
        until_planned_by(play, "")
        play.until_shared(first, insisting)
        play.send(50)
        play.until_all_read()
        assert f"is suspended until it is set again: {why}" in muster(play, "settings", play.group)
        document, _, _ = muster(play, "settings", play.group, "-o", "json").partition("Warning: ")
        (row,) = [row for row in json.loads(document) if row["suspended"]]
        assert (row["setting"], row["value"], row["suspended"]) == ("assignor", '"uniform"', why)
        assert f"is planned by a member: assignor=uniform does not count: {why}" in muster(play, "describe", play.group)
        told = " ".join(muster(play, "explain", "--entries", play.group).split())
        assert "cause sync timeout by insisting-1" in told
        assert "assignor is suspended until it is set again: insisting-1" in told
        assert "kafka-python 3" in told
        insisting.kill()
        muster(play, "set", play.group, "assignor=uniform")
        until_planned_by(play, "uniform")
        play.until_shared(first)


def test_members_follow_a_topic_that_grows(node: NodeProcess) -> None:
    with stage(node, "range") as play:
        muster(play, "set", play.group, "assignor=uniform")
        first, second = play.start("kafka-python"), play.start("aiokafka")
        play.until_shared(first, second)
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_partitions(play.topic, 8)
        until(lambda: sorted([*first.assigned, *second.assigned]) == list(range(8)), lambda: f"{first} {second}")
        with Admin(bootstrap_servers=node.address) as admin:
            assert admin.explain(play.group)[0].cause == Cause.PARTITIONS_CHANGED
