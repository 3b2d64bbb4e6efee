"""What tools ask about groups: ListGroups, DescribeGroups, DeleteGroups."""

from typing import Any, Final

from muster.coordinator.core.model import core_events, effects
from muster.coordinator.edge.listing import merge_group_lists
from muster.coordinator.edge.words import name_operator
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.authorized import GROUP_OPERATIONS, OPERATIONS_NOT_REQUESTED
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.handlers.group_requests import GroupRequests

REPORTS_MISSING_GROUPS: Final = 6
"""DescribeGroups reports a group that is not there as an error from this version on; before, it is "Dead"."""

DEAD: Final = "Dead"


class GroupAdminHandlers:
    def __init__(self, groups: GroupRequests) -> None:
        self._groups = groups

    async def list_groups(self, request: Any, call: KafkaCall) -> Any:
        """All shards' groups; shards that moved away are left out, another failure becomes the answer's code."""
        states, types = tuple(request.states_filter), tuple(request.types_filter)
        questions = [
            (shard, core_events.ListGroups(self._groups.next_id(), states, types))
            for shard in range(self._groups.shards)
        ]
        replies = await self._groups.ask_each(questions, effects.ListReply)
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

    async def describe_groups(self, request: Any, call: KafkaCall) -> Any:
        names = list(dict.fromkeys(request.groups))
        questions = [
            (self._groups.shard_of(group_id), core_events.DescribeGroup(self._groups.next_id(), group_id))
            for group_id in names
        ]
        replies = await self._groups.ask_each(questions, effects.DescribeReply)
        rows = [classic_group_row(*pair, call.api_version) for pair in zip(names, replies, strict=True)]
        for row in rows:
            told = request.include_authorized_operations and row.error_code == ErrorCode.NONE
            row.authorized_operations = GROUP_OPERATIONS if told else OPERATIONS_NOT_REQUESTED
        return struct("DescribeGroupsResponse")(groups=rows)

    async def delete_groups(self, request: Any, call: KafkaCall) -> Any:
        names = list(dict.fromkeys(request.groups_names))
        by = name_operator(call.peer_host)
        questions = [
            (self._groups.shard_of(group_id), core_events.DeleteGroup(self._groups.next_id(), group_id, operator=by))
            for group_id in names
        ]
        replies = await self._groups.ask_each(questions, effects.DeleteReply)
        made = struct("DeleteGroupsResponse.results")
        rows = [made(group_id=name, error_code=reply.code) for name, reply in zip(names, replies, strict=True)]
        return struct("DeleteGroupsResponse")(results=rows)


def classic_group_row(group_id: str, reply: effects.DescribeReply, version: int) -> Any:
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
    )
