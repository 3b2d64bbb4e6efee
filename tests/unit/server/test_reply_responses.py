"""Replies become responses: numbers unchanged, a sentence with every refusal, absence kept absent."""

from dataclasses import replace

import pytest

from muster.coordinator.core.model import effects
from muster.coordinator.core.model.types import (
    Cause,
    MemberPlan,
    Outcome,
    PartitionMove,
    RebalanceEntry,
    RebalancePhase,
    StoredOffset,
)
from muster.coordinator.errors import ErrorCode
from muster.coordinator.observability.views.ledger import entry_document
from muster.coordinator.rpc.v1 import errors_pb2, ledger_pb2
from muster.coordinator.server.services import group_responses

ENTRY = RebalanceEntry(
    number=4,
    previous_generation=6,
    generation=7,
    protocol_type="consumer",
    protocol_name="range",
    cause=Cause.SESSION_EXPIRED,
    culprit="b-1",
    culprit_client_id="b",
    culprit_client_host="10.0.0.2",
    detail="b-1 fell silent",
    client_reason="",
    outcome=Outcome.COMPLETED,
    started_at_ms=1_000,
    ended_at_ms=1_500,
    phases=(RebalancePhase("join", 300, ("a-1",)), RebalancePhase("plan", 200)),
    members=(MemberPlan("a-1", "a", "10.0.0.1", None, (("t", (0, 1)),), joined_at_ms=1_300),),
    moves=(PartitionMove("t", 1, "b-1", "a-1", 700, "its owner is gone"),),
    snapshot_json="{}",
    snapshot_source="leader",
    also=("c-1 joined",),
    unowned_partition_ms=700,
)


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_has_its_number_and_name_on_the_wire(code: ErrorCode) -> None:
    assert errors_pb2.ErrorCode.Name(group_responses.to_error_code(code)) == f"ERROR_CODE_{code.name}"


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
def test_every_refusal_comes_with_a_sentence(code: ErrorCode) -> None:
    response = group_responses.build_heartbeat_response(effects.HeartbeatReply(code))
    assert (response.error_code, response.error_message) == (code, code.meaning)
    assert response.error_message


def test_a_good_heartbeat_is_an_empty_message() -> None:
    assert group_responses.build_heartbeat_response(effects.HeartbeatReply()).ByteSize() == 0


def test_an_absent_protocol_stays_absent() -> None:
    refused = group_responses.build_join_response(effects.JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id="a-1"))
    assert not refused.HasField("protocol_name")
    assert (refused.generation_id, refused.member_id) == (-1, "a-1")
    assert group_responses.build_join_response(effects.JoinReply(protocol_name="")).HasField("protocol_name")


def test_the_leader_learns_the_members_and_everyone_the_cause() -> None:
    reply = effects.JoinReply(
        generation=3,
        leader="a",
        member_id="a",
        members=(effects.JoinedMember("a", None, b"1"), effects.JoinedMember("b", "i", b"2")),
        cause=Cause.MEMBER_JOINED,
        rebalance_number=2,
    )
    response = group_responses.build_join_response(reply)
    assert [(m.member_id, m.HasField("group_instance_id"), m.metadata) for m in response.members] == [
        ("a", False, b"1"),
        ("b", True, b"2"),
    ]
    assert (response.cause, response.rebalance_number) == (ledger_pb2.REBALANCE_CAUSE_MEMBER_JOINED, 2)


def test_commit_codes_stand_per_partition_and_at_the_top_only_when_shared() -> None:
    mixed = group_responses.build_commit_response(
        {("t", 0): ErrorCode.NONE, ("u", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, effects.OffsetCommitReply()
    )
    assert mixed.error_code == ErrorCode.NONE
    assert [(t.name, p.partition_index, p.error_code) for t in mixed.topics for p in t.partitions] == [
        ("t", 0, 0),
        ("u", 9, 3),
    ]
    assert mixed.topics[1].partitions[0].error_message == "u-9: this node has no such topic or partition"

    refused = effects.OffsetCommitReply(ErrorCode.ILLEGAL_GENERATION, "generation 3 is not 4")
    same = group_responses.build_commit_response({("t", 0): refused.code, ("t", 1): refused.code}, refused)
    assert (same.error_code, same.error_message) == (ErrorCode.ILLEGAL_GENERATION, "generation 3 is not 4")


def test_a_refusal_of_an_empty_commit_is_still_told() -> None:
    refused = effects.OffsetCommitReply(ErrorCode.NOT_COORDINATOR)
    assert group_responses.build_commit_response({}, refused).error_code == ErrorCode.NOT_COORDINATOR


def test_what_was_never_committed_is_minus_one() -> None:
    response = group_responses.build_offset_fetch_response(
        effects.OffsetFetchReply(
            offsets={("t", 0): StoredOffset(12, 2, "x", 99), ("t", 1): None},
            refused={("t", 2): ErrorCode.UNSTABLE_OFFSET_COMMIT},
        )
    )
    (topic,) = response.topics
    assert [(p.committed_offset, p.committed_leader_epoch, p.error_code) for p in topic.partitions] == [
        (12, 2, 0),
        (-1, -1, 0),
        (-1, -1, 88),
    ]
    assert (topic.partitions[0].metadata, topic.partitions[0].commit_timestamp_ms) == ("x", 99)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_rebalance_is_told_whole_with_its_snapshot_on_request(wanted: bool) -> None:
    response = group_responses.build_explanation(
        "g", effects.ExplainReply(entries=(ENTRY,)), with_snapshots=wanted, room=1000
    )
    (told,) = response.rebalances
    assert told.cause == ledger_pb2.REBALANCE_CAUSE_SESSION_EXPIRED
    assert told.outcome == ledger_pb2.REBALANCE_OUTCOME_COMPLETED
    assert [(p.name, p.duration_ms, list(p.waited_for)) for p in told.phases] == [
        ("join", 300, ["a-1"]),
        ("plan", 200, []),
    ]
    (member,) = told.members
    assert [list(t.partitions) for t in member.assigned] == [[0, 1]]
    assert (member.joined_at_ms, member.HasField("synced_at_ms")) == (1_300, False)
    assert (told.moves[0].source, told.moves[0].target, told.moves[0].unowned_ms) == ("b-1", "a-1", 700)
    assert told.unowned_partition_seconds == 0.7
    assert told.snapshot_json == ("{}" if wanted else "")
    assert list(told.also) == ["c-1 joined"]


def test_a_member_s_times_are_numbers_for_programs_and_left_out_where_nobody_knows_them() -> None:
    told = group_responses.build_rebalance("g", ENTRY, with_snapshot=False)
    (member,) = entry_document(told)["members"]
    assert member["joined_at_ms"] == 1_300
    assert "synced_at_ms" not in member


def test_snapshots_that_do_not_fit_are_left_out_and_counted() -> None:
    entries = tuple(replace(ENTRY, number=number, snapshot_json="é" * 30) for number in (3, 2, 1))
    told = group_responses.build_explanation("g", effects.ExplainReply(entries=entries), with_snapshots=True, room=130)
    assert [bool(entry.snapshot_json) for entry in told.rebalances] == [True, True, False]
    assert (told.error_code, told.error_message.split(";")[0]) == (0, "1 snapshots did not fit into one answer")
    without = group_responses.build_explanation(
        "g", effects.ExplainReply(entries=entries), with_snapshots=False, room=0
    )
    assert without.error_message == ""


def test_a_watcher_hears_of_state_rebalance_and_what_it_missed() -> None:
    notice = effects.GroupChanged("g", "Stable", 7, ENTRY)
    told = group_responses.build_watch_response(notice, skipped=3)
    assert (told.group_state, told.generation_id, told.rebalance.number, told.skipped_rebalances) == ("Stable", 7, 4, 3)
    assert not group_responses.build_watch_response(effects.GroupChanged("g", "Empty", 7), skipped=0).HasField(
        "rebalance"
    )


def test_log_offsets_stand_beside_the_committed_ones_of_the_same_moment() -> None:
    stored = StoredOffset(5, -1, "", 0)
    reply = effects.OffsetFetchReply(offsets={("t", 0): stored, ("t", 1): None, ("gone", 0): None})
    answer = group_responses.build_offset_fetch_response(reply, {("t", 0): (2, 9), ("t", 1): (0, 4)})
    rows = {(topic.name, row.partition_index): row for topic in answer.topics for row in topic.partitions}
    assert (rows["t", 0].committed_offset, rows["t", 0].log_start_offset, rows["t", 0].log_end_offset) == (5, 2, 9)
    assert rows["t", 1].log_end_offset == 4
    assert not rows["gone", 0].HasField("log_end_offset")
