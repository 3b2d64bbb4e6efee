"""Clients of other runtimes through nodes over a Kafka that are killed, stopped and started: Java, kafkajs and kcat."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kafka_backend.conftest import kafka_classpath, real_kafka
from tests.integration.kafka_backend.test_clients_through_proxy import (
    COOPERATIVE,
    EAGER,
    KIP_848,
    MORE,
    through_trouble,
)
from tests.interop.peers import java_command, kcat_command, node_command
from tests.support.kafka.stage import Stage, Worker, stage
from tests.support.kafka_backend.proxy_nodes import LONG_SESSION_MS, ProxyNodes, proxy_nodes
from tests.support.pace import until

__all__ = ["kafka_classpath", "real_kafka"]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nodes(real_kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyNodes]:
    with proxy_nodes(real_kafka.address, "others", Path(tmp_path_factory.mktemp("others"))) as running:
        yield running


@pytest.fixture(autouse=True)
def as_patient_as_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESSION_MS", str(LONG_SESSION_MS))
    monkeypatch.setenv("METADATA_MS", MORE["metadata_ms"])


def member(play: Stage, client: str) -> Worker:
    name = f"{client}-{len(play.workers)}"
    told = (play.node.kafka_address, play.group, play.topic, name)
    match client:
        case "java":
            return play.run(name, java_command("GroupWorker", *told, play.assignor))
        case "kafkajs":
            return play.run(name, node_command("group_worker", *told, play.assignor))
        case "kcat":
            return play.start_kcat(kcat_command(), LONG_SESSION_MS)
    return play.start(client, **MORE)


@pytest.mark.parametrize(
    ("assignor", "clients"),
    [
        (EAGER, ["java", "confluent"]),
        (EAGER, ["kafkajs", "kafkajs"]),
        (EAGER, ["kcat", "java"]),
        (COOPERATIVE, ["java", "confluent", "java"]),
        (KIP_848, ["java", "confluent"]),
    ],
)
def test_groups_outlive_their_nodes(nodes: ProxyNodes, assignor: str, clients: list[str]) -> None:
    with stage(nodes, assignor) as play:
        through_trouble(nodes, play, [member(play, client) for client in clients])


def test_a_static_java_member_comes_back_to_what_it_had(nodes: ProxyNodes) -> None:
    with stage(nodes, EAGER) as play:
        told = (play.node.kafka_address, play.group, play.topic, "java", EAGER)
        one, other = (play.run(name, java_command("GroupWorker", *told, name)) for name in ("a", "b"))
        play.until_shared(one, other)
        had = one.assigned
        one.kill()
        nodes.nodes[1].kill()
        nodes.nodes[1].start()
        again = play.run("a", java_command("GroupWorker", *told, "a"))
        until(lambda: again.assigned == had, lambda: f"had {had}, got {again}")
        play.send(20)
        play.until_all_read()
        assert nodes.past_muster([again, other]) == []
        assert play.group not in nodes.groups_upstream()
