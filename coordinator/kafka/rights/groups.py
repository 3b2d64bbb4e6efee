"""What tools ask about groups: FindCoordinator, ListGroups, DescribeGroups, ConsumerGroupDescribe, DeleteGroups."""

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, Final

from muster.coordinator.kafka.authorized import NOT_ASKED
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.rights.judging import Instead, May, Partly, Verdict, code_of
from muster.coordinator.kafka.rights.operations import operations_on
from muster.coordinator.security.acl.model import ResourceType
from muster.coordinator.security.acl.rights import API_RIGHTS

FIND: Final = "FindCoordinator"
OF_GROUPS, OF_TRANSACTIONS = API_RIGHTS[FIND]
RIGHT_OF_KEYS: Final = {0: OF_GROUPS, 1: OF_TRANSACTIONS}
BATCHED: Final = 4
"""FindCoordinator asks for several keys from this version on."""

(LISTED,) = API_RIGHTS["ListGroups"]
DESCRIBE: Final = "DescribeGroups"
(DESCRIBED,) = API_RIGHTS[DESCRIBE]
CONSUMERS: Final = "ConsumerGroupDescribe"
CONSUMERS_DESCRIBED, THEIR_TOPICS = API_RIGHTS[CONSUMERS]
DELETE: Final = "DeleteGroups"
(DELETED,) = API_RIGHTS[DELETE]

TELLS_WHY: Final = 6
"""DescribeGroups has words for a refusal from this version on."""

HIDDEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."


def find_coordinator(may: May, request: Any, call: KafkaCall) -> Verdict:
    right = RIGHT_OF_KEYS.get(request.key_type)
    if right is None:
        return None
    if call.api_version < BATCHED:
        if may(call, right, request.key, api=FIND):
            return None
        said = {"error_code": code_of(right), "error_message": may.why(call, right, request.key)}
        return Instead(struct("FindCoordinatorResponse")(node_id=-1, port=-1, **said))
    keys = list(dict.fromkeys(request.coordinator_keys))
    allowed, refused = may.split(call, right, keys, str, api=FIND)
    if not refused:
        return None
    made = struct("FindCoordinatorResponse.coordinators")
    rows = [
        made(
            key=key,
            node_id=-1,
            port=-1,
            error_code=code_of(right),
            error_message=may.why(call, right, key, len(refused)),
        )
        for key in refused
    ]
    return partly(request, "coordinator_keys", allowed, "FindCoordinatorResponse", "coordinators", rows)


def list_groups(may: May, request: Any, call: KafkaCall) -> Verdict:
    """Who may describe the cluster sees all of them."""
    if LISTED.instead is not None and may.quietly(call, LISTED.instead):
        return None

    def amend(answer: Any) -> Any:
        sees = may.each(call, LISTED, len(answer.groups))
        answer.groups = [group for group in answer.groups if sees(group.group_id)]
        return answer

    return Partly(request, amend)


def describe_groups(may: May, request: Any, call: KafkaCall) -> Verdict:
    allowed, refused = may.split(call, DESCRIBED, dict.fromkeys(request.groups), str, api=DESCRIBE)
    made = struct("DescribeGroupsResponse.groups")
    rows = [
        made(
            group_id=name,
            error_code=code_of(DESCRIBED),
            error_message=may.why(call, DESCRIBED, name, len(refused)) if call.api_version >= TELLS_WHY else None,
        )
        for name in refused
    ]
    if not (rows or request.include_authorized_operations):
        return None
    told = with_operations(may, call)
    return partly(request, "groups", allowed, "DescribeGroupsResponse", "groups", rows, told)


def consumer_group_describe(may: May, request: Any, call: KafkaCall) -> Verdict:
    """A group one of whose topics may not be described is not described."""
    names = dict.fromkeys(request.group_ids)
    allowed, refused = may.split(call, CONSUMERS_DESCRIBED, names, str, api=CONSUMERS)
    made = struct("ConsumerGroupDescribeResponse.groups")
    right = CONSUMERS_DESCRIBED
    rows = [
        made(
            group_id=name, error_code=code_of(right), error_message=may.why(call, right, name, len(refused)), members=[]
        )
        for name in refused
    ]
    told = with_operations(may, call)

    def seen(group: Any) -> Any:
        if may.all(call, THEIR_TOPICS, set(topics_of(group))):
            return told(group)
        return made(group_id=group.group_id, error_code=code_of(THEIR_TOPICS), error_message=HIDDEN_TOPICS, members=[])

    return partly(request, "group_ids", allowed, "ConsumerGroupDescribeResponse", "groups", rows, seen)


def topics_of(group: Any) -> Iterator[str]:
    """Names of topics that the answer tells of a group. One that is gone has none."""
    for member in group.members:
        yield from member.subscribed_topic_names
        for assignment in (member.assignment, member.target_assignment):
            yield from (topic.topic_name for topic in assignment.topic_partitions if topic.topic_name)


def delete_groups(may: May, request: Any, call: KafkaCall) -> Verdict:
    allowed, refused = may.split(call, DELETED, dict.fromkeys(request.groups_names), str, api=DELETE)
    if not refused:
        return None
    made = struct("DeleteGroupsResponse.results")
    rows = [made(group_id=name, error_code=code_of(DELETED)) for name in refused]
    return partly(request, "groups_names", allowed, "DeleteGroupsResponse", "results", rows)


def with_operations(may: May, call: KafkaCall) -> Callable[[Any], Any]:
    """A row with what the caller may really do, where that was asked for."""

    def told(group: Any) -> Any:
        if group.authorized_operations != NOT_ASKED:
            group.authorized_operations = operations_on(may, call, ResourceType.GROUP, group.group_id)
        return group

    return told


def partly(
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
        return Instead(struct(response)(**{told: refused}))
    left = copy(request)
    setattr(left, asked, allowed)

    def amend(answer: Any) -> Any:
        rows = getattr(answer, told)
        setattr(answer, told, [*(rows if each is None else map(each, rows)), *refused])
        return answer

    return Partly(left, amend)
