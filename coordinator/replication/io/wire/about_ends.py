"""Where logs begin and end, and which groups have settings, on its way between nodes: messages from values, and back.

Nodes ask at this door, not at that of clients: here they are known as nodes, whatever clients need to get in.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from muster.coordinator.errors import ErrorCode, error_code_of
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.replication.io.wire.words import GroupsWithSettings, LogEndsQuery, PartitionLogEnd

MOST_LOGS: Final = 5_000
"""In one question."""

MOST_GROUPS: Final = 100_000
"""In one answer; where there are more the asker hears POLICY_VIOLATION."""


def ends_request(asked: LogEndsQuery) -> Any:
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in asked.places:
        topics.setdefault(topic_id, []).append(partition)
    row = struct("LogEndsRequest.topics")
    return struct("LogEndsRequest")(
        earliest=asked.earliest, topics=[row(topic_id=each, partitions=of) for each, of in topics.items()]
    )


def parse_ends_request(request: Any) -> LogEndsQuery | None:
    """None where it asks for more than it may."""
    if sum(len(topic.partitions) for topic in request.topics) > MOST_LOGS:
        return None
    places = tuple((bytes(topic.topic_id), number) for topic in request.topics for number in topic.partitions)
    return LogEndsQuery(request.earliest, places)


def ends_response(ends: Iterable[PartitionLogEnd]) -> Any:
    row, partition = struct("LogEndsResponse.topics"), struct("LogEndsResponse.topics.partitions")
    topics: dict[bytes, list[Any]] = {}
    for each in ends:
        topics.setdefault(each.topic_id, []).append(partition(index=each.partition, offset=each.offset))
    return struct("LogEndsResponse")(topics=[row(topic_id=each, partitions=of) for each, of in topics.items()])


def ends_refusal() -> Any:
    return struct("LogEndsResponse")(error_code=ErrorCode.INVALID_REQUEST)


def parse_ends_response(response: Any) -> Sequence[PartitionLogEnd]:
    return [
        PartitionLogEnd(bytes(topic.topic_id), each.index, each.offset)
        for topic in response.topics
        for each in topic.partitions
    ]


def groups_request() -> Any:
    return struct("GroupsWithSettingsRequest")(most=MOST_GROUPS)


def groups_response(told: GroupsWithSettings, most: int) -> Any:
    made = struct("GroupsWithSettingsResponse")
    if len(told.groups) > min(most, MOST_GROUPS):
        return made(error_code=ErrorCode.POLICY_VIOLATION)
    return made(error_code=told.error, groups=list(told.groups))


def parse_groups_response(response: Any) -> GroupsWithSettings:
    return GroupsWithSettings(error_code_of(response.error_code), tuple(response.groups))
