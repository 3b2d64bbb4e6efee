"""Three real nodes and Kafka's clients: what was acknowledged outlives whoever is killed, frozen, or loses its disk."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer

from tests.support.cluster_nodes import SESSION_MS, ClusterNodes, running_cluster
from tests.support.numbered_records import PARTITIONS, PATIENCE_S, TOPIC, Numbered
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


@pytest.fixture
def cluster(zookeeper: str, tmp_path: Path) -> Iterator[ClusterNodes]:
    with running_cluster(tmp_path, zookeeper) as running:
        yield running


def test_each_node_is_killed_in_turn_and_comes_back(cluster: ClusterNodes) -> None:
    """Leader, follower, controller: each is all of them for some partition at some time."""
    work = Numbered(cluster)
    work.send(600)
    for victim in cluster.nodes.values():
        victim.kill()
        work.send(600)
        victim.start()
        work.send(600)
        work.until_in_sync()
    work.check()


def test_a_frozen_leader_is_passed_by_and_does_no_harm_when_it_wakes(cluster: ClusterNodes) -> None:
    work = Numbered(cluster)
    work.send(600)
    frozen = work.leader_of(0)
    cluster.freeze(frozen)
    work.send(600)
    assert work.leader_of(0) != frozen
    cluster.thaw(frozen)
    work.send(600)
    work.until_in_sync()
    work.check()


def test_a_frozen_follower_and_a_frozen_controller_hold_nobody_up(cluster: ClusterNodes) -> None:
    """CL-T2: each by itself, for three sessions; one node leads all, and is neither."""
    controller = cluster.controller()
    leader, follower = (number for number in cluster.nodes if number != controller)
    work = Numbered(cluster, replicas=(leader, follower, controller))
    work.send(600)
    for frozen in (follower, controller):
        cluster.freeze(frozen)
        three_sessions = Patience(3 * SESSION_MS / 1000)
        while three_sessions.lasts():
            work.send(PARTITIONS)
        work.until_in_sync(2)
        assert (cluster.controller() == frozen, work.leaders()) == (False, {leader})
        cluster.thaw(frozen)
        work.send(600)
        work.until_in_sync()
        assert work.leaders() == {leader}
    work.check()


def test_a_node_with_an_empty_disk_joins_as_a_follower(cluster: ClusterNodes) -> None:
    """CL-T8: under its old id, while the others go on."""
    work = Numbered(cluster)
    work.send(600)
    lost = work.leader_of(0)
    cluster.nodes[lost].kill()
    shutil.rmtree(cluster.nodes[lost].data)
    work.send(600)
    cluster.until_session_is_over(lost)  # until then its id is the former disk's (CL-Z3)
    cluster.nodes[lost].start()
    work.until_in_sync()
    for number, node in cluster.nodes.items():
        if number != lost:
            node.kill()
            work.send(300)
            node.start()
            work.until_in_sync()
    work.check()


def test_all_are_killed_and_start_in_another_order(cluster: ClusterNodes) -> None:
    work = Numbered(cluster)
    work.send(600)
    for number in (2, 3, 1):
        cluster.nodes[number].kill()
    for number in (3, 1, 2):
        cluster.nodes[number].start()
    work.send(600)
    work.until_in_sync()
    work.check()


def test_a_rolling_restart_under_load_costs_nobody_anything(cluster: ClusterNodes) -> None:
    work = Numbered(cluster)
    for node in cluster.nodes.values():
        work.send(300)
        assert node.stop() == 0
        work.send(300)
        node.start()
        work.until_in_sync()
    work.check()


def test_with_one_of_three_left_nothing_is_acknowledged_and_what_was_is_read(cluster: ClusterNodes) -> None:
    """CL-T6: 19 for who writes, records for who reads; all goes on once one is back.

    Who is left reads out what it knows to be committed (CL-L3), and hears of that with the records that follow.
    """
    work = Numbered(cluster)
    work.send(600)
    cluster.nodes[2].kill()
    work.send(600)
    before = dict(work.acked)
    work.send(PARTITIONS)
    cluster.nodes[3].kill()
    found = work.read(before)
    assert {place: value for place, value in before.items() if found.get(place) != value} == {}
    impatient = Producer(
        {"bootstrap.servers": cluster.nodes[1].kafka_address, "message.timeout.ms": 3_000, "log_level": 0}
        | {"socket.timeout.ms": 3_000, "request.timeout.ms": 2_500}
    )
    told: list[KafkaError | None] = []
    impatient.produce(TOPIC, b"nobody", partition=0, on_delivery=lambda error, message: told.append(error))
    assert impatient.flush(PATIENCE_S) == 0
    assert [error is not None for error in told] == [True]
    cluster.nodes[2].start()
    work.send(600)
    cluster.nodes[3].start()
    work.send(600)
    work.until_in_sync()
    work.check()
