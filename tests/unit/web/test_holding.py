"""What operators hold of a group, by the API: the coordinator is asked once, with who and why, and its word is told."""

from typing import Any

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.observability.read_model.group_mapper import map_holds
from muster.coordinator.observability.views.controls import hold_lines
from muster.coordinator.rpc.v1 import control_service_pb2 as pb
from tests.fakes.asked_node import AskedNode
from tests.unit.web.test_acts import act

HOLDS = pb.Holds(
    version=7,
    freeze=pb.Freeze(orphans=pb.ORPHANS_KEEP),
    deploy=pb.Deploy(expect=10),
    back=7,
    drains=[pb.HeldDrain(drain=pb.Drain(by=pb.NAMED_BY_HOST, name="h1"), left=1)],
    pins=[pb.HeldPin(pin=pb.Pin(topic="t", partition=3, name="i-1"))],
    shares=[pb.HeldShare(member_id="m-1", partitions=2, until_ms=0)],
)


@pytest.fixture
def node() -> AskedNode:
    node = AskedNode()
    node.answers["HoldGroup"] = lambda request: pb.HoldGroupResponse(sentence="it is done", holds=HOLDS)
    node.answers["ResumeGroup"] = lambda request: pb.ResumeGroupResponse(sentence="it ended")
    return node


@pytest.mark.parametrize(
    ("body", "verb"),
    [
        ({"verb": "freeze", "orphans": "keep"}, {"freeze": pb.Freeze(orphans=pb.ORPHANS_KEEP)}),
        ({"verb": "deploy", "expect": 3, "for_ms": 60_000}, {"deploy": pb.Deploy(expect=3), "for_ms": 60_000}),
        (
            {"verb": "drain", "by": "instance", "name": "i-1", "expected_version": 4},
            {"drain": pb.Drain(by=pb.NAMED_BY_INSTANCE, name="i-1"), "expected_version": 4},
        ),
        (
            {"verb": "pin", "topic": "t", "partition": 3, "name": "i-1"},
            {"pin": pb.Pin(topic="t", partition=3, name="i-1")},
        ),
    ],
)
def test_each_verb_reaches_the_coordinator_as_it_was_said(node: AskedNode, body: Any, verb: dict[str, Any]) -> None:
    answer = act(node, "/groups/g/hold", {**body, "dry_run": False, "reason": "release 7"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["sentence"] == "it is done"
    [(method, asked, by)] = node.asked
    assert (method, by.reason) == ("HoldGroup", "release 7")
    assert asked == pb.HoldGroupRequest(group_id="g", reason="release 7", **verb)


def test_an_end_is_told_for_people_and_for_programs(node: AskedNode) -> None:
    rows = act(node, "/groups/g/hold", {"verb": "freeze"}).json()["rows"]
    assert [row["until_ms"] for row in rows] == [None, None, None, None, 0]
    assert [row["until"] is None for row in rows] == [True, True, True, True, False]


def test_nothing_is_done_unless_it_is_said_so(node: AskedNode) -> None:
    for path, body in (("hold", {"verb": "freeze"}), ("resume", {})):
        assert act(node, f"/groups/g/{path}", body).json()["dry_run"]
    assert all(asked.validate_only for _, asked, _ in node.asked)


def test_what_is_not_said_is_refused_before_the_coordinator_is_asked(node: AskedNode) -> None:
    for path, body, field in (
        ("hold", {"verb": "melt"}, "verb"),
        ("hold", {"verb": "drain"}, "name"),
        ("hold", {"verb": "pin", "name": "i"}, "topic"),
        ("hold", {"verb": "deploy", "expect": -1}, "expect"),
        ("resume", {"what": "pin"}, "topic"),
    ):
        answer = act(node, f"/groups/g/{path}", body)
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, field), body
    assert node.asked == []


def test_a_refusal_of_the_coordinator_is_one(node: AskedNode) -> None:
    node.answers["HoldGroup"] = lambda request: pb.HoldGroupResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message="version 3 is not 4"
    )
    answer = act(node, "/groups/g/hold", {"verb": "freeze", "expected_version": 4})
    assert answer.status_code == 409
    assert "version 3 is not 4" in answer.text


def test_every_part_has_its_line() -> None:
    first, second, *rest = hold_lines(map_holds(HOLDS))
    assert first == "HELD: freeze, partitions that lose their owner stay unowned"
    assert second == "HELD: deploy, 7 of 10 back"
    assert rest[0] == "HELD: pin t-3 to i-1"
    assert rest[1] == "HELD: drain host h1, 1 partition still to move"
    assert rest[2].startswith("HELD: share of m-1 until ")
