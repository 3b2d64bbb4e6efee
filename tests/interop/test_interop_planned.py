"""Java, kafkajs and kcat as members of groups whose plans the coordinator makes (the setting `assignor`)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client import Admin
from tests.interop.peers import java, kafkajs, kcat_command, streams_command
from tests.support.kafka.stage import NODE, Stage, stage
from tests.support.node import NodeProcess, running_node
from tests.support.pace import until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "data", NODE) as running:
        yield running


def wish(play: Stage, assignor: str) -> None:
    """Set it, or unset it (empty), and wait until the plan at hand was made accordingly."""
    with Admin(bootstrap_servers=play.node.address) as admin:
        if assignor:
            admin.alter_group_settings(play.group, set={"assignor": assignor})
        else:
            admin.alter_group_settings(play.group, unset=["assignor"])
        until_planned_by(play, assignor)


def until_planned_by(play: Stage, assignor: str) -> None:
    with Admin(bootstrap_servers=play.node.address) as admin:

        def planned() -> bool:
            found = admin.describe_group(play.group)
            return found.state == "Stable" and found.planned_there == assignor

        until(planned, lambda: f"{admin.describe_group(play.group)}")


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_java_is_planned_for(node: NodeProcess, assignor: str) -> None:
    with stage(node, assignor) as play:
        first, second = java(play), play.start("confluent")
        play.until_shared(first, second)
        play.send(100)
        wish(play, "uniform")
        play.until_shared(first, second)
        third = java(play)
        play.until_shared(first, second, third)
        second.kill()
        play.until_shared(first, third)
        node.kill()
        node.start()
        play.send(100)
        play.until_all_read()
        until_planned_by(play, "uniform")
        wish(play, "")
        play.until_shared(first, third)
        first.leave()
        play.until_shared(third)
        play.send(10)
        play.until_all_read()
        play.until_committed()


def test_a_static_java_member_returns_to_its_share(node: NodeProcess) -> None:
    with stage(node, "range") as play:
        first, other = java(play, "a"), java(play, "b")
        play.until_shared(first, other)
        by_range = first.assigned
        wish(play, "uniform")
        until(lambda: first.assigned != by_range, lambda: f"still {by_range}")
        play.until_shared(first, other)
        had = first.assigned
        first.kill()
        again = java(play, "a")
        until(lambda: again.assigned == had, lambda: f"had {had}, got {again.assigned}")
        play.send(50)
        play.until_all_read()


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_canary_in_a_group_of_java_members(node: NodeProcess, assignor: str) -> None:
    """Run, rolled back by hand, rolled back by a guard, promoted."""
    with stage(node, assignor) as play, Admin(bootstrap_servers=node.address) as admin:
        first, second = java(play), java(play)
        play.until_shared(first, second)
        wish(play, "uniform")
        play.until_shared(first, second)
        admin.start_canary(play.group, "roundrobin", 3_600_000)
        until_planned_by(play, "roundrobin")
        play.until_shared(first, second)
        play.send(50)
        play.until_all_read()
        admin.end_canary(play.group, promote=False)
        until_planned_by(play, "uniform")
        play.until_shared(first, second)
        admin.start_canary(play.group, "roundrobin", 3_600_000, guards=["expired > 0"])
        until_planned_by(play, "roundrobin")
        second.kill()
        until_planned_by(play, "uniform")
        found = admin.canary(play.group)
        assert found is not None
        assert found.ended.startswith("guard 'expired > 0' tripped")
        play.until_shared(first)
        admin.start_canary(play.group, "roundrobin", 3_600_000)
        until_planned_by(play, "roundrobin")
        admin.end_canary(play.group, promote=True)
        play.until_shared(first)
        play.send(50)
        play.until_all_read()
        assert admin.group_settings(play.group).values["assignor"] == "roundrobin"


def test_kafkajs_is_planned_for(node: NodeProcess) -> None:
    """By the name of its own that no other client knows."""
    with stage(node, "") as play:
        first, second = kafkajs(play), kafkajs(play)
        play.until_shared(first, second)
        play.send(100)
        wish(play, "uniform")
        play.until_shared(first, second)
        second.kill()
        play.until_shared(first)
        third = kafkajs(play)
        play.until_shared(first, third)
        node.kill()
        node.start()
        play.send(100)
        play.until_all_read()
        wish(play, "")
        play.until_shared(first, third)


@pytest.mark.parametrize("kcat", [False, True], ids=["five", "with-kcat"])
def test_clients_of_all_languages_are_planned_for_together(node: NodeProcess, kcat: bool) -> None:
    with stage(node, "range") as play:
        members = [play.start_kcat(kcat_command())] if kcat else []
        members += [java(play), kafkajs(play, "range")]
        members += [play.start(library) for library in ("confluent", "kafka-python", "aiokafka")]
        play.until_shared(*members)
        wish(play, "uniform")
        play.until_shared(*members)
        play.send(100)
        play.until_all_read()
        killed, leaving, *rest = members
        killed.kill()
        play.until_shared(leaving, *rest)
        node.kill()
        node.start()
        play.send(100)
        play.until_all_read()
        leaving.leave()
        play.until_shared(*rest)
        wish(play, "")
        play.until_shared(*rest)
        play.send(10)
        play.until_all_read()
        play.until_committed()


def test_kcat_is_planned_for_in_a_cooperative_group(node: NodeProcess) -> None:
    with stage(node, "cooperative-sticky") as play:
        kcat, other = play.start_kcat(kcat_command()), play.start("kafka-python")
        play.until_shared(kcat, other)
        wish(play, "uniform")
        third = play.start("confluent")
        play.until_shared(kcat, other, third)
        kcat.leave()
        play.until_shared(other, third)
        play.send(100)
        play.until_all_read()
        play.until_committed()


def test_a_streams_group_is_left_alone(node: NodeProcess) -> None:
    """Kafka Streams needs its own user data in each share: it keeps its leader, and the group says because of whom."""
    with stage(node, "stream") as play:
        with Admin(bootstrap_servers=node.address) as admin:
            admin.alter_group_settings(play.group, set={"assignor": "uniform"})
        told = (node.kafka_address, play.group, play.topic)
        first, second = (
            play.run(name, streams_command("StreamsWorker", *told, name)) for name in ("streams-0", "streams-1")
        )
        play.send(50)
        play.until_all_read()
        with Admin(bootstrap_servers=node.address) as admin:
            until(lambda: len(admin.describe_group(play.group).members) == 2, lambda: f"{first} {second}")
            until(lambda: admin.describe_group(play.group).state == "Stable", lambda: f"{first} {second}")
            found = admin.describe_group(play.group)
        assert found.planned_there == ""
        assert "assignor=uniform does not count: the members voted for 'stream'" in found.kept_out
        first.kill()
        play.send(50)
        play.until_all_read()
