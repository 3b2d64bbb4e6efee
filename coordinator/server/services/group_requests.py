"""Protobuf requests about groups to core events: the shape is checked here, the meaning by the core. No I/O.

Each function takes the request and the token that its answer will carry; MalformedGroupRequest says what breaks the
shape. The second part parses the requests of KIP-848 groups, where an absent field means "unchanged" and an empty one
has a meaning of its own.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

from muster.coordinator.core.model import events
from muster.coordinator.core.model.records import Shares
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import CommittedOffset, MemberIdentity, Protocol, RequestId
from muster.coordinator.edge import request_limits
from muster.coordinator.edge.request_limits import MalformedGroupRequest, name_operator, parse_json_setting
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
    connection: int = 0,
) -> events.JoinGroup:
    """`rebalance_timeout_ms` left out (0) or -1 means: as the session timeout."""
    request_limits.check_at_most("protocols", len(request.protocols), request_limits.MAX_PROTOCOLS)
    protocols = tuple(
        Protocol(request_limits.check_filled_name("protocols.name", p.name), p.metadata) for p in request.protocols
    )
    request_limits.check_distinct("protocols", (p.name for p in protocols))
    rebalance_timeout_ms = request_limits.check_at_least(
        "rebalance_timeout_ms", request.rebalance_timeout_ms, AS_SESSION_TIMEOUT
    )
    return events.JoinGroup(
        request_id=request_id,
        group_id=request_limits.check_name("group_id", request.group_id),
        member_id=request_limits.check_name("member_id", request.member_id),
        group_instance_id=parse_instance_id(request),
        client_id=request_limits.check_name("client_id", request.client_id),
        client_host=client_host,
        session_timeout_ms=request_limits.check_at_least("session_timeout_ms", request.session_timeout_ms, 0),
        rebalance_timeout_ms=rebalance_timeout_ms or AS_SESSION_TIMEOUT,
        protocol_type=request_limits.check_name("protocol_type", request.protocol_type),
        protocols=protocols,
        fresh_id=fresh_id,
        reason=request_limits.check_reason("reason", request.reason),
        remote_assignor=request_limits.check_name("remote_assignor", request.remote_assignor),
        client_software=client_software,
        rights=rights,
        connection=connection,
    )


def parse_sync_group(request: pb.SyncGroupRequest, request_id: RequestId) -> events.SyncGroup:
    request_limits.check_at_most("assignments", len(request.assignments), request_limits.MAX_MEMBERS)
    assignments = tuple(
        (request_limits.check_filled_name("assignments.member_id", a.member_id), a.assignment)
        for a in request.assignments
    )
    request_limits.check_distinct("assignments", (member_id for member_id, _ in assignments))
    return events.SyncGroup(
        request_id=request_id,
        group_id=request_limits.check_name("group_id", request.group_id),
        member_id=request_limits.check_name("member_id", request.member_id),
        group_instance_id=parse_instance_id(request),
        generation=request.generation_id,
        protocol_type=request.protocol_type if request.HasField("protocol_type") else None,
        protocol_name=request.protocol_name if request.HasField("protocol_name") else None,
        assignments=assignments,
        snapshot=request.snapshot,
        leader_state=request_limits.check_leader_state("leader_state", request.leader_state),
        scheduled_delay_ms=request_limits.check_at_least("scheduled_delay_ms", request.scheduled_delay_ms, 0),
    )


def parse_heartbeat(request: pb.HeartbeatRequest, request_id: RequestId, rights: Rights = None) -> events.Heartbeat:
    return events.Heartbeat(
        request_id,
        request_limits.check_name("group_id", request.group_id),
        request_limits.check_name("member_id", request.member_id),
        parse_instance_id(request),
        request.generation_id,
        rights,
    )


def parse_leave_group(request: pb.LeaveGroupRequest, request_id: RequestId) -> events.LeaveGroup:
    members = parse_member_identities(request.members)
    return events.LeaveGroup(request_id, request_limits.check_name("group_id", request.group_id), members)


def parse_remove_members(
    request: pb.RemoveMembersRequest, request_id: RequestId, *, client_host: str
) -> events.LeaveGroup:
    """An operator's removal; an empty list means every member."""
    reason = request_limits.check_reason("reason", request.reason)
    return events.LeaveGroup(
        request_id,
        request_limits.check_name("group_id", request.group_id),
        parse_member_identities(request.members),
        operator=name_operator(client_host, reason),
        everyone=not request.members,
    )


def parse_alter_settings(
    request: pb.AlterGroupSettingsRequest, request_id: RequestId, *, client_host: str
) -> events.AlterSettings:
    reason = request_limits.check_reason("reason", request.reason)
    request_limits.check_at_most("set", len(request.set), request_limits.MAX_SETTINGS)
    request_limits.check_at_most("unset", len(request.unset), request_limits.MAX_SETTINGS)
    return events.AlterSettings(
        request_id,
        request_limits.check_name("group_id", request.group_id),
        {
            request_limits.check_name("set", name): parse_json_setting(name, text, MalformedGroupRequest)
            for name, text in sorted(request.set.items())
        },
        tuple(request_limits.check_name("unset", name) for name in request.unset),
        request.expected_version if request.HasField("expected_version") else None,
        request.validate_only,
        operator=name_operator(client_host, reason),
    )


def parse_offset_commit(
    request: pb.OffsetCommitRequest, request_id: RequestId, *, client_host: str
) -> events.OffsetCommit:
    reason = request_limits.check_reason("reason", request.reason)
    offsets = tuple(parse_committed_offsets(request.topics))
    request_limits.check_at_most("topics", len(offsets), request_limits.MAX_PARTITIONS)
    request_limits.check_distinct("topics", (place for place, _ in offsets))
    has_generation = request.HasField("generation_id_or_member_epoch")
    return events.OffsetCommit(
        request_id=request_id,
        group_id=request_limits.check_name("group_id", request.group_id),
        member_id=request_limits.check_name("member_id", request.member_id),
        group_instance_id=parse_instance_id(request),
        generation=request.generation_id_or_member_epoch if has_generation else NO_GENERATION,
        offsets=dict(offsets),
        operator="" if request.member_id else name_operator(client_host, reason),
        by_tool=request.include_zookeeper,
    )


def parse_txn_offset_commit(request: pb.TxnOffsetCommitRequest, request_id: RequestId) -> events.TxnOffsetCommit:
    offsets = tuple(parse_committed_offsets(request.topics))
    request_limits.check_at_most("topics", len(offsets), request_limits.MAX_PARTITIONS)
    request_limits.check_distinct("topics", (place for place, _ in offsets))
    has_generation = request.HasField("generation_id_or_member_epoch")
    return events.TxnOffsetCommit(
        request_id,
        request_limits.check_name("group_id", request.group_id),
        request_limits.check_name("member_id", request.member_id),
        parse_instance_id(request),
        request.generation_id_or_member_epoch if has_generation else NO_GENERATION,
        dict(offsets),
        request.producer_id,
        request.producer_epoch,
    )


def parse_offset_fetch(request: pb.OffsetFetchRequest, request_id: RequestId) -> events.OffsetFetch:
    return events.OffsetFetch(
        request_id,
        request_limits.check_name("group_id", request.group_id),
        None if request.all_topics else list_named_partitions(request.topics),
        request.require_stable,
        request.member_id or None,
        request.member_epoch if request.HasField("member_epoch") else NO_EPOCH,
    )


def parse_offset_delete(
    request: pb.OffsetDeleteRequest, request_id: RequestId, *, client_host: str
) -> events.OffsetDelete:
    reason = request_limits.check_reason("reason", request.reason)
    return events.OffsetDelete(
        request_id,
        request_limits.check_name("group_id", request.group_id),
        list_named_partitions(request.topics),
        operator=name_operator(client_host, reason),
    )


def parse_list_groups(request: pb.ListGroupsRequest, request_id: RequestId) -> events.ListGroups:
    for field, words in (("states_filter", request.states_filter), ("types_filter", request.types_filter)):
        request_limits.check_at_most(field, len(words), request_limits.MAX_FILTERS)
        for word in words:
            request_limits.check_filled_name(field, word)
    return events.ListGroups(request_id, tuple(request.states_filter), tuple(request.types_filter))


def parse_group_ids(field: str, names: Iterable[str]) -> tuple[str, ...]:
    """The group ids of a request about several groups; none twice."""
    groups = tuple(request_limits.check_name(field, group_id) for group_id in names)
    request_limits.check_at_most(field, len(groups), request_limits.MAX_GROUPS)
    request_limits.check_distinct(field, groups)
    return groups


def parse_explain_group(request: pb.ExplainGroupRequest, request_id: RequestId) -> events.ExplainGroup:
    return events.ExplainGroup(
        request_id,
        request_limits.check_name("group_id", request.group_id),
        request_limits.check_at_least("limit", request.limit, 0),
        request_limits.check_at_least("generation_id", request.generation_id, 0),
    )


def parse_instance_id(
    request: pb.JoinGroupRequest
    | pb.SyncGroupRequest
    | pb.HeartbeatRequest
    | pb.OffsetCommitRequest
    | pb.TxnOffsetCommitRequest,
) -> str | None:
    return request_limits.check_instance_id(
        "group_instance_id", request.HasField("group_instance_id"), request.group_instance_id
    )


def parse_member_identities(members: Iterable[pb.MemberIdentity]) -> tuple[MemberIdentity, ...]:
    """Who is to go. A member without either id names nobody."""
    found = tuple(
        MemberIdentity(
            request_limits.check_name("members.member_id", member.member_id),
            request_limits.check_instance_id(
                "members.group_instance_id", member.HasField("group_instance_id"), member.group_instance_id
            ),
            request_limits.check_reason("members.reason", member.reason),
        )
        for member in members
    )
    request_limits.check_at_most("members", len(found), request_limits.MAX_MEMBERS)
    request_limits.check_distinct("members", ((m.member_id, m.group_instance_id or "") for m in found))
    return found


def parse_committed_offsets(
    topics: Iterable[pb.OffsetCommitTopic],
) -> Iterator[tuple[tuple[str, int], CommittedOffset]]:
    for topic in topics:
        topic_name = request_limits.check_filled_name("topics.name", topic.name)
        for position in topic.partitions:
            partition = request_limits.check_at_least("partition_index", position.partition_index, 0)
            yield (topic_name, partition), parse_committed_offset(position)


def parse_committed_offset(position: pb.OffsetCommitPartition) -> CommittedOffset:
    metadata = request_limits.check_metadata("committed_metadata", position.committed_metadata)
    has_epoch = position.HasField("committed_leader_epoch")
    return CommittedOffset(
        request_limits.check_at_least("committed_offset", position.committed_offset, 0),
        request_limits.check_at_least("committed_leader_epoch", position.committed_leader_epoch, NO_EPOCH)
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
    name, numbers = request_limits.check_filled_name("topics.name", topic.name), topic.partition_indexes
    request_limits.check_at_least("partition_indexes", min(numbers, default=0), 0)
    return zip(repeat(name), numbers)


def list_named_partitions(topics: Iterable[pb.OffsetFetchTopic]) -> tuple[tuple[str, int], ...]:
    named = tuple(chain.from_iterable(map(list_partitions, topics)))
    request_limits.check_at_most("topics", len(named), request_limits.MAX_PARTITIONS)
    request_limits.check_distinct("topics", named)
    return named


# Consumer groups (KIP-848)
# -------------------------

TOPIC_ID_BYTES = 16
UNCHANGED = -1


def parse_consumer_heartbeat(
    request: pb.ConsumerGroupHeartbeatRequest,
    request_id: RequestId,
    *,
    client_host: str,
    client_software: str = "",
    rights: Rights = None,
    connection: int = 0,
) -> events.ConsumerHeartbeat:
    names = request.subscribed_topic_names.names if request.HasField("subscribed_topic_names") else None
    has_timeout = request.HasField("rebalance_timeout_ms")
    return events.ConsumerHeartbeat(
        request_id=request_id,
        group_id=request_limits.check_name("group_id", request.group_id),
        member_id=request_limits.check_name("member_id", request.member_id),
        member_epoch=request.member_epoch,
        group_instance_id=optional_field(request, "group_instance_id"),
        rack_id=optional_field(request, "rack_id"),
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else UNCHANGED,
        topic_names=None if names is None else parse_topic_names(tuple(names)),
        topic_regex=optional_field(request, "subscribed_topic_regex"),
        server_assignor=optional_field(request, "server_assignor"),
        owned=parse_owned_partitions(request.topic_partitions) if request.HasField("topic_partitions") else None,
        client_id=request_limits.check_name("client_id", request.client_id),
        client_host=client_host,
        client_software=client_software,
        ready=parse_owned_partitions(request.ready) if request.HasField("ready") else None,
        rights=rights,
        connection=connection,
    )


def optional_field(request: pb.ConsumerGroupHeartbeatRequest, field: str) -> str | None:
    """None when it is absent; an empty one has a meaning of its own, or is refused by the core."""
    return request_limits.check_name(field, getattr(request, field)) if request.HasField(field) else None


def parse_topic_names(names: tuple[str, ...]) -> tuple[str, ...]:
    request_limits.check_at_most("subscribed_topic_names", len(names), request_limits.MAX_TOPICS)
    for name in names:
        request_limits.check_filled_name("subscribed_topic_names", name)
    request_limits.check_distinct("subscribed_topic_names", names)
    return names


def parse_owned_partitions(assignment: pb.ConsumerAssignment) -> Shares:
    shares: dict[bytes, frozenset[int]] = {}
    for topic in assignment.topic_partitions:
        if len(topic.topic_id) != TOPIC_ID_BYTES:
            raise MalformedGroupRequest(
                f"topic_partitions.topic_id has {len(topic.topic_id)} bytes; expected the {TOPIC_ID_BYTES} bytes that "
                "the assignment gave"
            )
        for partition in topic.partitions:
            request_limits.check_at_least("topic_partitions.partitions", partition, 0)
        request_limits.check_distinct("topic_partitions.partitions", topic.partitions)
        shares[topic.topic_id] = frozenset(topic.partitions)
    request_limits.check_distinct("topic_partitions", [topic.topic_id for topic in assignment.topic_partitions])
    request_limits.check_at_most("topic_partitions", sum(map(len, shares.values())), request_limits.MAX_PARTITIONS)
    return shares
