"""ZooKeeper's servers are killed under a cluster of real nodes (CL-Z9, CL-T3)."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.coordinator.zookeeper.local_ensemble import LocalEnsemble
from tests.support.cluster_nodes import SESSION_MS, ClusterNodes, running_cluster
from tests.support.numbered_records import Numbered
from tests.support.zookeeper.servers import numbers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture
def cluster(zookeeper_ensemble: LocalEnsemble, tmp_path: Path) -> Iterator[ClusterNodes]:
    with running_cluster(tmp_path, f"{zookeeper_ensemble.connect}/away-{next(numbers)}") as running:
        yield running


def test_a_leader_dies_together_with_zookeeper_s(zookeeper_ensemble: LocalEnsemble, cluster: ClusterNodes) -> None:
    work = Numbered(cluster)
    work.send(600)
    victim, server = work.leader_of(0), zookeeper_ensemble.leader()
    zookeeper_ensemble.kill(server)
    cluster.nodes[victim].kill()
    work.send(600)
    zookeeper_ensemble.restart(server)
    cluster.nodes[victim].start()
    work.send(600)
    work.until_in_sync()
    work.check()


def test_without_a_quorum_what_is_in_sync_goes_on(zookeeper_ensemble: LocalEnsemble, cluster: ClusterNodes) -> None:
    """For five sessions; then nodes register anew, and whoever is killed is passed by as before."""
    work = Numbered(cluster)
    work.send(600)
    work.until_in_sync()
    away = [number for number in (1, 2, 3) if number != zookeeper_ensemble.leader()]
    for number in away:
        zookeeper_ensemble.kill(number)
    until_s = time.monotonic() + 5 * SESSION_MS / 1000
    while time.monotonic() < until_s:  # as long as that takes, records are acknowledged
        work.send(60)
    assert work.failed == []
    for number in away:
        zookeeper_ensemble.restart(number)
    work.send(600)
    work.until_in_sync()
    cluster.nodes[work.leader_of(0)].kill()
    work.send(600)
    work.check()
