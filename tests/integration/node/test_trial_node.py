"""Assignors on trial against a node: a canary by the command line and the admin client, shadows beside plans."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.client import Admin, Consumer
from tests.support.client_stories import poll_until
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration
OK, CONFLICT = 0, 5


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("trial") / "data")) as running:
        yield running


def muster(node: NodeProcess, *words: str, code: int = OK) -> Any:
    """What `muster groups` prints as JSON, or says."""
    arguments = ["groups", words[0], "--bootstrap", node.address, *words[1:]]
    run = f"import sys; from muster.cli.main import main; sys.exit(main({arguments!r}))"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if "json" in words else done.stdout + done.stderr


def test_a_canary_and_shadows_from_beginning_to_end(node: NodeProcess) -> None:
    with Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic("orders", 4)
        muster(node, "set", "orders", "shadow.assignors=range,roundrobin")
        with Consumer(bootstrap_servers=node.address, group_id="orders", group_protocol="consumer") as consumer:
            consumer.subscribe(["orders"])
            poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="all partitions")

            tried = muster(node, "canary", "orders", "--assignor", "range", "--for", "1h", "--dry-run", "-o", "json")
            assert (tried["state"], tried["former"]) == ("canary", "uniform")
            assert [guard["guard"] for guard in tried["guards"] if guard["idle"]] == ["unowned > 2x", "lag > 2x"]
            assert admin.canary("orders") is None

            muster(node, "canary", "orders", "--assignor", "range", "--for", "1h", "--guard", "moves > 100")
            assert "has a canary already" in muster(
                node, "canary", "orders", "--assignor", "lag", "--for", "1h", code=CONFLICT
            )
            assert "has a canary" in muster(node, "set", "orders", "assignor=lag", code=CONFLICT)
            poll_until(lambda: planners(admin)[-1] == "range", consumer, what="a plan of the candidate")
            assert "rolled back" in muster(node, "rollback", "orders")
            poll_until(lambda: planners(admin)[-1] == "uniform", consumer, what="a plan of the former assignor")
            assert "assignor" not in admin.group_settings("orders").values

            begun = admin.start_canary("orders", "roundrobin", 3_600_000, wait=True)
            assert (begun.state, begun.promotes) == ("canary", False)
            assert "promoted" in muster(node, "promote", "orders")
            assert admin.group_settings("orders").values["assignor"] == "roundrobin"
            assert "no running canary" in muster(node, "promote", "orders", code=CONFLICT)

            poll_until(lambda: len(muster(node, "shadow", "orders", "-o", "json")) >= 3, consumer, what="scores")
        first = muster(node, "shadow", "orders", "-o", "json")[:3]
        assert [(row["assignor"], row["real"], row["failure"]) for row in first] == [
            ("uniform", True, None),
            ("range", False, None),
            ("roundrobin", False, None),
        ]
        told = [entry["outcome"] for entry in muster(node, "explain", "orders", "--entries", "-o", "json")]
        assert told.count("TRIAL") == 4


def planners(admin: Admin) -> list[str]:
    """Who made the group's plans, oldest first."""
    return [entry.protocol_name for entry in admin.explain("orders")[::-1] if entry.protocol_name]
