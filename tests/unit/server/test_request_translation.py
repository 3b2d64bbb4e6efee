"""Requests become events when their shape holds; otherwise the sentence names field, value and expectation."""

from collections.abc import Callable
from typing import Any

import pytest

from muster.coordinator.core.model import events
from muster.coordinator.core.model.types import CommittedOffset, MemberIdentity, Protocol
from muster.coordinator.edge import request_limits
from muster.coordinator.edge.request_limits import MalformedGroupRequest
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.services import central_groups, group_requests


def join(**fields: Any) -> events.JoinGroup:
    return group_requests.parse_join_group(pb.JoinGroupRequest(**fields), 7, fresh_id="f", client_host="10.0.0.1")


def test_a_join_carries_every_field() -> None:
    event = join(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id="m",
        group_instance_id="i",
        protocol_type="consumer",
        protocols=[pb.JoinGroupProtocol(name="range", metadata=b"\x01")],
        reason="why not",
        client_id="c",
    )
    assert event == events.JoinGroup(
        7, "g", "m", "i", "c", "10.0.0.1", 10_000, 60_000, "consumer", (Protocol("range", b"\x01"),), "f", "why not"
    )


@pytest.mark.parametrize("given", [0, -1])
def test_a_join_without_rebalance_timeout_takes_the_session_timeout(given: int) -> None:
    assert join(group_id="g", rebalance_timeout_ms=given).rebalance_timeout_ms == -1


def test_an_empty_group_id_is_the_cores_to_refuse() -> None:
    assert join(group_id="").group_id == ""


def test_an_absent_instance_id_means_a_dynamic_member() -> None:
    assert join(group_id="g").group_instance_id is None


def committed(request: pb.OffsetCommitRequest) -> events.OffsetCommit:
    return group_requests.parse_offset_commit(request, 1, client_host="h")


def test_who_commits_without_being_a_member_is_named() -> None:
    assert committed(pb.OffsetCommitRequest(group_id="g", member_id="m")).operator == ""
    simple = committed(pb.OffsetCommitRequest(group_id="g"))
    assert (simple.operator, simple.by_tool) == ("operator at h", False)
    tool = committed(pb.OffsetCommitRequest(group_id="g", include_zookeeper=True, reason="a slip"))
    assert (tool.operator, tool.by_tool) == ("operator at h (a slip)", True)


def test_a_commit_without_generation_is_a_simple_one() -> None:
    request = pb.OffsetCommitRequest(
        group_id="g",
        topics=[
            pb.OffsetCommitTopic(
                name="t",
                partitions=[
                    pb.OffsetCommitPartition(partition_index=3, committed_offset=5),
                    pb.OffsetCommitPartition(partition_index=1, committed_offset=6, committed_leader_epoch=0),
                ],
            )
        ],
    )
    event = committed(request)
    assert event.generation == -1
    assert event.offsets == {("t", 3): CommittedOffset(5, -1, ""), ("t", 1): CommittedOffset(6, 0, "")}


def test_generation_zero_is_not_the_same_as_none() -> None:
    event = committed(pb.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=0))
    assert event.generation == 0


def test_all_topics_asks_for_everything_and_no_topics_for_nothing() -> None:
    assert group_requests.parse_offset_fetch(pb.OffsetFetchRequest(group_id="g", all_topics=True), 1).partitions is None
    assert group_requests.parse_offset_fetch(pb.OffsetFetchRequest(group_id="g"), 1).partitions == ()


def test_a_sync_says_whether_the_protocol_is_to_be_checked() -> None:
    silent = group_requests.parse_sync_group(pb.SyncGroupRequest(group_id="g"), 1)
    telling = group_requests.parse_sync_group(
        pb.SyncGroupRequest(group_id="g", protocol_type="", protocol_name="range"), 1
    )
    assert (silent.protocol_type, silent.protocol_name) == (None, None)
    assert (telling.protocol_type, telling.protocol_name) == ("", "range")


@pytest.mark.parametrize(("said", "meant"), [("r1", "r1"), ("", None)])
def test_a_registration_says_where_its_member_runs(said: str, meant: str | None) -> None:
    told = pb.RegisterConsumer(group_id="g", member_id="m", assignor="range", topics=["t"], rack_id=said)
    event = central_groups.parse_registration(told, 1, client_host="here", client_software="", stream=0)
    assert event.rack_id == meant
    told.rack_id = "r" * (request_limits.MAX_NAME_CHARS + 1)
    with pytest.raises(MalformedGroupRequest, match="rack_id"):
        central_groups.parse_registration(told, 1, client_host="here", client_software="", stream=0)


def test_a_removal_of_nobody_in_particular_means_everyone() -> None:
    everyone = group_requests.parse_remove_members(
        pb.RemoveMembersRequest(group_id="g", reason="drill"), 1, client_host="h"
    )
    someone = group_requests.parse_remove_members(
        pb.RemoveMembersRequest(group_id="g", members=[pb.MemberIdentity(group_instance_id="i")]), 1, client_host="h"
    )
    assert (everyone.everyone, everyone.operator) == (True, "operator at h (drill)")
    assert (someone.everyone, someone.operator) == (False, "operator at h")
    assert someone.members == (MemberIdentity("", "i", ""),)


def test_leaving_is_nobodys_order() -> None:
    event = group_requests.parse_leave_group(
        pb.LeaveGroupRequest(group_id="g", members=[pb.MemberIdentity(member_id="m")]), 1
    )
    assert (event.operator, event.everyone) == ("", False)


def positions(*pairs: tuple[int, int], **more: Any) -> pb.OffsetCommitRequest:
    partitions = [pb.OffsetCommitPartition(partition_index=p, committed_offset=o, **more) for p, o in pairs]
    return pb.OffsetCommitRequest(group_id="g", topics=[pb.OffsetCommitTopic(name="t", partitions=partitions)])


def protocols(*names: str) -> pb.JoinGroupRequest:
    return pb.JoinGroupRequest(group_id="g", protocols=[pb.JoinGroupProtocol(name=name) for name in names])


def joined(request: pb.JoinGroupRequest) -> events.JoinGroup:
    return group_requests.parse_join_group(request, 1, fresh_id="f", client_host="h")


def asked(request: pb.OffsetFetchRequest) -> events.OffsetFetch:
    return group_requests.parse_offset_fetch(request, 1)


def topic(name: str, *partitions: int) -> pb.OffsetFetchRequest:
    return pb.OffsetFetchRequest(
        group_id="g", topics=[pb.OffsetFetchTopic(name=name, partition_indexes=list(partitions))]
    )


def altered(text: str) -> events.AlterSettings:
    request = pb.AlterGroupSettingsRequest(group_id="g", set={"assignor.options": text})
    return group_requests.parse_alter_settings(request, 1, client_host="h")


LONG = "x" * (request_limits.MAX_NAME_CHARS + 1)

MALFORMED: list[tuple[Callable[[], object], str]] = [
    (lambda: join(group_id="g", session_timeout_ms=-1), "session_timeout_ms is -1; expected 0 or more"),
    (lambda: join(group_id="g", rebalance_timeout_ms=-2), "rebalance_timeout_ms is -2; expected -1 or more"),
    (lambda: join(group_id="g", group_instance_id=""), "group_instance_id is set but empty; leave it out"),
    (lambda: join(group_id=LONG), f"group_id has {len(LONG)} characters; at most {request_limits.MAX_NAME_CHARS}"),
    (lambda: join(group_id="g", client_id=LONG), "client_id has 4097 characters"),
    (lambda: join(group_id="g", reason=LONG), "reason has 4097 characters"),
    (lambda: joined(protocols("range", "range")), "protocols names 'range' twice"),
    (lambda: joined(protocols("")), "protocols.name is empty"),
    (lambda: joined(protocols(*map(str, range(101)))), "protocols has 101 entries; at most 100"),
    (lambda: committed(positions((-1, 0))), "partition_index is -1; expected 0 or more"),
    (lambda: committed(positions((0, -5))), "committed_offset is -5; expected 0 or more"),
    (
        lambda: committed(positions((0, 5), committed_leader_epoch=-2)),
        "committed_leader_epoch is -2; expected -1 or more",
    ),
    (lambda: committed(positions((4, 1), (4, 2))), "topics names t-4 twice"),
    (lambda: asked(topic("t", 1, 1)), "topics names t-1 twice"),
    (lambda: asked(topic("t", -1)), "partition_indexes is -1"),
    (lambda: asked(topic("", 1)), "topics.name is empty"),
    (lambda: altered("{"), "assignor.options is not JSON"),
    (lambda: altered("1" * 65_537), "assignor.options has 65537 characters; at most 65536"),
    (
        lambda: group_requests.parse_explain_group(pb.ExplainGroupRequest(limit=-1), 1),
        "limit is -1; expected 0 or more",
    ),
    (lambda: group_requests.parse_group_ids("groups", ["a", "b", "a"]), "groups names 'a' twice"),
    (lambda: group_requests.parse_list_groups(pb.ListGroupsRequest(states_filter=[""]), 1), "states_filter is empty"),
    (
        lambda: group_requests.parse_sync_group(
            pb.SyncGroupRequest(assignments=[pb.SyncGroupAssignment(member_id="m")] * 2), 1
        ),
        "assignments names 'm' twice",
    ),
    (
        lambda: group_requests.parse_leave_group(
            pb.LeaveGroupRequest(members=[pb.MemberIdentity(member_id="m")] * 2), 1
        ),
        "members names m- twice",
    ),
    (
        lambda: group_requests.parse_heartbeat(pb.HeartbeatRequest(group_instance_id=""), 1),
        "group_instance_id is set but empty",
    ),
]


@pytest.mark.parametrize(("attempt", "text"), MALFORMED, ids=[text for _, text in MALFORMED])
def test_a_broken_shape_is_named(attempt: Callable[[], object], text: str) -> None:
    with pytest.raises(MalformedGroupRequest) as refusal:
        attempt()
    assert str(refusal.value).startswith(text)
    assert refusal.value.field == text.split()[0]


def test_what_a_client_sent_is_quoted_in_short() -> None:
    with pytest.raises(MalformedGroupRequest) as refusal:
        group_requests.parse_group_ids("groups", ["y" * 4000] * 2)
    assert len(str(refusal.value)) < 200
