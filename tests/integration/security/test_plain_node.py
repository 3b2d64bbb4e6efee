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
from muster.coordinator.server.node.app import CoordinatorNode

async def run():
    given = {"log.dirs": sys.argv[1], "listeners": "127.0.0.1:0", "kafka.listeners": "127.0.0.1:0"}
    node = CoordinatorNode(load_settings(None, given | {"http.listeners": "127.0.0.1:0",
    "offsets.topic.num.partitions": "1"})) await node.start()
    await node.stop()

asyncio.run(run())
ours = "muster.coordinator."
heavy = ("cryptography", "jwt", "scramp", ours + "server.security.", ours + "edge.transport.handshakes")
heavy += (ours + "edge.paced",)
heavy += (ours + "kafka.rights", ours + "kafka.acls.handlers", ours + "security.acl.authorizer")
heavy += (ours + "cluster", ours + "replication", ours + "server.clustered", ours + "kafka.clustered")
heavy += (ours + "runtime.led", ours + "engine", ours + "ownership", ours + "server.engined")
print(sorted(name for name in sys.modules if name.startswith(heavy)))
"""


def test_nothing_of_security_nor_of_other_nodes_is_imported_where_it_is_not_wanted(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTED, str(tmp_path / "d")], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
