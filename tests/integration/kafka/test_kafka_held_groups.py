"""Deploy, drain and pin with members of confluent-kafka: KIP-848, and cooperative ones whose coordinator plans."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.client import Admin
from tests.support.node import running_node
from tests.support.pace import Patience

confluent_kafka = pytest.importorskip("confluent_kafka")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

PATIENCE_S = 60
HOW: dict[str, dict[str, Any]] = {
    "consumer": {"group.protocol": "consumer"},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 200,
    },
}


class Member:
    """One process of the deployment, by its client id."""

    def __init__(self, door: str, name: str, how: dict[str, Any]) -> None:
        self.name, self.lost = name, list[int]()
        config = {"bootstrap.servers": door, "group.id": "g", "client.id": name, **how}
        self.consumer = confluent_kafka.Consumer(config)
        self.consumer.subscribe(["t"], on_revoke=lambda _, taken: self.lost.extend(tp.partition for tp in taken))

    @property
    def has(self) -> list[int]:
        return sorted(tp.partition for tp in self.consumer.assignment())


def until(condition: Callable[[], bool], members: list[Member], what: str) -> None:
    patience = Patience(PATIENCE_S)
    while not condition():
        assert patience.lasts(), f"not within {PATIENCE_S} s: {what}; {[member.has for member in members]}"
        for member in members:
            member.consumer.poll(0.02)


@pytest.mark.parametrize("how", HOW)
def test_members_are_started_anew_drained_and_pinned(tmp_path: Path, how: str) -> None:
    settings = {"kafka.listeners": "127.0.0.1:0", "group.initial.rebalance.delay.ms": "500"}
    with running_node(tmp_path / "data", settings) as node, Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic("t", 4)
        if how == "cooperative":
            admin.alter_group_settings("g", {"assignor": "uniform"})
        members = [Member(node.kafka_address, name, HOW[how]) for name in ("web-1", "web-2")]
        until(lambda: [len(member.has) for member in members] == [2, 2], members, "two each")
        before = [member.has for member in members]

        admin.deploy_group("g", 2)
        for place, other in ((0, 1), (1, 0)):
            members[other].lost.clear()
            members[place].consumer.close()
            members[place] = Member(node.kafka_address, members[place].name, HOW[how])
            until(lambda: [member.has for member in members] == before, members, "each has what it had")
            assert members[other].lost == []
        until(lambda: admin.group_holds("g").expect is None, members, "the deploy is over by itself")

        admin.drain_member("g", "web-2", "client-id")
        until(lambda: [len(member.has) for member in members] == [4, 0], members, "all with one")
        admin.undrain_member("g", "web-2", "client-id")
        until(lambda: [len(member.has) for member in members] == [2, 2], members, "two each again")

        pinned = members[0].has[0]
        admin.pin_partition("g", "t", pinned, "web-2")
        until(lambda: pinned in members[1].has and len(members[0].has) == 2, members, "the pinned one moved")
        for member in members:
            member.consumer.close()
