"""`muster simulate` and the RPC behind it, on a live group with real lags."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.assignors.api import Snapshot
from muster.client import Admin, Consumer, Producer
from tests.support.node import NodeProcess, running_node

pytestmark = pytest.mark.integration
MUSTER = str(Path(sys.executable).with_name("muster"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("simulate") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def group(node: NodeProcess) -> Iterator[Consumer]:
    """Two members that share four partitions; partition 1 is 30 records behind, the others are not."""
    with Admin({"bootstrap.servers": node.address}) as admin:
        admin.create_topic("lines", 4)
    with Producer({"bootstrap.servers": node.address}) as producer:
        for number in range(30):
            producer.produce("lines", value=b"line %d" % number, partition=1)
    config = {"bootstrap.servers": node.address, "group.id": "readers", "enable.auto.commit": False}
    with Consumer(config) as one, Consumer(config) as two:
        one.subscribe(["lines"])
        two.subscribe(["lines"])
        while not (one.assignment() and two.assignment() and len(one.assignment()) == len(two.assignment()) == 2):
            one.poll(0.1)
            two.poll(0.1)
        yield one


def simulate(node: NodeProcess, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [MUSTER, "simulate", "--bootstrap", node.address, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_live_group_is_foreseen_with_its_lags(node: NodeProcess, group: Consumer) -> None:
    done = simulate(node, "--group", "readers", "--assignor", "lag", "--reset", "earliest", "-o", "json")
    assert done.returncode == 0, done.stderr
    (forecast,) = json.loads(done.stdout)
    assert forecast["assignor"] == "lag"
    assert sum(member["lag_after"] for member in forecast["members"]) == 30


def test_one_more_member_takes_partitions_and_says_why(node: NodeProcess, group: Consumer) -> None:
    done = simulate(node, "--group", "readers", "--assignor", "sticky", "--add-member", "third", "-o", "json")
    (forecast,) = json.loads(done.stdout)
    moves = [move for move in forecast["moves"] if move["target"] == "third"]
    assert len(moves) == 1
    assert moves[0]["why"].startswith("evens out")


def test_a_broken_bound_is_exit_code_4_with_ci_only(node: NodeProcess, group: Consumer) -> None:
    asked = ("--group", "readers", "--assignor", "sticky", "--add-member", "third", "--max-moves", "0")
    assert simulate(node, *asked).returncode == 0
    broken = simulate(node, *asked, "--ci")
    assert broken.returncode == 4
    assert "1 moves, at most 0 allowed" in broken.stderr


def test_a_recorded_rebalance_can_be_decided_again(node: NodeProcess, group: Consumer) -> None:
    with Admin({"bootstrap.servers": node.address}) as admin:
        number = max(entry.number for entry in admin.explain("readers"))
    done = simulate(node, "--group", "readers", "--entry", str(number), "--compare", "range,sticky", "-o", "csv")
    assert done.returncode == 0, done.stderr
    assert [line.split(",")[0] for line in done.stdout.splitlines()] == ["ASSIGNOR", "range", "sticky"]
    missing = simulate(node, "--group", "readers", "--entry", "999")
    assert missing.returncode == 3


def test_what_operators_hold_of_the_group_corrects_the_plans(node: NodeProcess, group: Consumer) -> None:
    asked = ("--group", "held", "--assignor", "range", "--add-member", "third", "-o", "json")
    config = {"bootstrap.servers": node.address, "group.id": "held", "group.protocol": "consumer"}
    with Admin({"bootstrap.servers": node.address}) as admin, Consumer(config) as one:
        one.subscribe(["lines"])
        while len(one.assignment()) < 4:
            one.poll(0.1)
        (free,) = json.loads(simulate(node, *asked).stdout)
        assert free["moves"]
        admin.freeze_group("held", "keep")
        (frozen,) = json.loads(simulate(node, *asked).stdout)
        assert (frozen["moves"], frozen["note"]) == ([], "as operators hold the group: freeze")
        answer = simulate(node, "--group", "held", "--compare", "range,sticky", "-o", "csv").stdout
        assert [line.split(",")[1] for line in answer.splitlines()] == ["MOVES", "0", "0"]


def test_the_node_takes_installed_assignors_only(node: NodeProcess, group: Consumer) -> None:
    """The RPC is open to strangers: a path into a module would let them import code on the node."""
    import grpc

    from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
    from tests.support import stubs as rpc

    with grpc.insecure_channel(node.address) as channel:
        request = pb.SimulateAssignmentRequest(group_id="readers", assignors=["range", "tests.support.plugins:Raises"])
        answer = rpc.GroupCoordinatorStub(channel).SimulateAssignment(request, timeout=30)
    good, bad = answer.assignments
    assert json.loads(good.forecast_json)["assignor"] == "range"
    assert "takes only installed ones" in bad.error_message
    assert Snapshot.from_json(answer.snapshot_json).topics == {"lines": 4}


def test_an_unknown_group_is_exit_code_3(node: NodeProcess) -> None:
    done = simulate(node, "--group", "nobody")
    assert done.returncode == 3
    assert "nobody" in done.stderr
