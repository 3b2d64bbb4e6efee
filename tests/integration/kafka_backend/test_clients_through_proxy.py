"""Clients that nobody here wrote, through nodes over a Kafka that are killed, stopped and started: their groups are
Muster's, every record is read, and none of them ever speaks to the broker itself. All look for metadata each
second, as they do in trouble."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kafka.stage import Stage, Worker, stage
from tests.support.kafka_backend.proxy_nodes import LONG_SESSION_MS, ProxyNodes, proxy_nodes

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

EAGER, COOPERATIVE, KIP_848 = "range", "cooperative-sticky", "consumer"
MORE = {"session_ms": str(LONG_SESSION_MS), "metadata_ms": "1000"}


@pytest.fixture(scope="module")
def nodes(real_kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyNodes]:
    place = Path(tmp_path_factory.mktemp("clients"))
    with proxy_nodes(real_kafka.address, "clients", place) as running:
        yield running


def through_trouble(nodes: ProxyNodes, play: Stage, members: list[Worker]) -> None:
    """One node is killed, then the other one stopped, while records are sent; then one member goes."""

    def seen() -> None:
        play.until_all_read()
        play.until_shared(*members)
        assert nodes.past_muster(members) == []
        assert play.group not in nodes.groups_upstream()

    play.until_shared(*members)
    play.send(50)
    seen()
    nodes.nodes[1].kill()
    play.send(50)
    play.until_all_read()
    nodes.nodes[1].start()
    seen()
    nodes.nodes[2].stop()
    play.send(50)
    nodes.nodes[2].start()
    seen()
    members.pop().leave()
    play.send(10)
    seen()
    play.until_committed()


@pytest.mark.parametrize(
    ("assignor", "libraries"),
    [
        (EAGER, ["confluent", "kafka-python", "aiokafka"]),
        (COOPERATIVE, ["confluent", "kafka-python"]),
        (KIP_848, ["confluent", "confluent"]),
    ],
)
def test_groups_outlive_their_nodes(nodes: ProxyNodes, assignor: str, libraries: list[str]) -> None:
    with stage(nodes, assignor) as play:
        through_trouble(nodes, play, [play.start(library, **MORE) for library in libraries])


def test_static_members_come_back_to_what_they_had(nodes: ProxyNodes) -> None:
    with stage(nodes, EAGER) as play:
        libraries = ["confluent", "kafka-python", "aiokafka"]
        members = [play.start(library, instance=f"i-{number}", **MORE) for number, library in enumerate(libraries)]
        play.until_shared(*members)
        play.send(20)
        play.until_all_read()
        had = [member.assigned for member in members]
        members[0].kill()
        nodes.nodes[1].kill()
        nodes.nodes[1].start()
        members[0] = play.start("confluent", instance="i-0", **MORE)
        play.until_shared(*members)
        assert [member.assigned for member in members] == had
        play.send(20)
        play.until_all_read()
        assert nodes.past_muster(members) == []
        assert play.group not in nodes.groups_upstream()
