"""One line for each rebalance, whatever becomes of it, and for each action of an operator."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from muster.coordinator.config import Address, load_settings
from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.core.model.types import (
    Cause,
    Outcome,
    PartitionMove,
    PhaseWait,
    RebalanceEntry,
    RebalancePhase,
    WaitEnd,
)
from muster.coordinator.edge.listener_base import ACTIONS, OperatorAction, report_actions
from muster.coordinator.security.access_model import UNAUTHENTICATED
from muster.coordinator.server import node_events
from muster.coordinator.server.node_events import RebalanceLines, changed_settings, log_action, log_listening, log_start

OPEN, KNOWN = PartitionMove("t", 0, "", "m", -1, ""), PartitionMove("t", 0, "", "m", 13_200, "")


def entry(number: int, outcome: Outcome = Outcome.COMPLETED, *, settled: bool = False, moved: bool = True) -> Any:
    return RebalanceEntry(
        number=number,
        previous_generation=number - 1,
        generation=number,
        protocol_type="consumer",
        protocol_name="range",
        cause=Cause.SESSION_EXPIRED,
        culprit="worker-3-uuid",
        culprit_client_id="worker-3",
        culprit_client_host="10.0.4.17",
        detail="",
        client_reason="",
        outcome=outcome,
        started_at_ms=0,
        ended_at_ms=9,
        phases=(RebalancePhase("join", 1_200, ()), *((RebalancePhase("settle", 300, ()),) if settled else ())),
        members=(),
        moves=((KNOWN if settled else OPEN),) if moved else (),
        snapshot_json="",
        snapshot_source="",
        also=(),
        unowned_partition_ms=13_200 if settled else -1,
    )


def told(*entries: Any, group: str = "billing", close: bool = False) -> list[dict[str, Any]]:
    all_lines = RebalanceLines()
    with capture_logs() as logged:
        for each in entries:
            all_lines.noticed(GroupChanged(group, "Stable", 1, each))
        if close:
            all_lines.close()
    return list(logged)


def test_a_rebalance_is_told_once_when_it_has_settled() -> None:
    (line,) = told(entry(12), entry(12, settled=True), None, close=True)
    assert line == {
        "event": "rebalance", "log_level": "info", "group": "billing", "rebalance": 12, "cause": "session_expired",
        "culprit": "worker-3@10.0.4.17", "outcome": "completed", "took": "1.500s", "generation": 12,
        "assignor": "range", "members": 0, "moved": 1, "unowned_s": 13.2,
    }  # fmt: skip


def test_one_that_moves_nobody_or_comes_to_nothing_is_told_at_once() -> None:
    assert [line["outcome"] for line in told(entry(1, Outcome.SUPERSEDED), entry(2, Outcome.EMPTIED))] == [
        "superseded", "emptied"
    ]  # fmt: skip
    quiet = entry(3, moved=False)
    assert len(told(quiet, entry(3, settled=True, moved=False), close=True)) == 1


def test_one_that_never_settles_is_told_with_the_next_or_at_the_end() -> None:
    assert [line["rebalance"] for line in told(entry(1), entry(2), close=True)] == [1, 2]
    assert told(entry(1)) == []


def test_rebalances_that_wait_to_settle_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_events, "MOST_UNSETTLED", 2)
    many = RebalanceLines()
    with capture_logs() as logged:
        for group in ("a", "b", "c"):
            many.noticed(GroupChanged(group, "Stable", 1, entry(1)))
    assert [line["group"] for line in logged] == ["a"]


CALL = SimpleNamespace(peer_host="10.0.4.17", client_software="muster-python 0.1.0", identity=UNAUTHENTICATED)


def acted(what: str, request: Any, response: Any) -> list[OperatorAction]:
    seen: list[OperatorAction] = []

    async def handler(request: Any, call: Any) -> Any:
        return response

    answer = asyncio.run(report_actions(handler, what, "grpc", seen.append)(request, CALL))  # type: ignore[arg-type]
    assert answer is response
    return seen


def test_a_rebalance_names_what_planned_it_and_who_was_waited_for_longest() -> None:
    """`assignor=range` stood where the coordinator had planned by lag."""
    waits = (PhaseWait("b-1", "b", WaitEnd.EXPIRED, 4_880), PhaseWait("a-1", "a", WaitEnd.JOINED, 900))
    planned = replace(
        entry(12, settled=True),
        phases=(RebalancePhase("join", 4_880, ("b-1", "a-1"), waits),),
        snapshot_json='{"topics":{"t":3},"members":[],"assignor":"lag"}',
        snapshot_source="setting",
    )
    (line,) = told(planned, close=True)
    assert (line["assignor"], line["waited_for"]) == ("lag", "b (expired, 4.880s)")
    (line,) = told(replace(planned, snapshot_source="leader", phases=()), close=True)
    assert line["assignor"] == "range"
    assert "waited_for" not in line


def test_who_deleted_what_from_where_is_told() -> None:
    request = SimpleNamespace(topic_names=[f"t{n}" for n in range(7)])
    response = SimpleNamespace(topics=[SimpleNamespace(error_code=3), SimpleNamespace(error_code=0)])
    (action,) = acted("DeleteTopics", request, response)
    assert action == OperatorAction(
        "DeleteTopics", "t0,t1,t2,t3,t4 and 2 more", "10.0.4.17", "muster-python 0.1.0", "grpc", 1, ""
    )
    with capture_logs() as logged:
        log_action(action)
    assert logged[0]["action"] == "DeleteTopics"
    assert "reason" not in logged[0]


def quota_of(**part: str) -> SimpleNamespace:
    return SimpleNamespace(entity=[SimpleNamespace(**part)])


@pytest.mark.parametrize(
    ("what", "request_", "of"),
    [
        ("RemoveMembers", {"group_id": "g", "reason": "stuck"}, "g"),
        ("DeleteGroups", {"groups_names": ["a", "b"]}, "a,b"),
        ("CreateTopics", {"topics": [SimpleNamespace(name="t")]}, "t"),
        ("AlterConfigs", {"topics": [SimpleNamespace(topic="t")]}, "t"),
        ("IncrementalAlterConfigs", {"resources": [SimpleNamespace(resource_name="t")]}, "t"),
        ("OffsetCommit", {"group_id": "g", "member_id": "", "include_zookeeper": True}, "g"),
        (
            "AlterQuotas",
            {"entries": [quota_of(type="user", name="alice"), quota_of(type="ip", name="")]},
            "user alice,ip <default>",
        ),
        ("AlterClientQuotas", {"entries": [quota_of(entity_type="client-id", entity_name="c")]}, "client-id c"),
        ("TerminateTransaction", {"transactional_id": "app"}, "app"),
        ("WriteTxnMarkers", {"topics": [SimpleNamespace(name="t")]}, "t"),
        (
            "WriteTxnMarkers",
            {"markers": [SimpleNamespace(topics=[SimpleNamespace(name=name) for name in ("t", "u")])] * 2},
            "t,u",
        ),
    ],
)
def test_both_doors_words_are_understood(what: str, request_: dict[str, Any], of: str) -> None:
    assert what in ACTIONS
    (action,) = acted(what, SimpleNamespace(**request_), SimpleNamespace(error_code=0))
    assert (action.of, action.refused, action.reason) == (of, 0, request_.get("reason", ""))


def test_refused_markers_are_counted_by_partition() -> None:
    parts = [SimpleNamespace(error_code=code) for code in (0, 42, 3)]
    topic = SimpleNamespace(name="t", partitions=parts)
    for response in (SimpleNamespace(topics=[topic]), SimpleNamespace(markers=[SimpleNamespace(topics=[topic])])):
        (action,) = acted("WriteTxnMarkers", SimpleNamespace(topics=[topic]), response)
        assert action.refused == 2


def test_what_changes_nothing_or_is_a_clients_own_is_not_told() -> None:
    ok = SimpleNamespace(error_code=0)
    assert acted("CreateTopics", SimpleNamespace(topics=[], validate_only=True), ok) == []
    commit = {"group_id": "g", "member_id": "m", "include_zookeeper": False}
    assert acted("OffsetCommit", SimpleNamespace(**commit), ok) == []
    assert acted("OffsetCommit", SimpleNamespace(**commit | {"member_id": ""}), ok) == [], "a simple consumer"


def test_a_start_tells_the_settings_that_differ() -> None:
    assert dict(changed_settings(load_settings(None, {}))) == {}
    given = {"node.id": "7", "auto.create.topics.enable": "true", "group.max.size": "9"}
    changed = dict(changed_settings(load_settings(None, given)))
    assert changed["group.max.size"] == "9"
    assert set(changed) <= set(given)


def test_a_start_says_which_doors_are_open_to_whom() -> None:
    given = {"listeners": "10.0.0.1:9290", "kafka.listeners": "127.0.0.1:0", "allow.insecure.listeners": "true"}
    with capture_logs() as logged:
        log_start(load_settings(None, given))
        log_start(load_settings(None, given | {"authorizer": "acl"}))
        log_start(load_settings(None, {}))
    opened = [(line["listener"], line["address"], line["why"]) for line in logged if line["event"] == "open to others"]
    assert [(name, address) for name, address, _ in opened] == [("listeners", "PLAINTEXT://10.0.0.1:9290")] * 2
    assert opened[0][2].startswith("who reaches it may do everything, and who is on the way reads")
    assert opened[1][2].startswith("who is on the way reads and changes what is said")


def test_lines_are_written_together_a_few_at_a_time() -> None:
    """Nobody who waits for a rebalance waits for its line."""
    calls: list[tuple[float, Any]] = []
    all_lines = RebalanceLines(lambda delay_s, work: calls.append((delay_s, work)))
    with capture_logs() as logged:
        for number in range(node_events.LINES_PER_TURN + 3):
            all_lines.noticed(GroupChanged("billing", "Stable", 1, entry(number, moved=False)))
        assert logged == []
        ((delay_s, write),) = calls
        assert delay_s == node_events.TOGETHER_S
        write()
        assert len(logged) == node_events.LINES_PER_TURN
        assert calls[1][0] == 0
        calls[1][1]()
    assert [line["rebalance"] for line in logged] == list(range(node_events.LINES_PER_TURN + 3))
    assert len(calls) == 2


def test_what_waits_to_be_written_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_events, "MOST_UNSETTLED", 2)
    all_lines = RebalanceLines(lambda delay_s, work: None)
    with capture_logs() as logged:
        for number in range(3):
            all_lines.noticed(GroupChanged("billing", "Stable", 1, entry(number, moved=False)))
        assert [line["rebalance"] for line in logged] == [0]
        all_lines.close()
    assert [line["rebalance"] for line in logged] == [0, 1, 2]


def test_the_start_up_line_names_each_door_that_is_open() -> None:
    with capture_logs() as told:
        log_listening(Address("127.0.0.1", 9290), None, None, 1)
        log_listening(Address("127.0.0.1", 9290), Address("127.0.0.1", 9092), Address("::1", 9291), 1)
    only, all_three = ({key: value for key, value in line.items() if key != "log_level"} for line in told)
    assert only == {"event": "listening", "host": "127.0.0.1", "port": 9290, "node_id": 1}
    assert all_three == only | {"kafka": "127.0.0.1:9092", "http": "[::1]:9291"}
