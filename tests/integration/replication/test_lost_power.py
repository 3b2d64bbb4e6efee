"""CL-Z4: a machine lost power under a node whose logs are flushed loosely. The cluster reckons with it, and that
ends."""

import json
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.support.cluster_nodes import running_cluster
from tests.support.node import NodeProcess
from tests.support.numbered_records import Numbered
from tests.support.pace import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

LOOSE = {"log.flush.interval.messages": "1000"}
VICTIM = 2


def another_boot(node: NodeProcess) -> None:
    """As if its machine had been off: with CL-D2's flushing nothing would be missing, here something might be."""
    meta = node.data / "meta.properties"
    lines = meta.read_text().splitlines()
    meta.write_text("\n".join("boot.id=another" if line.startswith("boot.id=") else line for line in lines) + "\n")


def registered_as_unclean(connect: str) -> bool:
    client = KazooClient(connect)
    client.start()
    try:
        return bool(json.loads(client.get(f"/brokers/ids/{VICTIM}")[0])["muster"]["unclean"])
    finally:
        client.stop()
        client.close()


def test_who_has_caught_up_since_it_lost_power_counts_as_any_other(zookeeper: str, tmp_path: Path) -> None:
    """It registered as one that may lack records for good: each restart took it out of sync, and the last one in sync
    was elected as if it had lost something."""
    with running_cluster(tmp_path, zookeeper, settings=LOOSE) as cluster:
        work, node = Numbered(cluster), cluster.nodes[VICTIM]
        work.send(600)
        node.kill()
        another_boot(node)
        node.start()
        assert registered_as_unclean(zookeeper)
        work.send(600)
        work.until_in_sync()
        until(lambda: "unclean=true" not in (node.data / "meta.properties").read_text(), cluster.log_tail)
        node.kill()
        node.start()
        assert not registered_as_unclean(zookeeper)
        work.send(600)
        work.until_in_sync()
        work.check()
