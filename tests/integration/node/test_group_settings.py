"""Settings of a group: by `muster groups`, over a crash, and in the plans of a real node."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.client import Admin, Consumer
from muster.client.errors import TransportRefused
from muster.coordinator.core.control.settings_table import SETTINGS
from muster.coordinator.rpc.v1.ledger_pb2 import RebalanceOutcome
from tests.support.client_stories import poll_until
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration
OPTIONS = 'assignor.options={"max.partitions.per.member": 1}'


def groups(node: NodeProcess, *words: str) -> tuple[int, str, str]:
    arguments = ["groups", words[0], "--bootstrap", node.address, *words[1:]]
    run = f"import sys; from muster.cli.main import main; sys.exit(main({arguments!r}))"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "how", [{"group_protocol": "consumer"}, {"group_remote_assignor": "uniform", "heartbeat_interval_ms": 50}]
)
def test_options_reach_the_plans_and_outlive_a_crash(tmp_path: Path, how: dict[str, Any]) -> None:
    with running_node(tmp_path / "data") as node:
        code, out, _ = groups(node, "set", "-o", "json", "--reason", "a trial", "g", OPTIONS)
        assert (code, json.loads(out)[0]["version"]) == (0, 1)
        node.kill()
        node.start()
        code, out, _ = groups(node, "settings", "-o", "json", "g")
        assert json.loads(json.loads(out)[0]["value"]) == {"max.partitions.per.member": 1}
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic("t", 4)
            consumer = Consumer(bootstrap_servers=node.address, group_id="g", client_rack="r1", **how)
            consumer.subscribe(["t"])
            with consumer:
                poll_until(lambda: len(consumer.assignment()) == 1, consumer, what="one, as the option says")
                assert groups(node, "unset", "--version", "1", "g", "assignor.options")[0] == 0
                poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="all")
                told = admin.explain("g", include_snapshots=True)
    changes = [e for e in told if e.outcome == RebalanceOutcome.REBALANCE_OUTCOME_SETTINGS_CHANGED]
    assert len(changes) == 2
    assert " (a trial) changed the group's settings: assignor.options: unset -> " in changes[-1].detail
    snapshots = [json.loads(e.snapshot_json) for e in told if e.snapshot_json]
    # `handover` is the coordinator's own: whose claims hold partitions back.
    options = [{k: v for k, v in s.get("options", {}).items() if k != "handover"} for s in snapshots]
    assert set(map(json.dumps, options)) == {"{}", '{"max.partitions.per.member": 1}'}
    assert {member.get("rack") for s in snapshots for member in s["members"]} == {"r1"}, "racks are members' own words"


def test_what_is_wrong_is_said_and_exits_as_elsewhere(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        code, _, err = groups(node, "settings", "g")
        assert (code, err) == (0, "nothing is set for group 'g'\n")
        code, out, err = groups(node, "settings", "-o", "json", "g")
        rows = {row["setting"]: row for row in json.loads(out)}
        assert rows.keys() == SETTINGS.keys()
        assert {(row["version"], row["value"]) for row in rows.values()} == {(0, None)}
        assert rows["consumer.session.timeout.ms"]["default"] == "45000"
        code, _, err = groups(node, "set", "g", "assignor.optoins={}")
        assert code == 2
        assert f"'assignor.optoins' is not a setting of a group; known are: {', '.join(SETTINGS)}" in err
        code, _, err = groups(node, "set", "g", 'assignor.options={"membr.capacity": {}}')
        assert (code, "known are: member.capacity" in err) == (2, True)
        code, _, err = groups(node, "set", "--version", "4", "g", OPTIONS)
        assert (code, "at version 0, version 4 was expected" in err) == (5, True)
        code, out, err = groups(node, "set", "--dry-run", "-o", "json", "g", OPTIONS)
        assert (code, [row["version"] for row in json.loads(out)]) == (0, [1])
        assert 'assignor.options would change: unset (default {}) -> {"max.partitions.per.member": 1}\n' in err
        code, _, err = groups(node, "unset", "--dry-run", "g", "assignor.options")
        assert (code, err.splitlines()[0]) == (0, "nothing changes")
        assert "nothing is set" in groups(node, "settings", "g")[2], "a dry run changed something"
        with Admin(bootstrap_servers=node.address) as admin:
            large = {"member.standby": ["x" * 1_000] * 70}
            with pytest.raises(TransportRefused, match="at most 65536 are accepted"):
                admin.alter_group_settings("g", {"assignor.options": large})
