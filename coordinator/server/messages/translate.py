"""Protobuf requests to core events: the shape is checked here, the meaning by the core. Pure.

Each function takes the request and the token that its answer will carry. MalformedRequest says what breaks the shape.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

from muster.coordinator.core import events
from muster.coordinator.core.rights import Rights
from muster.coordinator.core.types import CommittedOffset, MemberIdentity, Protocol, RequestId
from muster.coordinator.edge.words import json_value, operator
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.messages import shape
from muster.coordinator.server.messages.shape import MalformedRequest

AS_SESSION_TIMEOUT = -1

NO_GENERATION = -1
NO_EPOCH = -1

COUNTED_TOPICS = 1_000
"""A request with more topics is large whatever they name."""


def join_group(
    request: pb.JoinGroupRequest,
    request_id: RequestId,
    *,
    fresh_id: str,
    client_host: str,
    client_software: str = "",
    rights: Rights = None,
) -> events.JoinGroup:
    """`rebalance_timeout_ms` left out (0) or -1 means: as the session timeout."""
    shape.at_most("protocols", len(request.protocols), shape.MAX_PROTOCOLS)
    protocols = tuple(Protocol(shape.filled("protocols.name", p.name), p.metadata) for p in request.protocols)
    shape.distinct("protocols", (p.name for p in protocols))
    rebalance_timeout_ms = shape.at_least("rebalance_timeout_ms", request.rebalance_timeout_ms, AS_SESSION_TIMEOUT)
    return events.JoinGroup(
        request_id=request_id,
        group_id=shape.name("group_id", request.group_id),
        member_id=shape.name("member_id", request.member_id),
        group_instance_id=instance_id(request),
        client_id=shape.name("client_id", request.client_id),
        client_host=client_host,
        session_timeout_ms=shape.at_least("session_timeout_ms", request.session_timeout_ms, 0),
        rebalance_timeout_ms=rebalance_timeout_ms or AS_SESSION_TIMEOUT,
        protocol_type=shape.name("protocol_type", request.protocol_type),
        protocols=protocols,
        fresh_id=fresh_id,
        reason=shape.reason("reason", request.reason),
        remote_assignor=shape.name("remote_assignor", request.remote_assignor),
        client_software=client_software,
        rights=rights,
    )


def sync_group(request: pb.SyncGroupRequest, request_id: RequestId) -> events.SyncGroup:
    shape.at_most("assignments", len(request.assignments), shape.MAX_MEMBERS)
    assignments = tuple((shape.filled("assignments.member_id", a.member_id), a.assignment) for a in request.assignments)
    shape.distinct("assignments", (member_id for member_id, _ in assignments))
    return events.SyncGroup(
        request_id=request_id,
        group_id=shape.name("group_id", request.group_id),
        member_id=shape.name("member_id", request.member_id),
        group_instance_id=instance_id(request),
        generation=request.generation_id,
        protocol_type=request.protocol_type if request.HasField("protocol_type") else None,
        protocol_name=request.protocol_name if request.HasField("protocol_name") else None,
        assignments=assignments,
        snapshot=request.snapshot,
        leader_state=shape.leader_state("leader_state", request.leader_state),
        scheduled_delay_ms=shape.at_least("scheduled_delay_ms", request.scheduled_delay_ms, 0),
    )


def heartbeat(request: pb.HeartbeatRequest, request_id: RequestId, rights: Rights = None) -> events.Heartbeat:
    return events.Heartbeat(
        request_id,
        shape.name("group_id", request.group_id),
        shape.name("member_id", request.member_id),
        instance_id(request),
        request.generation_id,
        rights,
    )


def leave_group(request: pb.LeaveGroupRequest, request_id: RequestId) -> events.LeaveGroup:
    members = identities(request.members)
    return events.LeaveGroup(request_id, shape.name("group_id", request.group_id), members)


def remove_members(request: pb.RemoveMembersRequest, request_id: RequestId, *, client_host: str) -> events.LeaveGroup:
    """An operator's removal; an empty list means every member."""
    reason = shape.reason("reason", request.reason)
    return events.LeaveGroup(
        request_id,
        shape.name("group_id", request.group_id),
        identities(request.members),
        operator=operator(client_host, reason),
        everyone=not request.members,
    )


def alter_settings(
    request: pb.AlterGroupSettingsRequest, request_id: RequestId, *, client_host: str
) -> events.AlterSettings:
    reason = shape.reason("reason", request.reason)
    shape.at_most("set", len(request.set), shape.MAX_SETTINGS)
    shape.at_most("unset", len(request.unset), shape.MAX_SETTINGS)
    return events.AlterSettings(
        request_id,
        shape.name("group_id", request.group_id),
        {
            shape.name("set", name): json_value(name, text, MalformedRequest)
            for name, text in sorted(request.set.items())
        },
        tuple(shape.name("unset", name) for name in request.unset),
        request.expected_version if request.HasField("expected_version") else None,
        request.validate_only,
        operator=operator(client_host, reason),
    )


def offset_commit(request: pb.OffsetCommitRequest, request_id: RequestId, *, client_host: str) -> events.OffsetCommit:
    reason = shape.reason("reason", request.reason)
    offsets = tuple(committed_offsets(request.topics))
    shape.at_most("topics", len(offsets), shape.MAX_PARTITIONS)
    shape.distinct("topics", (place for place, _ in offsets))
    has_generation = request.HasField("generation_id_or_member_epoch")
    return events.OffsetCommit(
        request_id=request_id,
        group_id=shape.name("group_id", request.group_id),
        member_id=shape.name("member_id", request.member_id),
        group_instance_id=instance_id(request),
        generation=request.generation_id_or_member_epoch if has_generation else NO_GENERATION,
        offsets=dict(offsets),
        operator="" if request.member_id else operator(client_host, reason),
        by_tool=request.include_zookeeper,
    )


def offset_fetch(request: pb.OffsetFetchRequest, request_id: RequestId) -> events.OffsetFetch:
    return events.OffsetFetch(
        request_id,
        shape.name("group_id", request.group_id),
        None if request.all_topics else named_partitions(request.topics),
        request.require_stable,
        request.member_id or None,
        request.member_epoch if request.HasField("member_epoch") else NO_EPOCH,
    )


def offset_delete(request: pb.OffsetDeleteRequest, request_id: RequestId, *, client_host: str) -> events.OffsetDelete:
    reason = shape.reason("reason", request.reason)
    return events.OffsetDelete(
        request_id,
        shape.name("group_id", request.group_id),
        named_partitions(request.topics),
        operator=operator(client_host, reason),
    )


def list_groups(request: pb.ListGroupsRequest, request_id: RequestId) -> events.ListGroups:
    for field, words in (("states_filter", request.states_filter), ("types_filter", request.types_filter)):
        shape.at_most(field, len(words), shape.MAX_FILTERS)
        for word in words:
            shape.filled(field, word)
    return events.ListGroups(request_id, tuple(request.states_filter), tuple(request.types_filter))


def group_names(field: str, names: Iterable[str]) -> tuple[str, ...]:
    """The group ids of a request about several groups; none twice."""
    groups = tuple(shape.name(field, group_id) for group_id in names)
    shape.at_most(field, len(groups), shape.MAX_GROUPS)
    shape.distinct(field, groups)
    return groups


def explain_group(request: pb.ExplainGroupRequest, request_id: RequestId) -> events.ExplainGroup:
    return events.ExplainGroup(
        request_id,
        shape.name("group_id", request.group_id),
        shape.at_least("limit", request.limit, 0),
        shape.at_least("generation_id", request.generation_id, 0),
    )


def instance_id(
    request: pb.JoinGroupRequest | pb.SyncGroupRequest | pb.HeartbeatRequest | pb.OffsetCommitRequest,
) -> str | None:
    return shape.instance_id("group_instance_id", request.HasField("group_instance_id"), request.group_instance_id)


def identities(members: Iterable[pb.MemberIdentity]) -> tuple[MemberIdentity, ...]:
    """Who is to go. A member without either id names nobody."""
    found = tuple(
        MemberIdentity(
            shape.name("members.member_id", member.member_id),
            shape.instance_id(
                "members.group_instance_id", member.HasField("group_instance_id"), member.group_instance_id
            ),
            shape.reason("members.reason", member.reason),
        )
        for member in members
    )
    shape.at_most("members", len(found), shape.MAX_MEMBERS)
    shape.distinct("members", ((m.member_id, m.group_instance_id or "") for m in found))
    return found


def committed_offsets(topics: Iterable[pb.OffsetCommitTopic]) -> Iterator[tuple[tuple[str, int], CommittedOffset]]:
    for topic in topics:
        topic_name = shape.filled("topics.name", topic.name)
        for position in topic.partitions:
            partition = shape.at_least("partition_index", position.partition_index, 0)
            yield (topic_name, partition), committed(position)


def committed(position: pb.OffsetCommitPartition) -> CommittedOffset:
    metadata = shape.metadata("committed_metadata", position.committed_metadata)
    has_epoch = position.HasField("committed_leader_epoch")
    return CommittedOffset(
        shape.at_least("committed_offset", position.committed_offset, 0),
        shape.at_least("committed_leader_epoch", position.committed_leader_epoch, NO_EPOCH) if has_epoch else NO_EPOCH,
        metadata,
    )


def rows_of(topics: Sequence[pb.OffsetFetchTopic] | Sequence[pb.OffsetCommitTopic]) -> int:
    """How many partitions they name; of topics beyond COUNTED_TOPICS only one each is counted."""
    counted = topics[:COUNTED_TOPICS]
    named = (each.partitions if isinstance(each, pb.OffsetCommitTopic) else each.partition_indexes for each in counted)
    return sum(map(len, named)) + len(topics) - len(counted)


def partitions_of(topic: pb.OffsetFetchTopic) -> Iterator[tuple[str, int]]:
    """Of a topic that is looked at once, however many of its partitions are named."""
    name, numbers = shape.filled("topics.name", topic.name), topic.partition_indexes
    shape.at_least("partition_indexes", min(numbers, default=0), 0)
    return zip(repeat(name), numbers)


def named_partitions(topics: Iterable[pb.OffsetFetchTopic]) -> tuple[tuple[str, int], ...]:
    named = tuple(chain.from_iterable(map(partitions_of, topics)))
    shape.at_most("topics", len(named), shape.MAX_PARTITIONS)
    shape.distinct("topics", named)
    return named
