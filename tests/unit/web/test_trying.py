"""Another assignor on trial, through the API."""

import json

import pytest

from muster.coordinator.rpc.v1 import control_service_pb2 as pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as group_pb
from tests.fakes.asked_node import AskedNode
from tests.unit.web.test_acts import act

ON_TRIAL = pb.Canary(
    state=pb.CANARY_STATE_WAITING,
    assignor="lag",
    former="range",
    guards=[pb.CanaryGuard(guard="lag > 2x", baseline=10.0), pb.CanaryGuard(guard="expired > 0", idle="too early")],
)


@pytest.fixture
def node() -> AskedNode:
    node = AskedNode()
    moves = [pb.ForecastMove(topic="t", partition=n, source="a", target="b") for n in range(2)]
    node.answers["StartCanary"] = lambda request: pb.StartCanaryResponse(canary=ON_TRIAL, moves=moves)
    node.answers["EndCanary"] = lambda request: pb.EndCanaryResponse(
        canary=pb.Canary(state=pb.CANARY_STATE_PROMOTED, assignor="lag", former="range", ended="by an operator")
    )
    move = {"topic": "t", "partition": 0, "source": "b", "target": "a", "why": "evens out"}
    plan = group_pb.SimulatedAssignment(forecast_json=json.dumps({"moves": [move, move | {"partition": 1}]}))
    node.answers["SimulateAssignment"] = lambda request: group_pb.SimulateAssignmentResponse(assignments=[plan])
    node.answers["DescribeCanary"] = lambda request: pb.DescribeCanaryResponse(canary=ON_TRIAL)
    return node


def test_a_trial_begins_as_it_was_asked_for(node: AskedNode) -> None:
    body = {"assignor": "lag", "for_ms": 1000, "guards": ["lag > 2x"], "wait": True, "dry_run": False, "reason": "try"}
    answer = act(node, "/groups/g/canary", body)
    assert answer.status_code == 200, answer.text
    assert [row["counts"] for row in answer.json()["rows"]] == ["yes", "too early"]
    [(_, asked, by)] = node.asked
    assert by.reason == "try"
    assert asked == pb.StartCanaryRequest(
        group_id="g", assignor="lag", for_ms=1000, guards=["lag > 2x"], wait=True, reason="try"
    )


def test_a_trial_is_told_with_what_it_would_move_before_it_begins(node: AskedNode) -> None:
    told = act(node, "/groups/g/canary", {"assignor": "lag", "for_ms": 1000}).json()
    assert told["sentence"].startswith("lag would plan in place of range until ")
    assert told["sentence"].endswith(", then be told to wait: 2 partitions would move")
    assert told["moves"][1] == {"topic": "t", "partition": 1, "source": "a", "target": "b"}
    assert [(method, asked.validate_only) for method, asked, _ in node.asked] == [("StartCanary", True)]


def test_what_a_plan_would_move_is_left_out_where_nobody_can_say(node: AskedNode) -> None:
    unknown = pb.StartCanaryResponse(canary=ON_TRIAL, moves_unknown="its own members plan it")
    node.answers["StartCanary"] = lambda request: unknown
    told = act(node, "/groups/g/canary", {"assignor": "lag", "for_ms": 1000}).json()
    assert told["sentence"].endswith(", then be told to wait")
    assert told["moves"] is None


def test_a_way_back_is_told_with_what_it_would_move(node: AskedNode) -> None:
    told = act(node, "/groups/g/canary/end", {"promote": False}).json()
    assert told["sentence"].endswith("range would plan in place of lag again: 2 partitions would move")
    assert told["moves"][0] == {"topic": "t", "partition": 0, "source": "b", "target": "a"}
    assert [method for method, _, _ in node.asked] == ["DescribeCanary", "SimulateAssignment"]


def test_an_end_is_told_before_it_comes(node: AskedNode) -> None:
    told = act(node, "/groups/g/canary/end", {"promote": True})
    assert "it waits for promote or rollback" in told.json()["sentence"]
    assert "it plans the group already, so that nothing moves" in told.json()["sentence"]
    assert [method for method, _, _ in node.asked] == ["DescribeCanary"]
    done = act(node, "/groups/g/canary/end", {"promote": True, "dry_run": False})
    assert done.json()["sentence"] == "Canary lag in place of range: promoted, by an operator"


@pytest.mark.parametrize("canary", [None, pb.Canary(state=pb.CANARY_STATE_ROLLED_BACK)])
def test_what_does_not_go_on_cannot_end(node: AskedNode, canary: pb.Canary | None) -> None:
    node.answers["DescribeCanary"] = lambda request: pb.DescribeCanaryResponse(canary=canary)
    answer = act(node, "/groups/g/canary/end", {"promote": False})
    assert answer.status_code == 409
    assert "has no canary that goes on" in answer.text
