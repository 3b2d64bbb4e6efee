"""Metrics of three real nodes: each partition is told of once, by its leader, and a node that is gone is seen."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from muster.client import Admin
from tests.support.cluster_nodes import ClusterNodes, running_cluster
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PATIENCE_S = 60.0
TOPIC, PARTITIONS = "orders", 6
Samples = list[tuple[str, dict[str, str], float]]


def scraped(cluster: ClusterNodes, *nodes: int) -> Samples:
    """Of these nodes, together."""
    return [
        (sample.name, sample.labels, sample.value)
        for number in nodes
        for family in text_string_to_metric_families(
            httpx.get(f"http://{cluster.nodes[number].http}/metrics", timeout=PATIENCE_S).text
        )
        for sample in family.samples
    ]


def total(samples: Samples, name: str) -> float:
    found = [value for each, _, value in samples if each == name]
    assert found, name
    return sum(found)


@pytest.fixture
def cluster(zookeeper: str, tmp_path: Path) -> Iterator[ClusterNodes]:
    with running_cluster(tmp_path, zookeeper, settings={"http.listeners": "127.0.0.1:0"}) as running:
        yield running


def until(cluster: ClusterNodes, nodes: tuple[int, ...], **wanted: float) -> Samples:
    patience = Patience(PATIENCE_S)
    while True:
        samples = scraped(cluster, *nodes)
        found = {name: total(samples, name) for name in wanted}
        if found == wanted:
            return samples
        assert patience.lasts(), (found, cluster.log_tail())
        time.sleep(0.1)


def test_each_partition_is_told_of_once_and_what_is_missing_is_seen(cluster: ClusterNodes) -> None:
    with Admin({"bootstrap.servers": cluster.nodes[1].address}) as admin:
        patience = Patience(PATIENCE_S)
        while len(admin.describe_cluster().nodes) < len(cluster.nodes):
            assert patience.lasts(), cluster.log_tail()
            time.sleep(0.1)
        admin.create_topic(TOPIC, PARTITIONS)
    wanting = "kafka_server_replicamanager_underreplicatedpartitions"
    controllers = "kafka_controller_kafkacontroller_activecontrollercount"
    samples = until(cluster, (1, 2, 3), **{wanting: 0, controllers: 1})
    leaders = Counter(
        int(value)
        for name, labels, value in samples
        if name == "kafka_topic_partition_leader" and labels["topic"] == TOPIC
    )
    assert sum(leaders.values()) == PARTITIONS
    assert leaders.keys() == {1, 2, 3}
    in_sync = [value for name, labels, value in samples if name == "kafka_topic_partition_in_sync_replica"]
    assert set(in_sync) == {3.0}

    cluster.nodes[2].kill()
    partitions = len(in_sync)
    elections, patience = "kafka_controller_controllerstats_leaderelections_total", Patience(PATIENCE_S)
    samples = until(cluster, (1, 3), **{wanting: partitions, controllers: 1})
    while not total(samples, elections):  # a node's figures as controller are not of the same moment as its partitions'
        assert patience.lasts(), cluster.log_tail()
        samples = until(cluster, (1, 3), **{wanting: partitions, controllers: 1})
    assert total(samples, "kafka_server_replicamanager_isrshrinks_total") > 0
    assert total(samples, "kafka_server_replicamanager_underminisrpartitioncount") == 0
    assert total(samples, "kafka_controller_kafkacontroller_offlinepartitionscount") == 0
    cluster.nodes[2].start()
    until(cluster, (1, 2, 3), **{wanting: 0, controllers: 1})
