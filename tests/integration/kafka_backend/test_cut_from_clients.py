"""A node that clients do not reach and its Kafka does: it goes on to be named, and the doctor says so (KB-H2)."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from muster.cli.main import main
from muster.client import Admin
from muster.coordinator.zookeeper.local_ensemble import free_port
from tests.integration.kafka_backend.test_nodes_over_kafka import NODE
from tests.support.kafka_backend.served import make_topics, over
from tests.support.node import NodeProcess
from tests.support.pace import Patience

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PATIENCE_S = 90.0


@pytest.fixture
def nodes(real_kafka: Any, tmp_path: Path) -> Iterator[dict[int, NodeProcess]]:
    """The second tells an address at which nobody listens."""
    make_topics(real_kafka.address, {"orders": 4})
    settings = over(real_kafka.address, "cutoff", **NODE)
    nowhere = f"127.0.0.1:{free_port()}"
    found = {
        1: NodeProcess(tmp_path / "1", {**settings, "node.id": "1"}),
        2: NodeProcess(tmp_path / "2", {**settings, "node.id": "2", "advertised.listeners": nowhere}),
    }
    with ExitStack() as stack:
        for node in found.values():
            stack.callback(node.stop)
            node.start()
        yield found


def untold(bootstrap: str) -> list[str]:
    """Which groups are missing in a list of all."""
    found: list[str] = []
    with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=2_000) as admin:
        admin.list_groups(missing=found.append)
    return found


def test_the_doctor_says_which_node_nobody_reaches(
    nodes: dict[int, NodeProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    patience = Patience(PATIENCE_S)
    while not untold(nodes[1].address):
        assert patience.lasts(), "the second node is none of the cluster, or is reached"
    assert main(["doctor", "--over", "0", "-o", "json", "--bootstrap", nodes[1].address]) == 4
    said = capsys.readouterr().out
    assert '"groups-untold"' in said
    assert "which is one of the cluster and cannot be reached from here" in said
    assert main(["groups", "list", "--bootstrap", nodes[1].address]) == 4
    assert "groups are missing in this list" in capsys.readouterr().err
