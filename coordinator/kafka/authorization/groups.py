"""What tools ask about groups: FindCoordinator, ListGroups, DescribeGroups, ConsumerGroupDescribe, DeleteGroups."""

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, Final

from muster.coordinator.kafka.authorization.judging import (
    AccessCheck,
    PartialRequest,
    RefusalAnswer,
    Verdict,
    refusal_code,
)
from muster.coordinator.kafka.authorization.operations import allowed_operations
from muster.coordinator.kafka.authorized import OPERATIONS_NOT_REQUESTED
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.security.model import ResourceType
from muster.coordinator.security.rights import API_RIGHTS

FIND_COORDINATOR: Final = "FindCoordinator"
FIND_GROUP_RIGHT, FIND_TRANSACTION_RIGHT = API_RIGHTS[FIND_COORDINATOR]
RIGHT_OF_KEYS: Final = {0: FIND_GROUP_RIGHT, 1: FIND_TRANSACTION_RIGHT}
FIND_BATCHED_SINCE: Final = 4
"""FindCoordinator asks for several keys from this version on."""

(LIST_GROUPS_RIGHT,) = API_RIGHTS["ListGroups"]
DESCRIBE_GROUPS: Final = "DescribeGroups"
(DESCRIBE_GROUPS_RIGHT,) = API_RIGHTS[DESCRIBE_GROUPS]
CONSUMER_GROUP_DESCRIBE: Final = "ConsumerGroupDescribe"
CONSUMER_GROUP_DESCRIBE_RIGHT, CONSUMER_GROUP_TOPICS_RIGHT = API_RIGHTS[CONSUMER_GROUP_DESCRIBE]
DELETE_GROUPS: Final = "DeleteGroups"
(DELETE_GROUPS_RIGHT,) = API_RIGHTS[DELETE_GROUPS]

HAS_MESSAGE_SINCE: Final = 6
"""DescribeGroups has words for a refusal from this version on."""

HIDDEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."


def judge_find_coordinator(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    right = RIGHT_OF_KEYS.get(request.key_type)
    if right is None:
        return None
    if call.api_version < FIND_BATCHED_SINCE:
        if may(call, right, request.key, api=FIND_COORDINATOR):
            return None
        said = {"error_code": refusal_code(right), "error_message": may.why(call, right, request.key)}
        return RefusalAnswer(struct("FindCoordinatorResponse")(node_id=-1, port=-1, **said))
    keys = list(dict.fromkeys(request.coordinator_keys))
    allowed, refused = may.split(call, right, keys, str, api=FIND_COORDINATOR)
    if not refused:
        return None
    made = struct("FindCoordinatorResponse.coordinators")
    rows = [
        made(
            key=key,
            node_id=-1,
            port=-1,
            error_code=refusal_code(right),
            error_message=may.why(call, right, key, len(refused)),
        )
        for key in refused
    ]
    return partial_request(request, "coordinator_keys", allowed, "FindCoordinatorResponse", "coordinators", rows)


def judge_list_groups(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Who may describe the cluster sees all of them."""
    if LIST_GROUPS_RIGHT.instead is not None and may.quietly(call, LIST_GROUPS_RIGHT.instead):
        return None

    def amend(answer: Any) -> Any:
        sees = may.each(call, LIST_GROUPS_RIGHT, len(answer.groups))
        answer.groups = [group for group in answer.groups if sees(group.group_id)]
        return answer

    return PartialRequest(request, amend)


def judge_describe_groups(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    allowed, refused = may.split(call, DESCRIBE_GROUPS_RIGHT, dict.fromkeys(request.groups), str, api=DESCRIBE_GROUPS)
    made = struct("DescribeGroupsResponse.groups")
    rows = [
        made(
            group_id=name,
            error_code=refusal_code(DESCRIBE_GROUPS_RIGHT),
            error_message=may.why(call, DESCRIBE_GROUPS_RIGHT, name, len(refused))
            if call.api_version >= HAS_MESSAGE_SINCE
            else None,
        )
        for name in refused
    ]
    if not (rows or request.include_authorized_operations):
        return None
    told = operations_filler(may, call)
    return partial_request(request, "groups", allowed, "DescribeGroupsResponse", "groups", rows, told)


def judge_consumer_group_describe(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """A group one of whose topics may not be described is not described."""
    names = dict.fromkeys(request.group_ids)
    allowed, refused = may.split(call, CONSUMER_GROUP_DESCRIBE_RIGHT, names, str, api=CONSUMER_GROUP_DESCRIBE)
    made = struct("ConsumerGroupDescribeResponse.groups")
    right = CONSUMER_GROUP_DESCRIBE_RIGHT
    rows = [
        made(
            group_id=name,
            error_code=refusal_code(right),
            error_message=may.why(call, right, name, len(refused)),
            members=[],
        )
        for name in refused
    ]
    told = operations_filler(may, call)

    def seen(group: Any) -> Any:
        if may.all(call, CONSUMER_GROUP_TOPICS_RIGHT, set(described_topics(group))):
            return told(group)
        return made(
            group_id=group.group_id,
            error_code=refusal_code(CONSUMER_GROUP_TOPICS_RIGHT),
            error_message=HIDDEN_TOPICS,
            members=[],
        )

    return partial_request(request, "group_ids", allowed, "ConsumerGroupDescribeResponse", "groups", rows, seen)


def described_topics(group: Any) -> Iterator[str]:
    """Names of topics that the answer tells of a group. One that is gone has none."""
    for member in group.members:
        yield from member.subscribed_topic_names
        for assignment in (member.assignment, member.target_assignment):
            yield from (topic.topic_name for topic in assignment.topic_partitions if topic.topic_name)


def judge_delete_groups(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    allowed, refused = may.split(call, DELETE_GROUPS_RIGHT, dict.fromkeys(request.groups_names), str, api=DELETE_GROUPS)
    if not refused:
        return None
    made = struct("DeleteGroupsResponse.results")
    rows = [made(group_id=name, error_code=refusal_code(DELETE_GROUPS_RIGHT)) for name in refused]
    return partial_request(request, "groups_names", allowed, "DeleteGroupsResponse", "results", rows)


def operations_filler(may: AccessCheck, call: KafkaCall) -> Callable[[Any], Any]:
    """A row with what the caller may really do, where that was asked for."""

    def told(group: Any) -> Any:
        if group.authorized_operations != OPERATIONS_NOT_REQUESTED:
            group.authorized_operations = allowed_operations(may, call, ResourceType.GROUP, group.group_id)
        return group

    return told


def partial_request(
    request: Any,
    asked: str,
    allowed: list[Any],
    response: str,
    told: str,
    refused: list[Any],
    each: Callable[[Any], Any] | None = None,
) -> Verdict:
    """Ask for the `allowed` of the list `asked`; into the answer's list `told` come the `refused`."""
    if not allowed:
        return RefusalAnswer(struct(response)(**{told: refused}))
    left = copy(request)
    setattr(left, asked, allowed)

    def amend(answer: Any) -> Any:
        rows = getattr(answer, told)
        setattr(answer, told, [*(rows if each is None else map(each, rows)), *refused])
        return answer

    return PartialRequest(left, amend)
