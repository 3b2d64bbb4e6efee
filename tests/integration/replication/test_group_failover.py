"""Three real nodes and a group of Kafka's client: its coordinator is killed, frozen, stopped, and the members stay."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from muster.client import Admin
from muster.client.described import GroupDescription
from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

TOPIC, GROUP = "orders", "billing"
PARTITIONS = 4
PATIENCE_S = 60.0


@pytest.fixture
def cluster(zookeeper: str, tmp_path: Path) -> Iterator[ClusterNodes]:
    with running_cluster(tmp_path, zookeeper) as running:
        yield running


class Members:
    """Two of one group, which commit positions."""

    def __init__(self, cluster: ClusterNodes) -> None:
        self._cluster = cluster
        admin = AdminClient({"bootstrap.servers": cluster.kafka_address, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(PATIENCE_S)
        self.revoked = 0
        self._consumers = [
            Consumer(
                {"bootstrap.servers": cluster.kafka_address, "group.id": GROUP, "log_level": 0}
                | {"session.timeout.ms": 20_000, "heartbeat.interval.ms": 500, "enable.auto.commit": False}
                | {"socket.timeout.ms": 3_000, "auto.offset.reset": "earliest"}
            )
            for _ in range(2)
        ]
        for consumer in self._consumers:
            consumer.subscribe([TOPIC], on_revoke=self._revoked)
        self.until(lambda: all(len(each.assignment()) == PARTITIONS / 2 for each in self._consumers))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked += 1

    def poll(self) -> None:
        for consumer in self._consumers:
            consumer.poll(0.02)

    def until(self, condition: Callable[[], bool]) -> None:
        patience = Patience(PATIENCE_S)
        while not condition():
            assert patience.lasts(), self._cluster.log_tail()
            self.poll()

    def commit(self, offset: int) -> None:
        """By each member for what it has; returns once it is done."""
        for consumer in self._consumers:
            patience = Patience(PATIENCE_S)
            while True:
                try:
                    consumer.commit(
                        offsets=[TopicPartition(TOPIC, each.partition, offset) for each in consumer.assignment()],
                        asynchronous=False,
                    )
                    break
                except KafkaException:
                    assert patience.lasts(), self._cluster.log_tail()
                    consumer.poll(0.02)

    def committed(self) -> set[int]:
        places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        return {each.offset for each in self._consumers[0].committed(places, timeout=PATIENCE_S)}

    def described(self) -> GroupDescription:
        with Admin({"bootstrap.servers": self._cluster.address}) as admin:
            return admin.describe_group(GROUP)

    def coordinator(self) -> int:
        address = self.described().coordinator
        return next(number for number, node in self._cluster.nodes.items() if node.address == address)

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()


def undisturbed(cluster: ClusterNodes, members: Members, offset: int, strike: Callable[[int], object]) -> int:
    """The node that was struck."""
    before, revoked, struck = members.described(), members.revoked, members.coordinator()
    strike(struck)
    members.commit(offset)
    assert members.committed() == {offset}
    after = members.described()
    assert members.coordinator() != struck
    assert after.generation == before.generation
    assert {each.member_id for each in after.members} == {each.member_id for each in before.members}
    assert members.revoked == revoked
    with Admin({"bootstrap.servers": cluster.address}) as admin:
        move, *_ = admin.moves(GROUP)
    assert (move.from_node, move.to_node, move.members) == (struck, members.coordinator(), 2)
    return struck


def test_members_stay_whatever_becomes_of_their_coordinator(cluster: ClusterNodes) -> None:
    """CL-G1 to CL-G7, CL-G9: it stops in order, it stands still, it is killed."""
    members = Members(cluster)
    members.commit(6)
    stopped = undisturbed(cluster, members, 7, lambda number: cluster.nodes[number].stop())
    cluster.nodes[stopped].start()
    frozen = undisturbed(cluster, members, 8, cluster.freeze)
    cluster.thaw(frozen)
    undisturbed(cluster, members, 9, lambda number: cluster.nodes[number].kill())
    members.close()
