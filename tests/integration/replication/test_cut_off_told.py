"""What a node that is cut off from all others and from ZooKeeper tells of the cluster: how old that is."""

import json
import time
from pathlib import Path

import pytest

from tests.support.cluster_commands import PATIENCE_S, muster, told, until_status
from tests.support.cluster_cuts import ZOOKEEPER, cluster_with_cuts
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def test_who_asks_a_node_that_is_cut_off_hears_so(zookeeper: str, tmp_path: Path) -> None:
    with cluster_with_cuts(tmp_path, zookeeper) as (cluster, cuts):
        assert muster(cluster, "topics", "create", "orders", "--partitions", "3").returncode == 0
        until_status(cluster, node=3, up=3, under_replicated=0)
        assert told(cluster, "cluster", "status", node=3)["in_cluster"] is True

        cuts.cut(3, ZOOKEEPER, 1, 2)
        patience = Patience(PATIENCE_S)
        while (asked := muster(cluster, "cluster", "status", "-o", "json", node=3)).returncode == 0:
            assert patience.lasts(), (asked.stdout, cluster.log_tail())
            time.sleep(0.1)
        assert asked.returncode == 4, asked.stderr
        row = json.loads(asked.stdout)
        assert row["in_cluster"] is False
        assert row["heard_ms_ago"] >= 3_000, "zookeeper.session.timeout.ms"
        assert "s ago: this node is not in the cluster: it has heard nothing from the controller for" in asked.stderr
        for command in (("cluster", "nodes"), ("cluster", "partitions"), ("health",)):
            done = muster(cluster, *command, node=3)
            assert (done.returncode, "this node is not in the cluster" in done.stderr) == (4, True), done.stderr
        refused = muster(cluster, "cluster", "spread", "--execute", node=3)
        assert (refused.returncode, refused.stdout) == (4, ""), "nothing is planned by what is old"
        until_status(cluster, up=2)
        assert told(cluster, "cluster", "status")["in_cluster"] is True

        cuts.mend()
        patience = Patience(PATIENCE_S)
        while (again := muster(cluster, "cluster", "status", node=3)).returncode == 4:
            assert patience.lasts(), (again.stderr, cluster.log_tail())
            time.sleep(0.1)
        until_status(cluster, node=3, up=3, under_replicated=0)
        assert told(cluster, "cluster", "status", node=3)["in_cluster"] is True
