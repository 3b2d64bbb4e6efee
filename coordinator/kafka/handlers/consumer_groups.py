"""KIP-848 groups (ConsumerGroupHeartbeat, ConsumerGroupDescribe), and the tools' view of all groups.

ListGroups and DeleteGroups cover groups of every kind; DescribeGroups describes classic groups.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.records import Shares, TopicId
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.edge.large_answers import (
    GroupFilter,
    GroupLists,
    SharedAnswers,
    count_groups,
    merge_group_lists,
    weigh_consumer_group,
)
from muster.coordinator.edge.request_limits import error_sentence, name_operator
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, KafkaCall, encode_aside
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.kafka.protocol import (
    GROUP_OPERATIONS,
    OPERATIONS_NOT_REQUESTED,
    check_length,
    check_optional_length,
)
from muster.long_work import AT_ONCE, make_aside

# ConsumerGroupHeartbeat, ConsumerGroupDescribe
# ---------------------------------------------

OWN_MEMBER_ID: Final = 1
"""Members make their own ids from this version of the heartbeat on (KIP-1082)."""

JOINING: Final = 0
SPEAKS_CLASSIC: Final = 0
SPEAKS_CONSUMER: Final = 1


class ConsumerGroupHandlers:
    def __init__(self, groups: GroupRequests) -> None:
        self._groups = groups

    def consumer_group_heartbeat_now(self, request: Any, call: KafkaCall) -> Any:
        """Without a task: a client that says that it leaves, and closes its connection, is heard all the same."""
        return self._groups.begin_request(
            request.group_id,
            lambda: make_consumer_heartbeat_event(
                request,
                call,
                self._groups.next_id(),
                self._groups.rights_of.of(call.identity),
                self._groups.watch_connection(request.group_id, call),
            ),
            effects.ConsumerHeartbeatReply,
            make_consumer_heartbeat_response,
        )

    async def consumer_group_describe(self, request: Any, call: KafkaCall) -> Any:
        names = list(dict.fromkeys(request.group_ids))
        async with self._groups.take_turn(len(names)):
            questions = (
                (self._groups.shard_of(group_id), events.DescribeConsumerGroup(self._groups.next_id(), group_id))
                for group_id in names
            )
            replies = await self._groups.ask_each(questions, effects.DescribeConsumerReply)
            told = request.include_authorized_operations

            def whole() -> Any:
                rows = [consumer_group_row(*pair, told) for pair in zip(names, replies, strict=True)]
                return struct("ConsumerGroupDescribeResponse")(groups=rows)

            weight = len(names) + sum(map(weigh_consumer_group, replies))
            return await encode_aside("ConsumerGroupDescribeResponse", call.api_version, whole, weight)


def make_consumer_heartbeat_response(reply: effects.ConsumerHeartbeatReply) -> Any:
    response = struct("ConsumerGroupHeartbeatResponse")
    if reply.code is not ErrorCode.NONE:
        return response(error_code=reply.code, error_message=error_sentence(reply.code, reply.message))
    return response(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=None if reply.assignment is None else assignment_struct(reply.assignment),
    )


def make_consumer_heartbeat_event(
    request: Any, call: KafkaCall, request_id: int, rights: Rights = None, connection: int = 0
) -> events.ConsumerHeartbeat:
    """librdkafka sends an empty regular expression for none, which the core takes as such (KIP-848)."""
    member_id = check_length("member_id", request.member_id)
    if not member_id and call.api_version < OWN_MEMBER_ID and request.member_epoch == JOINING:
        member_id = str(uuid4())
    names = request.subscribed_topic_names
    return events.ConsumerHeartbeat(
        request_id=request_id,
        group_id=check_length("group_id", request.group_id),
        member_id=member_id,
        member_epoch=request.member_epoch,
        group_instance_id=check_optional_length("instance_id", request.instance_id),
        rack_id=check_optional_length("rack_id", request.rack_id),
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=None if names is None else topic_names(names),
        topic_regex=check_optional_length("subscribed_topic_regex", request.subscribed_topic_regex),
        server_assignor=check_optional_length("server_assignor", request.server_assignor),
        owned=None if request.topic_partitions is None else owned_partitions(request.topic_partitions),
        client_id=check_length("client_id", call.client_id),
        client_host=call.peer_host,
        client_software=call.client_software,
        rights=rights,
        connection=connection,
    )


def topic_names(names: list[str]) -> tuple[str, ...]:
    if not all(names):
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "subscribed_topic_names has an empty name; give all of them")
    return tuple(dict.fromkeys(check_length("subscribed_topic_names", name) for name in names))


def owned_partitions(topics: list[Any]) -> Shares:
    """What the member says it has, by topic id. Raises CoordinatorError when a topic is named twice."""
    shares = {topic.topic_id: frozenset(topic.partitions) for topic in topics}
    if len(shares) != len(topics):
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, "topic_partitions names a topic twice; name each once")
    return shares


def assignment_struct(shares: Mapping[TopicId, Iterable[int]]) -> Any:
    made = struct("ConsumerGroupHeartbeatResponse.assignment.topic_partitions")
    rows = [made(topic_id=topic, partitions=sorted(shares[topic])) for topic in sorted(shares)]
    return struct("ConsumerGroupHeartbeatResponse.assignment")(topic_partitions=rows)


def consumer_group_row(group_id: str, reply: effects.DescribeConsumerReply, operations: bool) -> Any:
    """operations: whether the caller wants to know what it may do."""
    failed = reply.code is not ErrorCode.NONE
    return struct("ConsumerGroupDescribeResponse.groups")(
        error_code=reply.code if group_id else ErrorCode.INVALID_GROUP_ID,
        error_message=error_sentence(reply.code, reply.message) or None,
        group_id=group_id,
        group_state="" if failed else reply.state,
        group_epoch=reply.epoch,
        assignment_epoch=reply.target_epoch,
        assignor_name=reply.assignor,
        members=[consumer_member_row(view, reply.names) for view in reply.members],
        authorized_operations=told_operations(operations, reply.code if group_id else ErrorCode.INVALID_GROUP_ID),
    )


def told_operations(wanted: bool, code: int) -> int:
    return GROUP_OPERATIONS if wanted and code == ErrorCode.NONE else OPERATIONS_NOT_REQUESTED


def consumer_member_row(view: effects.ConsumerMemberView, names: Mapping[TopicId, str]) -> Any:
    path = "ConsumerGroupDescribeResponse.groups.members"
    return struct(path)(
        member_id=view.member_id,
        instance_id=view.instance_id,
        rack_id=view.rack_id,
        member_epoch=view.epoch,
        client_id=view.client_id,
        client_host=view.client_host,
        subscribed_topic_names=list(view.topic_names),
        subscribed_topic_regex=view.topic_regex,
        assignment=named_shares(f"{path}.assignment", view.assigned, names),
        target_assignment=named_shares(f"{path}.target_assignment", view.target, names),
        member_type=SPEAKS_CLASSIC if view.classic else SPEAKS_CONSUMER,
    )


def named_shares(path: str, shares: Mapping[TopicId, Iterable[int]], names: Mapping[TopicId, str]) -> Any:
    made = struct(f"{path}.topic_partitions")
    rows = sorted((names.get(topic, ""), topic, sorted(partitions)) for topic, partitions in shares.items())
    return struct(path)(
        topic_partitions=[
            made(topic_id=topic, topic_name=name, partitions=partitions) for name, topic, partitions in rows
        ]
    )


# ListGroups, DescribeGroups, DeleteGroups
# ----------------------------------------

REPORTS_MISSING_GROUPS: Final = 6
"""DescribeGroups reports a group that is not there as an error from this version on; before, it is "Dead"."""

DEAD: Final = "Dead"


class GroupAdminHandlers:
    def __init__(self, groups: GroupRequests) -> None:
        self._groups = groups
        self._lists = GroupLists(self._list_shard, groups.shards)
        self._encoded: SharedAnswers[tuple[int, GroupFilter], EncodedAnswer | list[effects.ListReply]] = SharedAnswers()

    async def list_groups(self, request: Any, call: KafkaCall) -> Any:
        """All shards' groups; shards that moved away are left out, another failure becomes the answer's code."""
        version, wanted = call.api_version, GroupFilter(tuple(request.states_filter), tuple(request.types_filter))
        made = await self._encoded.get((version, wanted), lambda: self._list_all(version, wanted))
        return made if isinstance(made, EncodedAnswer) else make_list_response(made)

    async def _list_all(self, version: int, wanted: GroupFilter) -> EncodedAnswer | list[effects.ListReply]:
        """Of many groups the whole answer, of few what it is made from: callers may not see the same of it."""
        replies = await self._lists.get(wanted)
        many = count_groups(replies)
        if many <= AT_ONCE:
            return replies
        return await make_aside(
            lambda: EncodedAnswer(encode("ListGroupsResponse", version, make_list_response(replies))), many
        )

    async def _list_shard(self, shard: int, wanted: GroupFilter) -> effects.ListReply:
        event = events.ListGroups(self._groups.next_id(), *wanted)
        (reply,) = await self._groups.ask_each([(shard, event)], effects.ListReply)
        return reply

    async def describe_groups(self, request: Any, call: KafkaCall) -> Any:
        names = list(dict.fromkeys(request.groups))
        async with self._groups.take_turn(len(names)):
            questions = (
                (self._groups.shard_of(group_id), events.DescribeGroup(self._groups.next_id(), group_id))
                for group_id in names
            )
            replies = await self._groups.ask_each(questions, effects.DescribeReply)
            version, told = call.api_version, request.include_authorized_operations

            def whole() -> Any:
                rows = [classic_group_row(*pair, version, told) for pair in zip(names, replies, strict=True)]
                return struct("DescribeGroupsResponse")(groups=rows)

            weight = len(names) + sum(len(reply.members) for reply in replies)
            return await encode_aside("DescribeGroupsResponse", version, whole, weight)

    async def delete_groups(self, request: Any, call: KafkaCall) -> Any:
        names = list(dict.fromkeys(request.groups_names))
        async with self._groups.take_turn(len(names)):
            by = name_operator(call.peer_host)
            questions = (
                (self._groups.shard_of(group_id), events.DeleteGroup(self._groups.next_id(), group_id, operator=by))
                for group_id in names
            )
            replies = await self._groups.ask_each(questions, effects.DeleteReply)
            made = struct("DeleteGroupsResponse.results")

            def whole() -> Any:
                rows = [made(group_id=name, error_code=reply.code) for name, reply in zip(names, replies, strict=True)]
                return struct("DeleteGroupsResponse")(results=rows)

            return await encode_aside("DeleteGroupsResponse", call.api_version, whole, len(names))


def make_list_response(replies: Sequence[effects.ListReply]) -> Any:
    failed, found = merge_group_lists(replies)
    made = struct("ListGroupsResponse.groups")
    rows = [
        made(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=group.group_type,
        )
        for group in found
    ]
    return struct("ListGroupsResponse")(error_code=failed.code if failed else ErrorCode.NONE, groups=rows)


def classic_group_row(group_id: str, reply: effects.DescribeReply, version: int, operations: bool) -> Any:
    """operations: whether the caller wants to know what it may do."""
    missing = reply.code is ErrorCode.GROUP_ID_NOT_FOUND
    code = ErrorCode.NONE if missing and version < REPORTS_MISSING_GROUPS else reply.code
    path = "DescribeGroupsResponse.groups"
    made = struct(f"{path}.members")
    return struct(path)(
        error_code=code,
        error_message=reply.message if code is not ErrorCode.NONE else None,
        group_id=group_id,
        group_state=DEAD if missing else reply.state,
        protocol_type=reply.protocol_type,
        protocol_data=reply.protocol_name,
        members=[
            made(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                member_metadata=one.metadata,
                member_assignment=one.assignment,
            )
            for one in reply.members
        ],
        authorized_operations=told_operations(operations, code),
    )
