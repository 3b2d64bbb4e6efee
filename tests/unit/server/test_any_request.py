"""Whatever a client sends is answered, parked or refused as malformed: no message breaks a shard."""

from collections.abc import Callable
from functools import partial
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.types import Limits, RequestId
from muster.coordinator.core.shard import Shard
from muster.coordinator.edge.request_limits import MAX_NAME_CHARS, MalformedGroupRequest
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import control_service_pb2 as control_pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.runtime.engine import Engine, EngineOptions
from muster.coordinator.server.services import group_control, group_requests, group_responses
from tests.fakes.memory_group_log import MemoryGroupLog

Translate = Callable[[Any, RequestId], events.Request]

# Small pools, so that requests meet the same groups, members and topics; and what is at the edge of the allowed.
WORDS = ["", "g", "c", "c-1", "c-2", "consumer", "range", "t", "é😀", "x" * MAX_NAME_CHARS, "x" * (MAX_NAME_CHARS + 1)]
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff\x00\x00\x00\x00"
BLOBS = [b"", b"\x00", SUBSCRIPTION, SUBSCRIPTION[:-3], b"\xff" * 40, b'{"version": 1}']
INT32 = st.sampled_from([0, 1, 1, 1, 2, -1, 6_000, 10_000, 60_000, 2**31 - 1, -(2**31)])
INT64 = st.sampled_from([0, 1, 7, -1, 2**63 - 1, -(2**63)])
VALUES: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_STRING: st.sampled_from(WORDS),
    FieldDescriptor.TYPE_BYTES: st.sampled_from(BLOBS),
    FieldDescriptor.TYPE_INT32: INT32,
    FieldDescriptor.TYPE_INT64: INT64,
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_ENUM: st.sampled_from([0, 1, 2, 3, 99]),
}
SETTINGS = ["assignor.options", "assignor", ""]
LIKELY = {"group_id": st.sampled_from(["g", "g", "g", "h", ""]), "client_id": st.sampled_from(["c", "", "é"])}


def messages(kind: type[Message]) -> st.SearchStrategy[Message]:
    """Any message of the type, by its descriptor."""
    fields = {field.name: value_of(field) for field in kind.DESCRIPTOR.fields}
    return st.fixed_dictionaries({}, optional=fields).map(lambda given: kind(**given))


def value_of(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.name in LIKELY:
        return LIKELY[field.name]
    if field.message_type and field.message_type.GetOptions().map_entry:
        return st.dictionaries(
            st.sampled_from(SETTINGS), st.sampled_from(['{"seed": 1}', "{}", "[", "null"]), max_size=2
        )
    single = messages(field.message_type._concrete_class) if field.message_type else VALUES[field.type]
    return st.lists(single, max_size=3) if field.is_repeated else single


def join(request: pb.JoinGroupRequest, request_id: RequestId) -> events.Request:
    return group_requests.parse_join_group(request, request_id, fresh_id=str(1 + request_id % 2), client_host="h")


def remove(request: pb.RemoveMembersRequest, request_id: RequestId) -> events.Request:
    return group_requests.parse_remove_members(request, request_id, client_host="h")


def consumer(request: pb.ConsumerGroupHeartbeatRequest, request_id: RequestId) -> events.Request:
    return group_requests.parse_consumer_heartbeat(request, request_id, client_host="h")


def alter(request: pb.AlterGroupSettingsRequest, request_id: RequestId) -> events.Request:
    return group_requests.parse_alter_settings(request, request_id, client_host="h")


REQUESTS: dict[type[Message], Translate] = {
    pb.JoinGroupRequest: join,
    pb.SyncGroupRequest: group_requests.parse_sync_group,
    pb.HeartbeatRequest: group_requests.parse_heartbeat,
    pb.LeaveGroupRequest: group_requests.parse_leave_group,
    pb.RemoveMembersRequest: remove,
    pb.OffsetCommitRequest: partial(group_requests.parse_offset_commit, client_host="h"),
    pb.OffsetFetchRequest: group_requests.parse_offset_fetch,
    pb.OffsetDeleteRequest: partial(group_requests.parse_offset_delete, client_host="h"),
    pb.ListGroupsRequest: group_requests.parse_list_groups,
    pb.ExplainGroupRequest: group_requests.parse_explain_group,
    pb.ConsumerGroupHeartbeatRequest: consumer,
    pb.AlterGroupSettingsRequest: alter,
    control_pb.HoldGroupRequest: lambda request, at: group_control.parse_hold_group(request, at, client_host="h"),
    control_pb.ResumeGroupRequest: lambda request, at: group_control.parse_resume_group(request, at, client_host="h"),
}

SAID: dict[type[Any], Callable[[Any], Message]] = {
    effects.JoinReply: group_responses.build_join_response,
    effects.SyncReply: group_responses.build_sync_response,
    effects.HeartbeatReply: group_responses.build_heartbeat_response,
    effects.LeaveReply: group_responses.build_leave_response,
    effects.OffsetCommitReply: lambda reply: group_responses.build_commit_response(dict(reply.partitions), reply),
    effects.OffsetFetchReply: group_responses.build_offset_fetch_response,
    effects.OffsetDeleteReply: group_responses.build_offset_delete_response,
    effects.ListReply: lambda reply: pb.ListGroupsResponse(
        groups=map(group_responses.build_listed_group, reply.groups)
    ),
    effects.ConsumerHeartbeatReply: group_responses.build_consumer_heartbeat_response,
    effects.SettingsReply: group_responses.build_altered_settings,
    effects.HoldsReply: group_control.build_hold_response,
    effects.ExplainReply: lambda reply: group_responses.build_explanation("g", reply, with_snapshots=True, room=100),
}


def joining(member_id: str) -> pb.JoinGroupRequest:
    return pb.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[pb.JoinGroupProtocol(name="range", metadata=SUBSCRIPTION)],
        client_id="c",
    )


def syncing(generation: int) -> pb.SyncGroupRequest:
    plan = [pb.SyncGroupAssignment(member_id="c-1", assignment=SUBSCRIPTION)]
    return pb.SyncGroupRequest(group_id="g", generation_id=generation, member_id="c-1", assignments=plan)


def beating(member_id: str, epoch: int) -> pb.ConsumerGroupHeartbeatRequest:
    return pb.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        group_instance_id="i" if epoch == -2 else None,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=pb.SubscribedTopicNames(names=["t"]),
        topic_partitions=pb.ConsumerAssignment(),
    )


# A group's plausible life; oddities begin somewhere in it. Member ids follow from the request's number, see `join`.
LIFE = [joining(""), joining("c-1"), syncing(1), joining(""), joining("c-2"), joining("c-1"), syncing(2)]
BEATS = [beating("m", 0), beating("m", 2), beating("n", 0), beating("n", 3), beating("m", -1), beating("n", -2)]
ANYTHING = st.one_of(st.sampled_from(LIFE), st.sampled_from(BEATS), *(messages(kind) for kind in REQUESTS))
STORIES = st.builds(
    lambda begun, more: [*((request, 0) for request in LIFE[:begun]), *more],
    st.integers(0, len(LIFE)),
    st.lists(st.tuples(ANYTHING, st.sampled_from([0, 1, 100, 10_001])), max_size=15),
)


@settings(max_examples=150, deadline=None)
@given(STORIES)
def test_no_message_breaks_a_shard(story: list[tuple[Message, int]]) -> None:
    bugs: list[tuple[str, Exception]] = []
    log = MemoryGroupLog(1)
    engine = Engine(
        log,
        1,
        Limits(initial_rebalance_delay_ms=0),
        Shard,
        options=EngineOptions(on_bug=lambda event, error: bugs.append((event, error))),
    )
    engine.submit_all(events.TopicsChanged({"t": 3}, ids={"t": b"t" * 16}))
    engine.load(0)
    now_ms, open_requests = 0, set()
    for request_id, (request, pause_ms) in enumerate(story):
        try:
            event = REQUESTS[type(request)](request, request_id)
        except MalformedGroupRequest:
            continue
        now_ms += pause_ms
        assert engine.submit(0, event)
        open_requests.add(request_id)
        engine.turn(now_ms)
        if job := engine.flush_job():
            job.run()
            engine.flushed(job)
        for answered, reply in engine.take_released().replies:
            open_requests.remove(answered)
            SAID[type(reply)](reply).SerializeToString()
            assert reply.code is not ErrorCode.UNKNOWN_SERVER_ERROR
    assert bugs == []
    waiting = {type(story[request_id][0]) for request_id in open_requests}
    assert waiting <= {pb.JoinGroupRequest, pb.SyncGroupRequest}
