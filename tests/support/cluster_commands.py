"""`muster ...` as an operator types it at a node of a real cluster."""

import json
import subprocess
import time
from typing import Any

from tests.support.cluster_nodes import ClusterNodes
from tests.support.node import MUSTER
from tests.support.pace import Patience

PATIENCE_S = 60.0


def muster(cluster: ClusterNodes, *arguments: str, node: int = 1) -> subprocess.CompletedProcess[str]:
    command = [MUSTER, *arguments, "--bootstrap", cluster.nodes[node].address]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def told(cluster: ClusterNodes, *arguments: str, node: int = 1) -> Any:
    done = muster(cluster, *arguments, "-o", "json", node=node)
    assert done.returncode == 0, done.stderr + cluster.log_tail()
    return json.loads(done.stdout)


def until_status(cluster: ClusterNodes, node: int = 1, **wanted: int) -> None:
    """As `status` counts."""
    patience = Patience(PATIENCE_S)
    while (found := told(cluster, "cluster", "status", node=node)) | wanted != found:
        assert patience.lasts(), (found, cluster.log_tail())
        time.sleep(0.1)
