"""A node on loopback with nothing set pays nothing for all that keeps others out, nor for other nodes: none of it is
even imported."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

STARTED = """
import asyncio, sys
from muster.coordinator.config import load_settings
from muster.coordinator.server.node.node import CoordinatorNode

async def run():
    given = {"log.dirs": sys.argv[1], "listeners": "127.0.0.1:0", "kafka.listeners": "127.0.0.1:0"}
    given |= {"http.listeners": "127.0.0.1:0", "offsets.topic.num.partitions": "1"}
    node = CoordinatorNode(load_settings(None, given))
    await node.start()
    await node.stop()

asyncio.run(run())
ours = "muster.coordinator."
heavy = ("cryptography", "jwt", "scramp", ours + "server.security.", ours + "edge.tls_flow_control")
heavy += (ours + "kafka.authorization", ours + "kafka.handlers.acls", ours + "security.authorizer")
heavy += (ours + "replication", ours + "server.cluster_backend", ours + "kafka.handlers.cluster_backend")
heavy += (ours + "runtime.leased", ours + "kafka_backend", ours + "server.kafka_backend")
print(sorted(name for name in sys.modules if name.startswith(heavy)))
"""


def test_nothing_of_security_nor_of_other_nodes_is_imported_where_it_is_not_wanted(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTED, str(tmp_path / "d")], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
