"""Clients of other runtimes through nodes over a Kafka that are killed, stopped and started: Java, kafkajs and kcat."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.client import Admin
from muster.coordinator.kafka.codec.codec import struct
from muster.workshop.bench.kafka_load import LoadConnection
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


def member(play: Stage, client: str, address: str = "") -> Worker:
    """address: the only one that it is given, in place of all nodes'."""
    name = f"{client}-{len(play.workers)}"
    told = (address or play.node.kafka_address, play.group, play.topic, name)
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


def member_ids(nodes: ProxyNodes, number: int, group: str) -> set[str]:
    """As this node knows them; nothing while it has not taken the group over."""
    with Admin({"bootstrap.servers": nodes.nodes[number].address}) as admin:
        return {each.member_id for each in admin.describe_group(group).members}


@pytest.mark.parametrize(("client", "keeps_ids"), [("java", True), ("confluent", False), ("kafkajs", True)])
def test_members_with_short_sessions_come_through_a_frozen_owner(
    nodes: ProxyNodes, monkeypatch: pytest.MonkeyPatch, client: str, keeps_ids: bool
) -> None:
    """Sessions of 10 s: Kafka's client and kafkajs keep their ids, librdkafka mostly comes back under new ones
    (docs/cluster.md). Each is told not to wait as long for the frozen node as it does by default (30 s; kafkajs three
    minutes). kafkajs asks nobody but the first address that it is given and whom it is connected to, so that is the
    other node."""
    request_ms = "2000" if client == "kafkajs" else "5000"
    for name, value in (("SESSION_MS", "10000"), ("REQUEST_MS", request_ms), ("RETRIES", "2")):
        monkeypatch.setenv(name, value)
    with stage(nodes, EAGER) as play:
        owner = owner_of(nodes, play.group)
        first = nodes.nodes[3 - owner].kafka_address if client == "kafkajs" else ""
        members = [
            play.start(client, session_ms="10000", socket_ms="5000")
            if client == "confluent"
            else member(play, client, first)
            for _ in range(3)
        ]
        play.until_shared(*members)
        play.send(5)
        play.until_all_read()
        before = member_ids(nodes, 1, play.group)
        assert owner_of(nodes, play.group) == owner
        nodes.nodes[owner].freeze()
        try:
            play.send(5)
            play.until_all_read()
            play.until_shared(*members)
            now = member_ids(nodes, 3 - owner, play.group)
        finally:
            nodes.nodes[owner].thaw()
        assert len(now) >= len(members)
        assert before <= now or not keeps_ids


def owner_of(nodes: ProxyNodes, group: str) -> int:
    """The id of the node that coordinates the group, or would."""

    async def ask() -> Any:
        line = await LoadConnection.to(nodes.nodes[1].kafka_address)
        return await line.send_request("FindCoordinator", 2, struct("FindCoordinatorRequest")(key=group, key_type=0))

    answer = asyncio.run(ask())
    at = f"{answer.host}:{answer.port}"
    return next(number for number, node in nodes.nodes.items() if node.kafka_address == at)
