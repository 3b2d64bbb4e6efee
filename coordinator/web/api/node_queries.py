"""Calls of the API to the node; an error code in an answer becomes a refusal with HTTP's status."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Final

from google.protobuf.message import Message

from muster.coordinator.errors import ErrorCode
from muster.coordinator.observability.doctor.model import ExaminedGroup, drained_ids, override_lines
from muster.coordinator.observability.read_model.commit_history import CommitHistory
from muster.coordinator.observability.read_model.group_mapper import (
    map_commits,
    map_group,
    map_holds,
    map_lags,
    map_listing,
    map_member,
)
from muster.coordinator.observability.read_model.groups import GroupDescription, GroupHolds, GroupListing, PartitionLag
from muster.coordinator.rpc.v1 import control_service_pb2 as control_pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import errors_pb2
from muster.coordinator.rpc.v1.ledger_pb2 import Rebalance
from muster.coordinator.web.http.node_port import HttpCaller, HttpRefusal, NodePort
from muster.long_work import iterate_in_turns, make_aside, run_in_answer_thread, sort_in_runs
from muster.storage.rpc.v1 import broker_service_pb2 as log_pb

Place = tuple[str, int]

EARLIEST: Final = -2
LATEST: Final = -1
DEAD: Final = "Dead"

STATUS: Final[Mapping[int, int]] = {
    **dict.fromkeys((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID), 404),
    **dict.fromkeys((ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_MEMBER_ID), 404),
    **dict.fromkeys((ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC), 409),
    **dict.fromkeys((ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.INVALID_UPDATE_VERSION), 409),
    **dict.fromkeys((ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE), 503),
    ErrorCode.NOT_COORDINATOR: 503,
    ErrorCode.POLICY_VIOLATION: 403,
    **dict.fromkeys((ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED), 403),
    **dict.fromkeys((ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), 403),
    ErrorCode.UNKNOWN_SERVER_ERROR: 500,
}
"""HTTP's status for Kafka's codes; 400 for any other."""


@dataclass(frozen=True, slots=True)
class TopicAnswer:
    name: str
    topic_id: str
    internal: bool
    partitions: int


@dataclass(frozen=True, slots=True)
class GroupSettingsAnswer:
    """What an operator has set for a group, and what holds else. `version` counts the changes."""

    version: int
    values: Mapping[str, Any]
    defaults: Mapping[str, Any]
    suspended: str
    """Why `assignor` does not count until it is set again; empty: it does."""


class NodeQueries:
    """The node, for one who asks."""

    def __init__(self, asks: NodePort, by: HttpCaller) -> None:
        self.node = asks
        self.by = by

    async def call(self, method: str, request: Message) -> Any:
        return await self.node.call(method, request, self.by)

    async def groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
        """All groups by name; only those in one of `states`, of one of `types`, where any are given."""
        request = pb.ListGroupsRequest(states_filter=states, types_filter=types)
        answer = await self.call("ListGroups", request)
        check_group_code(answer.error_code, answer.error_message, "the list of groups")
        found = [map_listing(group) async for group in iterate_in_turns(answer.groups)]
        return await make_aside(lambda: sort_in_runs(found, lambda group: group.group_id), len(found))

    async def group_type(self, group: str) -> str:
        answer = await self.call("ListGroups", pb.ListGroupsRequest())
        check_group_code(answer.error_code, answer.error_message, "the list of groups")
        async for each in iterate_in_turns(answer.groups):
            if each.group_id == group:
                return str(each.group_type)
        return "classic"

    async def group(self, group: str) -> GroupDescription:
        """Raises Refused (404) where there is none."""
        answer = await self.call("DescribeGroups", pb.DescribeGroupsRequest(groups=[group]))
        [found] = answer.groups
        check_group_code(found.error_code, found.error_message, f"group {group!r}")
        if found.group_state == DEAD:
            check_group_code(ErrorCode.GROUP_ID_NOT_FOUND, "", f"group {group!r}")
        members = [map_member(member) async for member in iterate_in_turns(found.members)]
        return map_group(found, self.node.node().address, members)

    async def offsets(self, group: str, *, include_zookeeper: bool = True) -> dict[Place, int]:
        """Everything the group has committed, by partition."""
        request = pb.OffsetFetchRequest(group_id=group, all_topics=True, include_zookeeper=include_zookeeper)
        answer = await self.call("OffsetFetch", request)
        check_group_code(answer.error_code, answer.error_message, f"group {group!r}")
        return await make_aside(partial(committed_positions, answer), count_rows(answer))

    async def lags(self, found: GroupDescription) -> tuple[list[PartitionLag], bool]:
        """Every partition that the group reads or has committed, and whether its positions could be had.

        Positions that lie in a ZooKeeper out of reach are left out.
        """
        try:
            return await self._lags(found, include_zookeeper=True), True
        except HttpRefusal as error:
            if error.code != ErrorCode.COORDINATOR_NOT_AVAILABLE.name:
                raise
        return await self._lags(found, include_zookeeper=False), found.protocol_type != "zookeeper"

    async def _lags(self, found: GroupDescription, *, include_zookeeper: bool) -> list[PartitionLag]:
        committed = await self.offsets(found.group_id, include_zookeeper=include_zookeeper)
        owners = found.owners()
        rows = len(committed) + len(owners)
        wanted = await make_aside(lambda: by_topic({*committed, *owners}), rows)
        counts = {topic.name: topic.partitions for topic in await self.topics({*wanted})}
        request = pb.OffsetFetchRequest(
            group_id=found.group_id, include_log_offsets=True, include_zookeeper=include_zookeeper
        )
        for topic, numbers in wanted.items():
            if known := [number for number in numbers if found.watched or number < counts.get(topic, 0)]:
                request.topics.add(name=topic, partition_indexes=known)
        if not request.topics:
            return []
        answer = await self.call("OffsetFetch", request)
        check_group_code(answer.error_code, answer.error_message, f"group {found.group_id!r}")

        def in_order() -> list[PartitionLag]:
            return [lag for _, lag in sort_in_runs(map_lags([answer], owners).items(), key=itemgetter(0))]

        return await make_aside(in_order, rows)

    async def commit_history(self, group: str) -> CommitHistory:
        """How its positions moved, as far as this node knows."""
        request = pb.OffsetFetchRequest(group_id=group, all_topics=True, include_commits=True)
        answer = await self.call("OffsetFetch", request)
        check_group_code(answer.error_code, answer.error_message, f"group {group!r}")
        return await run_in_answer_thread(partial(map_commits, answer))

    async def settings(self, group: str) -> GroupSettingsAnswer:
        """A group that nobody has heard of has nothing set."""
        answer = await self.call("DescribeGroupSettings", pb.DescribeGroupSettingsRequest(group_id=group))
        check_group_code(answer.error_code, answer.error_message, f"group {group!r}")
        return read_settings(answer)

    async def settings_if_allowed(self, group: str) -> GroupSettingsAnswer:
        """None of them for who may know of the group, but not of its settings."""
        try:
            return await self.settings(group)
        except HttpRefusal as error:
            if error.status != 403:
                raise
            return GroupSettingsAnswer(0, {}, {}, "")

    async def describe_holds(self, group: str) -> GroupHolds:
        """What operators hold of it; of a group that nobody has heard of, nothing."""
        answer = await self.call("DescribeHolds", control_pb.DescribeHoldsRequest(group_id=group))
        check_group_code(answer.error_code, answer.error_message, f"group {group!r}")
        return map_holds(answer.holds)

    async def rebalances(
        self, group: str, limit: int, generation: int = 0, *, snapshots: bool = False
    ) -> list[Rebalance]:
        """What the ledger knows, oldest first; 0 means all, and any."""
        answer = await self.explained(group, limit, generation, snapshots=snapshots)
        return list(answer.rebalances)[::-1]

    async def explained(
        self, group: str, limit: int = 0, generation: int = 0, *, snapshots: bool = False
    ) -> pb.ExplainGroupResponse:
        """The same newest first, with the node's stalls and the moves of the group's coordinator."""
        request = pb.ExplainGroupRequest(
            group_id=group, limit=limit, generation_id=generation, include_snapshots=snapshots
        )
        answer: pb.ExplainGroupResponse = await self.call("ExplainGroup", request)
        check_group_code(answer.error_code, answer.error_message, f"group {group!r}")
        return answer

    async def examined(self, group: str) -> tuple[ExaminedGroup, dict[str, int]]:
        """A group with its positions and its whole ledger, and how many partitions its topics have, for advice."""
        described = await self.group(group)
        kind = await self.group_type(group)
        explained = await self.explained(group, snapshots=True)
        lags, _ = await self.lags(described)
        holds = await self.describe_holds(group)
        read = {topic for member in described.members for topic in member.topics}
        examined = ExaminedGroup(
            described,
            kind,
            {lag.partition: lag for lag in lags},
            ledger=tuple(explained.rebalances),
            stalls=tuple(explained.stalls),
            moves=tuple(explained.moves),
            held=override_lines(holds),
            drained=drained_ids(described.members, holds),
            commits=await self.commit_history(group),
        )
        return examined, {topic.name: topic.partitions for topic in await self.topics(read)}

    async def topics(self, names: set[str] | None = None, *, internal: bool = False) -> list[TopicAnswer]:
        """Those of the names that exist, or all there are, by name."""
        if names is not None and not names:
            return []
        if names is None:
            request = log_pb.MetadataRequest(all_topics=True, include_internal=internal)
        else:
            request = log_pb.MetadataRequest(topics=sorted(names))
        answer = await self.call("Metadata", request)
        found = [
            TopicAnswer(topic.name, topic.topic_id.hex(), topic.is_internal, len(topic.partitions))
            async for topic in iterate_in_turns(answer.topics)
            if not topic.error_code
        ]
        return sorted(found, key=lambda topic: topic.name)

    async def topic(self, name: str) -> TopicAnswer:
        """Raises Refused (404) where there is none."""
        if not (found := await self.topics({name})):
            check_group_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic", f"topic {name!r}")
        return found[0]

    async def offsets_at(self, times: Mapping[Place, int]) -> dict[Place, int]:
        """The first offset at or after each time (LATEST, EARLIEST, or epoch milliseconds); -1 where there is none."""
        if not times:
            return {}
        request = await make_aside(partial(make_offsets_request, times), len(times))
        answer = await self.call("ListOffsets", request)
        return await make_aside(partial(listed_offsets, answer), len(times))

    async def configs(self, topic: str | None = None) -> dict[str, str]:
        """The settings that hold for a topic, or the node's."""
        request = log_pb.DescribeConfigsRequest(topics=[] if topic is None else [topic])
        answer = await self.call("DescribeConfigs", request)
        for result in answer.results:
            check_log_code(result.error_code, result.error_message, "the node" if topic is None else f"topic {topic!r}")
        return {entry.name: entry.value for result in answer.results for entry in result.configs}

    async def configs_if_allowed(self, topic: str) -> dict[str, str]:
        """The settings of a topic; none for who may know of the topic, but not of them."""
        try:
            return await self.configs(topic)
        except HttpRefusal as error:
            if error.status != 403:
                raise
            return {}


def read_settings(answer: Any) -> GroupSettingsAnswer:
    values, defaults = (
        {name: json.loads(text) for name, text in sorted(told.items())} for told in (answer.settings, answer.defaults)
    )
    return GroupSettingsAnswer(answer.version, values, defaults, answer.suspended)


def committed_positions(answer: Any) -> dict[Place, int]:
    """What there is of positions in OffsetFetch's answer, in order."""
    rows = ((topic.name, row) for topic in answer.topics for row in topic.partitions)
    found = ((name, row.partition_index, row.committed_offset) for name, row in rows if row.committed_offset >= 0)
    return {(name, number): offset for name, number, offset in sort_in_runs(found)}


def count_rows(answer: Any) -> int:
    """Of partitions in an answer."""
    return sum(len(topic.partitions) for topic in answer.topics)


def make_offsets_request(times: Mapping[Place, int]) -> log_pb.ListOffsetsRequest:
    request = log_pb.ListOffsetsRequest()
    for topic, numbers in by_topic(times).items():
        line = request.topics.add(name=topic)
        for number in numbers:
            line.partitions.add(partition_index=number, timestamp=times[topic, number])
    return request


def listed_offsets(answer: Any) -> dict[Place, int]:
    """The offsets in ListOffsets' answer. Raises Refused where one could not be had."""
    found = {}
    for topic in answer.topics:
        for row in topic.partitions:
            check_log_code(row.error_code, row.error_message, f"{topic.name}-{row.partition_index}")
            found[topic.name, row.partition_index] = row.offset
    return found


def by_topic(places: Any) -> dict[str, list[int]]:
    """Partition numbers by topic, both in order."""
    found: dict[str, list[int]] = {}
    for topic, number in sort_in_runs(places):
        found.setdefault(topic, []).append(number)
    return found


def check_group_code(code: int, message: str, about: str) -> None:
    """Raises Refused for a code of the group side."""
    if code:
        refuse_code(code, errors_pb2.ErrorCode.Name(errors_pb2.ErrorCode.ValueType(code)), message, about)


def check_log_code(code: int, message: str, about: str) -> None:
    """Raises Refused for a code of the log."""
    if code:
        refuse_code(code, log_pb.ErrorCode.Name(log_pb.ErrorCode.ValueType(code)), message, about)


def refuse_code(code: int, name: str, message: str, about: str) -> None:
    name, status = name.removeprefix("ERROR_CODE_"), STATUS.get(code, 400)
    meaning = ErrorCode(code).meaning if code in ErrorCode._value2member_map_ else name.replace("_", " ").lower()
    text = f"{about}: {message or meaning}"
    raise HttpRefusal(status, name, text, headers={"retry-after": "1"} if status == 503 else None)
