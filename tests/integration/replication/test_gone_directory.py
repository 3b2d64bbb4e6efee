"""A node whose data directory is removed while it runs stops and says so, and begins anew with an empty one."""

import shutil
from pathlib import Path

import pytest

from tests.support.cluster_commands import PATIENCE_S, muster, until_status
from tests.support.cluster_nodes import running_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def test_it_stops_with_a_sentence_and_comes_back_with_an_empty_one(zookeeper: str, tmp_path: Path) -> None:
    with running_cluster(tmp_path, zookeeper) as cluster:
        assert muster(cluster, "topics", "create", "orders", "--partitions", "3").returncode == 0
        until_status(cluster, up=3, under_replicated=0)
        node = cluster.nodes[3]
        shutil.rmtree(node.data)
        # A topic that is made before the node has noticed is no reason to fall. It is refused once it has stopped.
        muster(cluster, "topics", "create", "more", "--partitions", "3")
        assert node.wait(PATIENCE_S) == 1
        told = node.log_path.read_text()
        assert "Traceback" not in told, told
        assert told.splitlines()[-1].startswith(
            f"error: The data directory {node.data} was removed, moved or unmounted"
        )
        assert not node.data.exists(), "nothing was left in its place"

        node.start()
        until_status(cluster, nodes=3, up=3, offline=0, under_min_isr=0, under_replicated=0)
