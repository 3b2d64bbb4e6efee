"""Groups that Kafka's own client in Java and kafkajs are members of, together with others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.client import Admin
from tests.interop.peers import java, java_story, kafkajs, kcat_command, node_story
from tests.support.kafka.stage import NODE, generations, stage
from tests.support.node import NodeProcess, running_node
from tests.support.pace import until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running_node(tmp_path / "data", NODE) as running:
        yield running


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky", "consumer"])
def test_java_and_confluent_share_a_group(node: NodeProcess, assignor: str) -> None:
    with stage(node, assignor) as play:
        first, second = java(play), play.start("confluent")
        play.until_shared(first, second)
        play.send(100)
        third = java(play)
        play.until_shared(first, second, third)
        second.kill()
        play.until_shared(first, third)
        node.kill()
        node.start()
        play.send(100)
        play.until_all_read()
        first.leave()
        play.until_shared(third)
        play.send(10)
        play.until_all_read()
        play.until_committed()


def test_a_static_java_leader_returns_without_a_rebalance(node: NodeProcess) -> None:
    with stage(node, "range") as play:
        leader = java(play, "a")
        until(lambda: bool(leader.assigned), lambda: "the first member leads")
        other = java(play, "b")
        play.until_shared(leader, other)
        had, before = leader.assigned, generations(node, play.group)
        leader.kill()
        again = java(play, "a")
        until(lambda: again.assigned == had, lambda: f"had {had}, got {again.assigned}")
        play.send(50)
        play.until_all_read()
        assert generations(node, play.group) == before


def test_kafkajs_members_share_and_move(node: NodeProcess) -> None:
    with stage(node, "") as play:
        first, second = kafkajs(play), kafkajs(play)
        play.until_shared(first, second)
        play.send(100)
        second.kill()
        play.until_shared(first)
        node.kill()
        node.start()
        play.send(100)
        play.until_all_read()
        first.leave()
        until(lambda: first.ended == "left", lambda: "it leaves")


@pytest.mark.parametrize("leader", ["kcat", "java", "kafkajs"])
def test_six_clients_share_one_group(node: NodeProcess, leader: str) -> None:
    """Whoever leads makes the plan for all of them."""
    with stage(node, "range") as play:
        others = {
            "kcat": lambda: play.start_kcat(kcat_command()),
            "java": lambda: java(play),
            "kafkajs": lambda: kafkajs(play, "range"),
            "confluent": lambda: play.start("confluent"),
            "kafka-python": lambda: play.start("kafka-python"),
            "aiokafka": lambda: play.start("aiokafka"),
        }
        first = others.pop(leader)()
        play.until_shared(first)
        members = [first, *(start() for start in others.values())]
        play.until_shared(*members)
        play.send(100)
        play.until_all_read()
        killed, leaving, *rest = members[1:]
        killed.kill()
        play.until_shared(first, leaving, *rest)
        node.kill()
        node.start()
        play.send(100)
        play.until_all_read()
        leaving.leave()
        play.until_shared(first, *rest)
        play.send(10)
        play.until_all_read()
        play.until_committed()


def test_kcat_shares_a_cooperative_group(node: NodeProcess) -> None:
    with stage(node, "cooperative-sticky") as play:
        kcat, other = play.start_kcat(kcat_command()), play.start("kafka-python")
        play.until_shared(kcat, other)
        play.send(100)
        third = java(play)
        play.until_shared(kcat, other, third)
        kcat.leave()
        play.until_shared(other, third)
        play.send(100)
        play.until_all_read()
        play.until_committed()


@pytest.mark.parametrize(("assignor", "kind"), [("range", "Classic"), ("consumer", "Consumer")])
def test_javas_admin_shows_resets_and_deletes_a_group(node: NodeProcess, assignor: str, kind: str) -> None:
    with stage(node, assignor) as play:
        static, other = play.start("confluent", instance="a"), play.start("confluent")
        play.until_shared(static, other)
        play.send(10)
        play.until_committed()
        told = (node.kafka_address, play.group, play.topic)
        assert java_story("GroupTools", *told, "busy") == [
            "stable true",
            "empty false",
            f"classic {kind == 'Classic'}".lower(),
            f"group Stable {kind} {'range' if kind == 'Classic' else 'uniform'} 1",
            "member confluent-0 a 3",
            "member confluent-1 - 3",
            "alter UnknownMemberIdException",
            "delete offsets GroupSubscribedToTopicException",
            "offsets {0=10, 1=10, 2=10, 3=10, 4=10, 5=10}",
            "delete GroupNotEmptyException",
            "remove done",
        ]
        static.kill()
        other.leave()
        until(lambda: "Empty" in states(node, play.group), lambda: f"{states(node, play.group)}")
        assert java_story("GroupTools", *told, "idle") == [
            "stable false",
            "empty true",
            f"classic {kind == 'Classic'}".lower(),
            f"group Empty {kind} {'' if kind == 'Classic' else 'uniform'} 1",
            "alter done",
            "delete offsets done",
            "offsets {0=3, 2=10, 3=10, 4=10, 5=10}",
            "delete done",
            "delete GroupIdNotFoundException",
            "latest 10",
            "cluster 1",
            "log dirs UnsupportedVersionException",
            "alter configs done",
        ]


def test_kafkajs_admin_shows_resets_and_deletes_a_group(node: NodeProcess) -> None:
    with stage(node, "range") as play:
        member = play.start("confluent")
        play.until_shared(member)
        play.send(10)
        play.until_committed()
        told = (node.kafka_address, play.group, play.topic)
        assert node_story("group_tools", *told, "busy") == [
            "listed true",
            "group Stable range confluent-0",
            "set The consumer group must have no running instances, current state: Stable",
            "offsets 10,10,10,10,10,10",
            "delete NON_EMPTY_GROUP",
        ]
        member.leave()
        until(lambda: "Empty" in states(node, play.group), lambda: f"{states(node, play.group)}")
        assert node_story("group_tools", *told, "idle") == [
            "listed true",
            "group Empty  ",
            "set done",
            "reset done",
            "offsets 0,0,0,0,0,0",
            "delete done",
        ]


def states(node: NodeProcess, group: str) -> list[str]:
    with Admin(bootstrap_servers=node.address) as admin:
        return [one.state for one in admin.list_groups() if one.group_id == group]
