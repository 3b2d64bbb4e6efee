"""Protobuf requests to core events: the shape is checked here, the meaning by the core. Pure.

Each function takes the request and the token that its answer will carry. MalformedRequest says what breaks the shape.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

from muster.coordinator.core.model import core_events
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import CommittedOffset, MemberIdentity, Protocol, RequestId
from muster.coordinator.edge import shape
from muster.coordinator.edge.shape import MalformedGroupRequest
from muster.coordinator.edge.words import name_operator, parse_json_setting
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

AS_SESSION_TIMEOUT = -1

NO_GENERATION = -1
NO_EPOCH = -1

COUNTED_TOPICS = 1_000
"""A request with more topics is large whatever they name."""


def parse_join_group(
    request: pb.JoinGroupRequest,
    request_id: RequestId,
    *,
    fresh_id: str,
    client_host: str,
    client_software: str = "",
    rights: Rights = None,
) -> core_events.JoinGroup:
    """`rebalance_timeout_ms` left out (0) or -1 means: as the session timeout."""
    shape.check_at_most("protocols", len(request.protocols), shape.MAX_PROTOCOLS)
    protocols = tuple(
        Protocol(shape.check_filled_name("protocols.name", p.name), p.metadata) for p in request.protocols
    )
    shape.check_distinct("protocols", (p.name for p in protocols))
    rebalance_timeout_ms = shape.check_at_least(
        "rebalance_timeout_ms", request.rebalance_timeout_ms, AS_SESSION_TIMEOUT
    )
    return core_events.JoinGroup(
        request_id=request_id,
        group_id=shape.check_name("group_id", request.group_id),
        member_id=shape.check_name("member_id", request.member_id),
        group_instance_id=parse_instance_id(request),
        client_id=shape.check_name("client_id", request.client_id),
        client_host=client_host,
        session_timeout_ms=shape.check_at_least("session_timeout_ms", request.session_timeout_ms, 0),
        rebalance_timeout_ms=rebalance_timeout_ms or AS_SESSION_TIMEOUT,
        protocol_type=shape.check_name("protocol_type", request.protocol_type),
        protocols=protocols,
        fresh_id=fresh_id,
        reason=shape.check_reason("reason", request.reason),
        remote_assignor=shape.check_name("remote_assignor", request.remote_assignor),
        client_software=client_software,
        rights=rights,
    )


def parse_sync_group(request: pb.SyncGroupRequest, request_id: RequestId) -> core_events.SyncGroup:
    shape.check_at_most("assignments", len(request.assignments), shape.MAX_MEMBERS)
    assignments = tuple(
        (shape.check_filled_name("assignments.member_id", a.member_id), a.assignment) for a in request.assignments
    )
    shape.check_distinct("assignments", (member_id for member_id, _ in assignments))
    return core_events.SyncGroup(
        request_id=request_id,
        group_id=shape.check_name("group_id", request.group_id),
        member_id=shape.check_name("member_id", request.member_id),
        group_instance_id=parse_instance_id(request),
        generation=request.generation_id,
        protocol_type=request.protocol_type if request.HasField("protocol_type") else None,
        protocol_name=request.protocol_name if request.HasField("protocol_name") else None,
        assignments=assignments,
        snapshot=request.snapshot,
        leader_state=shape.check_leader_state("leader_state", request.leader_state),
        scheduled_delay_ms=shape.check_at_least("scheduled_delay_ms", request.scheduled_delay_ms, 0),
    )


def parse_heartbeat(
    request: pb.HeartbeatRequest, request_id: RequestId, rights: Rights = None
) -> core_events.Heartbeat:
    return core_events.Heartbeat(
        request_id,
        shape.check_name("group_id", request.group_id),
        shape.check_name("member_id", request.member_id),
        parse_instance_id(request),
        request.generation_id,
        rights,
    )


def parse_leave_group(request: pb.LeaveGroupRequest, request_id: RequestId) -> core_events.LeaveGroup:
    members = parse_member_identities(request.members)
    return core_events.LeaveGroup(request_id, shape.check_name("group_id", request.group_id), members)


def parse_remove_members(
    request: pb.RemoveMembersRequest, request_id: RequestId, *, client_host: str
) -> core_events.LeaveGroup:
    """An operator's removal; an empty list means every member."""
    reason = shape.check_reason("reason", request.reason)
    return core_events.LeaveGroup(
        request_id,
        shape.check_name("group_id", request.group_id),
        parse_member_identities(request.members),
        operator=name_operator(client_host, reason),
        everyone=not request.members,
    )


def parse_alter_settings(
    request: pb.AlterGroupSettingsRequest, request_id: RequestId, *, client_host: str
) -> core_events.AlterSettings:
    reason = shape.check_reason("reason", request.reason)
    shape.check_at_most("set", len(request.set), shape.MAX_SETTINGS)
    shape.check_at_most("unset", len(request.unset), shape.MAX_SETTINGS)
    return core_events.AlterSettings(
        request_id,
        shape.check_name("group_id", request.group_id),
        {
            shape.check_name("set", name): parse_json_setting(name, text, MalformedGroupRequest)
            for name, text in sorted(request.set.items())
        },
        tuple(shape.check_name("unset", name) for name in request.unset),
        request.expected_version if request.HasField("expected_version") else None,
        request.validate_only,
        operator=name_operator(client_host, reason),
    )


def parse_offset_commit(
    request: pb.OffsetCommitRequest, request_id: RequestId, *, client_host: str
) -> core_events.OffsetCommit:
    reason = shape.check_reason("reason", request.reason)
    offsets = tuple(parse_committed_offsets(request.topics))
    shape.check_at_most("topics", len(offsets), shape.MAX_PARTITIONS)
    shape.check_distinct("topics", (place for place, _ in offsets))
    has_generation = request.HasField("generation_id_or_member_epoch")
    return core_events.OffsetCommit(
        request_id=request_id,
        group_id=shape.check_name("group_id", request.group_id),
        member_id=shape.check_name("member_id", request.member_id),
        group_instance_id=parse_instance_id(request),
        generation=request.generation_id_or_member_epoch if has_generation else NO_GENERATION,
        offsets=dict(offsets),
        operator="" if request.member_id else name_operator(client_host, reason),
        by_tool=request.include_zookeeper,
    )


def parse_offset_fetch(request: pb.OffsetFetchRequest, request_id: RequestId) -> core_events.OffsetFetch:
    return core_events.OffsetFetch(
        request_id,
        shape.check_name("group_id", request.group_id),
        None if request.all_topics else list_named_partitions(request.topics),
        request.require_stable,
        request.member_id or None,
        request.member_epoch if request.HasField("member_epoch") else NO_EPOCH,
    )


def parse_offset_delete(
    request: pb.OffsetDeleteRequest, request_id: RequestId, *, client_host: str
) -> core_events.OffsetDelete:
    reason = shape.check_reason("reason", request.reason)
    return core_events.OffsetDelete(
        request_id,
        shape.check_name("group_id", request.group_id),
        list_named_partitions(request.topics),
        operator=name_operator(client_host, reason),
    )


def parse_list_groups(request: pb.ListGroupsRequest, request_id: RequestId) -> core_events.ListGroups:
    for field, words in (("states_filter", request.states_filter), ("types_filter", request.types_filter)):
        shape.check_at_most(field, len(words), shape.MAX_FILTERS)
        for word in words:
            shape.check_filled_name(field, word)
    return core_events.ListGroups(request_id, tuple(request.states_filter), tuple(request.types_filter))


def parse_group_ids(field: str, names: Iterable[str]) -> tuple[str, ...]:
    """The group ids of a request about several groups; none twice."""
    groups = tuple(shape.check_name(field, group_id) for group_id in names)
    shape.check_at_most(field, len(groups), shape.MAX_GROUPS)
    shape.check_distinct(field, groups)
    return groups


def parse_explain_group(request: pb.ExplainGroupRequest, request_id: RequestId) -> core_events.ExplainGroup:
    return core_events.ExplainGroup(
        request_id,
        shape.check_name("group_id", request.group_id),
        shape.check_at_least("limit", request.limit, 0),
        shape.check_at_least("generation_id", request.generation_id, 0),
    )


def parse_instance_id(
    request: pb.JoinGroupRequest | pb.SyncGroupRequest | pb.HeartbeatRequest | pb.OffsetCommitRequest,
) -> str | None:
    return shape.check_instance_id(
        "group_instance_id", request.HasField("group_instance_id"), request.group_instance_id
    )


def parse_member_identities(members: Iterable[pb.MemberIdentity]) -> tuple[MemberIdentity, ...]:
    """Who is to go. A member without either id names nobody."""
    found = tuple(
        MemberIdentity(
            shape.check_name("members.member_id", member.member_id),
            shape.check_instance_id(
                "members.group_instance_id", member.HasField("group_instance_id"), member.group_instance_id
            ),
            shape.check_reason("members.reason", member.reason),
        )
        for member in members
    )
    shape.check_at_most("members", len(found), shape.MAX_MEMBERS)
    shape.check_distinct("members", ((m.member_id, m.group_instance_id or "") for m in found))
    return found


def parse_committed_offsets(
    topics: Iterable[pb.OffsetCommitTopic],
) -> Iterator[tuple[tuple[str, int], CommittedOffset]]:
    for topic in topics:
        topic_name = shape.check_filled_name("topics.name", topic.name)
        for position in topic.partitions:
            partition = shape.check_at_least("partition_index", position.partition_index, 0)
            yield (topic_name, partition), parse_committed_offset(position)


def parse_committed_offset(position: pb.OffsetCommitPartition) -> CommittedOffset:
    metadata = shape.check_metadata("committed_metadata", position.committed_metadata)
    has_epoch = position.HasField("committed_leader_epoch")
    return CommittedOffset(
        shape.check_at_least("committed_offset", position.committed_offset, 0),
        shape.check_at_least("committed_leader_epoch", position.committed_leader_epoch, NO_EPOCH)
        if has_epoch
        else NO_EPOCH,
        metadata,
    )


def count_partitions(topics: Sequence[pb.OffsetFetchTopic] | Sequence[pb.OffsetCommitTopic]) -> int:
    """How many partitions they name; of topics beyond COUNTED_TOPICS only one each is counted."""
    counted = topics[:COUNTED_TOPICS]
    named = (each.partitions if isinstance(each, pb.OffsetCommitTopic) else each.partition_indexes for each in counted)
    return sum(map(len, named)) + len(topics) - len(counted)


def list_partitions(topic: pb.OffsetFetchTopic) -> Iterator[tuple[str, int]]:
    """Of a topic that is looked at once, however many of its partitions are named."""
    name, numbers = shape.check_filled_name("topics.name", topic.name), topic.partition_indexes
    shape.check_at_least("partition_indexes", min(numbers, default=0), 0)
    return zip(repeat(name), numbers)


def list_named_partitions(topics: Iterable[pb.OffsetFetchTopic]) -> tuple[tuple[str, int], ...]:
    named = tuple(chain.from_iterable(map(list_partitions, topics)))
    shape.check_at_most("topics", len(named), shape.MAX_PARTITIONS)
    shape.check_distinct("topics", named)
    return named
