"""Judges of the group APIs that need code: the rest of them are rows of `answer_shapes`.

FindCoordinator has two wire forms, and the kind of key decides which right counts. DescribeGroups tells authorized
operations. ConsumerGroupDescribe hides a group because of the topics in its answer. ConsumerGroupHeartbeat refuses
all for the first topic that the caller may not describe. OffsetCommit works on flat offsets, and a thread writes
very large refusals. OffsetFetch has three wire forms, and each group is refused, asked in part, or filtered.
"""

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, Final

from muster.coordinator.kafka.authorization.answer_shapes import Parts, Rows
from muster.coordinator.kafka.authorization.judge import (
    AccessCheck,
    PartialRequest,
    RefusalAnswer,
    Verdict,
    allowed_operations,
    refusal_code,
)
from muster.coordinator.kafka.authorization.table_judges import RefusedRows, partial_request
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, KafkaCall, ThreadedAnswer
from muster.coordinator.kafka.handlers.offset_commit_reader import CommitShape, OffsetCommitRequest
from muster.coordinator.kafka.protocol import OPERATIONS_NOT_REQUESTED
from muster.coordinator.security.access_model import ResourceType
from muster.coordinator.security.rights import API_RIGHTS

# Tools
# -----

FIND_COORDINATOR: Final = "FindCoordinator"
FIND_GROUP_RIGHT, FIND_TRANSACTION_RIGHT = API_RIGHTS[FIND_COORDINATOR]
RIGHT_OF_KEYS: Final = {0: FIND_GROUP_RIGHT, 1: FIND_TRANSACTION_RIGHT}
FIND_BATCHED_SINCE: Final = 4
"""FindCoordinator asks for several keys from this version on."""
NO_NODE: Final = {"node_id": -1, "port": -1}
refuse_keys: Final = RefusedRows(
    "FindCoordinatorResponse.coordinators", "", Rows("coordinators", "key", constants=NO_NODE)
)

DESCRIBE_GROUPS: Final = "DescribeGroups"
(DESCRIBE_GROUPS_RIGHT,) = API_RIGHTS[DESCRIBE_GROUPS]
refuse_described: Final = RefusedRows("DescribeGroupsResponse.groups", "", Rows("groups", "group_id"))
CONSUMER_GROUP_DESCRIBE: Final = "ConsumerGroupDescribe"
CONSUMER_GROUP_DESCRIBE_RIGHT, CONSUMER_GROUP_TOPICS_RIGHT = API_RIGHTS[CONSUMER_GROUP_DESCRIBE]
refuse_consumer_groups: Final = RefusedRows("ConsumerGroupDescribeResponse.groups", "", Rows("groups", "group_id"))

HIDDEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."


def judge_find_coordinator(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    right = RIGHT_OF_KEYS.get(request.key_type)
    if right is None:
        return None
    if call.api_version < FIND_BATCHED_SINCE:
        if may(call, right, request.key, api=FIND_COORDINATOR):
            return None
        refusal = {"error_code": refusal_code(right), "error_message": may.explain_refusal(call, right, request.key)}
        return RefusalAnswer(struct("FindCoordinatorResponse")(**NO_NODE, **refusal))
    keys = list(dict.fromkeys(request.coordinator_keys))
    allowed, refused = may.split_allowed(call, right, keys, str, api=FIND_COORDINATOR)
    if not refused:
        return None
    rows = refuse_keys(may, call, right, refused)
    return partial_request(request, "coordinator_keys", allowed, "FindCoordinatorResponse", "coordinators", rows)


def judge_describe_groups(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    allowed, refused = may.split_allowed(
        call, DESCRIBE_GROUPS_RIGHT, dict.fromkeys(request.groups), str, api=DESCRIBE_GROUPS
    )
    rows = refuse_described(may, call, DESCRIBE_GROUPS_RIGHT, refused)
    if not (rows or request.include_authorized_operations):
        return None
    told = operations_filler(may, call)
    return partial_request(request, "groups", allowed, "DescribeGroupsResponse", "groups", rows, told)


def judge_consumer_group_describe(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Describes a group only if the caller may describe all of its topics."""
    names = dict.fromkeys(request.group_ids)
    allowed, refused = may.split_allowed(call, CONSUMER_GROUP_DESCRIBE_RIGHT, names, str, api=CONSUMER_GROUP_DESCRIBE)
    rows = refuse_consumer_groups(may, call, CONSUMER_GROUP_DESCRIBE_RIGHT, refused)
    told = operations_filler(may, call)

    def seen(group: Any) -> Any:
        if may.allows_all(call, CONSUMER_GROUP_TOPICS_RIGHT, set(described_topics(group))):
            return told(group)
        return struct("ConsumerGroupDescribeResponse.groups")(
            group_id=group.group_id,
            error_code=refusal_code(CONSUMER_GROUP_TOPICS_RIGHT),
            error_message=HIDDEN_TOPICS,
        )

    return partial_request(request, "group_ids", allowed, "ConsumerGroupDescribeResponse", "groups", rows, seen)


def described_topics(group: Any) -> Iterator[str]:
    """Names of topics in the description of a group. A deleted topic has none."""
    for member in group.members:
        yield from member.subscribed_topic_names
        for assignment in (member.assignment, member.target_assignment):
            yield from (topic.topic_name for topic in assignment.topic_partitions if topic.topic_name)


def operations_filler(may: AccessCheck, call: KafkaCall) -> Callable[[Any], Any]:
    """Fills in the caller's authorized operations, if the request asked for them."""

    def told(group: Any) -> Any:
        if group.authorized_operations != OPERATIONS_NOT_REQUESTED:
            group.authorized_operations = allowed_operations(may, call, ResourceType.GROUP, group.group_id)
        return group

    return told


# Members
# -------

CONSUMER_GROUP_HEARTBEAT: Final = "ConsumerGroupHeartbeat"
CONSUMER_GROUP_RIGHT, SUBSCRIBED_TOPIC_RIGHT, _ = API_RIGHTS[CONSUMER_GROUP_HEARTBEAT]


def judge_consumer_group_heartbeat(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Refuses the whole heartbeat for one topic that the caller may not describe."""
    if not may(call, CONSUMER_GROUP_RIGHT, request.group_id, api=CONSUMER_GROUP_HEARTBEAT):
        return refuse_consumer_heartbeat(
            refusal_code(CONSUMER_GROUP_RIGHT), may.explain_refusal(call, CONSUMER_GROUP_RIGHT, request.group_id)
        )
    names = request.subscribed_topic_names or ()
    sees = may.name_filter(call, SUBSCRIBED_TOPIC_RIGHT, len(names))
    hidden = next((name for name in names if not sees(name)), None)
    if hidden is None:
        return None
    may.audit_refusals(call, SUBSCRIBED_TOPIC_RIGHT, [hidden], api=CONSUMER_GROUP_HEARTBEAT)
    return refuse_consumer_heartbeat(
        refusal_code(SUBSCRIBED_TOPIC_RIGHT), may.explain_refusal(call, SUBSCRIBED_TOPIC_RIGHT, hidden)
    )


def refuse_consumer_heartbeat(code: int, message: str) -> RefusalAnswer:
    return RefusalAnswer(struct("ConsumerGroupHeartbeatResponse")(error_code=code, error_message=message))


# Committed offsets
# -----------------

OFFSET_COMMIT: Final = "OffsetCommit"
OFFSET_FETCH: Final = "OffsetFetch"
COMMIT_GROUP_RIGHT, COMMIT_TOPIC_RIGHT = API_RIGHTS[OFFSET_COMMIT]
FETCH_GROUP_RIGHT, FETCH_TOPIC_RIGHT, FETCH_VISIBLE_TOPIC_RIGHT = API_RIGHTS[OFFSET_FETCH]

GROUP_CODE_SINCE: Final = 2
"""OffsetFetch has a code for the whole group from this version on."""
FETCH_BATCHED_SINCE: Final = 8
"""OffsetFetch asks for several groups from this version on."""

NO_POSITIONS: Final = Rows("topics", parts=Parts("partition_indexes", key="", constants={"committed_offset": -1}))
refuse_fetched: Final = RefusedRows("OffsetFetchResponse.topics", "name", NO_POSITIONS)
refuse_fetched_in_group: Final = RefusedRows("OffsetFetchResponse.groups.topics", "name", NO_POSITIONS)
refuse_fetched_groups: Final = RefusedRows("OffsetFetchResponse.groups", "group_id", Rows("groups", "group_id"))


# -- commit -----------------------------------------------------------------------------------------------


def judge_offset_commit(may: AccessCheck, commit: OffsetCommitRequest, call: KafkaCall) -> Verdict:
    request = commit.shape.request
    large = commit.made is not None
    if not may(call, COMMIT_GROUP_RIGHT, request.group_id, api=OFFSET_COMMIT):
        return refuse_commit(request.topics, refusal_code(COMMIT_GROUP_RIGHT), call.api_version, large=large)
    if may.allows_all(call, COMMIT_TOPIC_RIGHT, [topic.name for topic in request.topics]):
        return None
    allowed, refused = may.split_allowed(
        call, COMMIT_TOPIC_RIGHT, request.topics, lambda topic: str(topic.name), api=OFFSET_COMMIT
    )
    code = refusal_code(COMMIT_TOPIC_RIGHT)
    if not allowed:
        return refuse_commit(refused, code, call.api_version, large=large)
    return PartialRequest(
        partial_commit(commit, allowed), lambda answer: append_topics(answer, refused_commit_rows(refused, code))
    )


def refuse_commit(topics: list[Any], code: int, version: int, *, large: bool) -> RefusalAnswer:
    """The same code for all partitions. A thread encodes a large answer."""

    def answer() -> Any:
        return struct("OffsetCommitResponse")(topics=refused_commit_rows(topics, code))

    if not large:
        return RefusalAnswer(answer())
    return RefusalAnswer(ThreadedAnswer(lambda: EncodedAnswer(encode("OffsetCommitResponse", version, answer()))))


def refused_commit_rows(topics: list[Any], code: int) -> list[Any]:
    """As `RefusedRows`, without its generality: a commit may have very many partitions."""
    topic_row, row = struct("OffsetCommitResponse.topics"), struct("OffsetCommitResponse.topics.partitions")
    return [
        topic_row(
            name=topic.name,
            partitions=[row(partition_index=one.partition_index, error_code=code) for one in topic.partitions],
        )
        for topic in topics
    ]


def partial_commit(commit: OffsetCommitRequest, topics: list[Any]) -> OffsetCommitRequest:
    """The commit reduced to these topics."""
    kept = {id(topic) for topic in topics}
    offsets: list[int] = []
    at = 0
    for topic in commit.shape.request.topics:
        if id(topic) in kept:
            offsets += commit.offsets[at : at + len(topic.partitions)]
        at += len(topic.partitions)
    request = copy(commit.shape.request)
    request.topics = topics
    left = OffsetCommitRequest(CommitShape(request), offsets)
    return left if commit.made is None else OffsetCommitRequest(left.shape, offsets, left.positions())


# -- fetch ------------------------------------------------------------------------------------------------


def judge_offset_fetch(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    return (
        judge_fetch_of_groups(may, request, call)
        if call.api_version >= FETCH_BATCHED_SINCE
        else judge_fetch_of_one_group(may, request, call)
    )


def judge_fetch_of_one_group(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    if not may(call, FETCH_GROUP_RIGHT, request.group_id, api=OFFSET_FETCH):
        topics = (request.topics or ()) if call.api_version < GROUP_CODE_SINCE else ()
        rows = refuse_fetched(may, call, FETCH_GROUP_RIGHT, topics)
        return RefusalAnswer(struct("OffsetFetchResponse")(topics=rows, error_code=refusal_code(FETCH_GROUP_RIGHT)))
    if request.topics is None:
        return PartialRequest(request, lambda answer: hide_topics(may, call, answer))
    allowed, refused = may.split_allowed(
        call, FETCH_TOPIC_RIGHT, request.topics, lambda topic: str(topic.name), api=OFFSET_FETCH
    )
    if not refused:
        return None
    rows = refuse_fetched(may, call, FETCH_TOPIC_RIGHT, refused)
    return partial_request(
        request, "topics", allowed, "OffsetFetchResponse", "topics", rows, always_ask=True, unless_error=True
    )


def judge_fetch_of_groups(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Judges each group separately. A refused group has only its code."""
    allowed, refused = may.split_allowed(
        call, FETCH_GROUP_RIGHT, request.groups, lambda group: str(group.group_id), api=OFFSET_FETCH
    )
    codes = refuse_fetched_groups(may, call, FETCH_GROUP_RIGHT, refused)
    if not allowed:
        return RefusalAnswer(struct("OffsetFetchResponse")(groups=codes))
    rows: dict[str, list[Any]] = {}
    everything: set[str] = set()
    asked = [allowed_part_of_group(may, call, group, rows, everything) for group in allowed]
    if not (codes or rows or everything):
        return None

    def amend(answer: Any) -> Any:
        for group in answer.groups:
            if group.error_code:
                continue
            if group.group_id in everything:
                hide_topics(may, call, group)
            elif group.group_id in rows:
                append_topics(group, rows[group.group_id])
        answer.groups = [*answer.groups, *codes]
        return answer

    left = copy(request)
    left.groups = asked
    return PartialRequest(left, amend)


def allowed_part_of_group(
    may: AccessCheck, call: KafkaCall, group: Any, rows: dict[str, list[Any]], everything: set[str]
) -> Any:
    """The allowed part of a group's request. Refused topics go to `rows`, by group."""
    if group.topics is None:
        everything.add(group.group_id)
        return group
    allowed, refused = may.split_allowed(
        call, FETCH_TOPIC_RIGHT, group.topics, lambda topic: str(topic.name), api=OFFSET_FETCH
    )
    if not refused:
        return group
    rows[group.group_id] = refuse_fetched_in_group(may, call, FETCH_TOPIC_RIGHT, refused)
    asked = copy(group)
    asked.topics = allowed
    return asked


def hide_topics(may: AccessCheck, call: KafkaCall, answer: Any) -> Any:
    sees = may.name_filter(call, FETCH_VISIBLE_TOPIC_RIGHT, len(answer.topics))
    answer.topics = [topic for topic in answer.topics if sees(topic.name)]
    return answer


def append_topics(answer: Any, rows: list[Any]) -> Any:
    answer.topics = [*answer.topics, *rows]
    return answer
