"""Judges of the group APIs: membership, tools, committed offsets, and offsets in transactions.

Members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ConsumerGroupHeartbeat. Tools: FindCoordinator, ListGroups,
DescribeGroups, ConsumerGroupDescribe, DeleteGroups. Offsets: OffsetCommit, OffsetFetch, OffsetDelete,
AddOffsetsToTxn, TxnOffsetCommit.
"""

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, Final

from muster.coordinator.kafka.authorization.judge import (
    AccessCheck,
    PartialRequest,
    RefusalAnswer,
    Verdict,
    allowed_operations,
    refusal_code,
)
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


# Members
# -------

CONSUMER_GROUP_HEARTBEAT: Final = "ConsumerGroupHeartbeat"
(JOIN_RIGHT,) = API_RIGHTS["JoinGroup"]
CONSUMER_GROUP_RIGHT, SUBSCRIBED_TOPIC_RIGHT, _ = API_RIGHTS[CONSUMER_GROUP_HEARTBEAT]

NULLABLE_PROTOCOL: Final = 7
"""A refused join names no protocol from this version on; before, an empty one."""


def judge_join_group(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    if may(call, JOIN_RIGHT, request.group_id, api="JoinGroup"):
        return None
    named = None if call.api_version >= NULLABLE_PROTOCOL else ""
    return RefusalAnswer(struct("JoinGroupResponse")(error_code=refusal_code(JOIN_RIGHT), protocol_name=named))


class MemberJudge:
    """Judges one of the APIs whose answer has a code of its own, and nothing else that a refusal must have."""

    def __init__(self, api: str) -> None:
        (self.right,) = API_RIGHTS[api]
        self._api = api

    def __call__(self, may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
        if may(call, self.right, request.group_id, api=self._api):
            return None
        return RefusalAnswer(struct(f"{self._api}Response")(error_code=refusal_code(self.right)))


def judge_consumer_group_heartbeat(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """One name that may not be described refuses the whole heartbeat."""
    if not may(call, CONSUMER_GROUP_RIGHT, request.group_id, api=CONSUMER_GROUP_HEARTBEAT):
        return refuse_consumer_heartbeat(
            refusal_code(CONSUMER_GROUP_RIGHT), may.why(call, CONSUMER_GROUP_RIGHT, request.group_id)
        )
    names = request.subscribed_topic_names or ()
    sees = may.each(call, SUBSCRIBED_TOPIC_RIGHT, len(names))
    hidden = next((name for name in names if not sees(name)), None)
    if hidden is None:
        return None
    may.told(call, SUBSCRIBED_TOPIC_RIGHT, [hidden], api=CONSUMER_GROUP_HEARTBEAT)
    return refuse_consumer_heartbeat(
        refusal_code(SUBSCRIBED_TOPIC_RIGHT), may.why(call, SUBSCRIBED_TOPIC_RIGHT, hidden)
    )


def refuse_consumer_heartbeat(code: int, message: str) -> RefusalAnswer:
    return RefusalAnswer(struct("ConsumerGroupHeartbeatResponse")(error_code=code, error_message=message))


# Committed offsets
# -----------------

OFFSET_COMMIT: Final = "OffsetCommit"
OFFSET_FETCH: Final = "OffsetFetch"
OFFSET_DELETE: Final = "OffsetDelete"
COMMIT_GROUP_RIGHT, COMMIT_TOPIC_RIGHT = API_RIGHTS[OFFSET_COMMIT]
FETCH_GROUP_RIGHT, FETCH_TOPIC_RIGHT, FETCH_VISIBLE_TOPIC_RIGHT = API_RIGHTS[OFFSET_FETCH]
DELETE_OFFSETS_GROUP_RIGHT, DELETE_OFFSETS_TOPIC_RIGHT = API_RIGHTS[OFFSET_DELETE]

GROUP_CODE_SINCE: Final = 2
"""OffsetFetch has a code for the whole group from this version on."""
FETCH_BATCHED_SINCE: Final = 8
"""OffsetFetch asks for several groups from this version on."""


# -- commit -----------------------------------------------------------------------------------------------


def judge_offset_commit(may: AccessCheck, commit: OffsetCommitRequest, call: KafkaCall) -> Verdict:
    request = commit.shape.request
    large = commit.made is not None
    if not may(call, COMMIT_GROUP_RIGHT, request.group_id, api=OFFSET_COMMIT):
        return refuse_commit(request.topics, refusal_code(COMMIT_GROUP_RIGHT), call.api_version, large=large)
    if may.all(call, COMMIT_TOPIC_RIGHT, [topic.name for topic in request.topics]):
        return None
    allowed, refused = may.split(
        call, COMMIT_TOPIC_RIGHT, request.topics, lambda topic: str(topic.name), api=OFFSET_COMMIT
    )
    code = refusal_code(COMMIT_TOPIC_RIGHT)
    if not allowed:
        return refuse_commit(refused, code, call.api_version, large=large)
    return PartialRequest(
        partial_commit(commit, allowed),
        lambda answer: append_topics(answer, refused_partition_rows(OFFSET_COMMIT, refused, code)),
    )


def refuse_commit(topics: list[Any], code: int, version: int, *, large: bool) -> RefusalAnswer:
    """The same code for all; a thread writes it where there are very many."""

    def answer() -> Any:
        return struct("OffsetCommitResponse")(topics=refused_partition_rows(OFFSET_COMMIT, topics, code))

    if not large:
        return RefusalAnswer(answer())
    return RefusalAnswer(ThreadedAnswer(lambda: EncodedAnswer(encode("OffsetCommitResponse", version, answer()))))


def partial_commit(commit: OffsetCommitRequest, topics: list[Any]) -> OffsetCommitRequest:
    """What is left of a commit of which only these topics may be."""
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
        code = refusal_code(FETCH_GROUP_RIGHT)
        asked = (request.topics or ()) if call.api_version < GROUP_CODE_SINCE else ()
        rows = refused_offset_rows("OffsetFetchResponse.topics", asked, code)
        return RefusalAnswer(struct("OffsetFetchResponse")(topics=rows, error_code=code))
    if request.topics is None:
        return PartialRequest(request, lambda answer: hide_topics(may, call, answer))
    allowed, refused = may.split(
        call, FETCH_TOPIC_RIGHT, request.topics, lambda topic: str(topic.name), api=OFFSET_FETCH
    )
    if not refused:
        return None
    rows = refused_offset_rows("OffsetFetchResponse.topics", refused, refusal_code(FETCH_TOPIC_RIGHT))
    asked = copy(request)
    asked.topics = allowed

    def amend(answer: Any) -> Any:
        return answer if answer.error_code else append_topics(answer, rows)

    return PartialRequest(asked, amend)


def judge_fetch_of_groups(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    """Each group for itself: one that is refused has nothing but its code."""
    allowed, refused = may.split(
        call, FETCH_GROUP_RIGHT, request.groups, lambda group: str(group.group_id), api=OFFSET_FETCH
    )
    made = struct("OffsetFetchResponse.groups")
    codes = [made(group_id=group.group_id, error_code=refusal_code(FETCH_GROUP_RIGHT)) for group in refused]
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
    """What may be asked of the group; the rest comes into `rows`, by group."""
    if group.topics is None:
        everything.add(group.group_id)
        return group
    allowed, refused = may.split(call, FETCH_TOPIC_RIGHT, group.topics, lambda topic: str(topic.name), api=OFFSET_FETCH)
    if not refused:
        return group
    rows[group.group_id] = refused_offset_rows(
        "OffsetFetchResponse.groups.topics", refused, refusal_code(FETCH_TOPIC_RIGHT)
    )
    asked = copy(group)
    asked.topics = allowed
    return asked


def hide_topics(may: AccessCheck, call: KafkaCall, answer: Any) -> Any:
    sees = may.each(call, FETCH_VISIBLE_TOPIC_RIGHT, len(answer.topics))
    answer.topics = [topic for topic in answer.topics if sees(topic.name)]
    return answer


def refused_offset_rows(path: str, topics: Any, code: int) -> list[Any]:
    """Rows without a position."""
    made, row = struct(path), struct(f"{path}.partitions")
    return [
        made(
            name=topic.name,
            partitions=[
                row(partition_index=one, committed_offset=-1, metadata="", error_code=code)
                for one in topic.partition_indexes
            ],
        )
        for topic in topics
    ]


# -- delete -----------------------------------------------------------------------------------------------


def judge_offset_delete(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    if not may(call, DELETE_OFFSETS_GROUP_RIGHT, request.group_id, api=OFFSET_DELETE):
        return RefusalAnswer(struct("OffsetDeleteResponse")(error_code=refusal_code(DELETE_OFFSETS_GROUP_RIGHT)))
    allowed, refused = may.split(
        call, DELETE_OFFSETS_TOPIC_RIGHT, request.topics, lambda topic: str(topic.name), api=OFFSET_DELETE
    )
    if not refused:
        return None
    rows = refused_partition_rows(OFFSET_DELETE, refused, refusal_code(DELETE_OFFSETS_TOPIC_RIGHT))
    asked = copy(request)
    asked.topics = allowed

    def amend(answer: Any) -> Any:
        return answer if answer.error_code else append_topics(answer, rows)

    return PartialRequest(asked, amend)


# -- rows -------------------------------------------------------------------------------------------------


def refused_partition_rows(api: str, topics: list[Any], code: int) -> list[Any]:
    """A row with this code for each partition asked for."""
    made, row = struct(f"{api}Response.topics"), struct(f"{api}Response.topics.partitions")
    return [
        made(
            name=topic.name,
            partitions=[row(partition_index=one.partition_index, error_code=code) for one in topic.partitions],
        )
        for topic in topics
    ]


def append_topics(answer: Any, rows: list[Any]) -> Any:
    answer.topics = [*answer.topics, *rows]
    return answer


# Offsets in transactions
# -----------------------

ADD_OFFSETS_TO_TXN: Final = "AddOffsetsToTxn"
TXN_OFFSET_COMMIT: Final = "TxnOffsetCommit"
ADD_OFFSETS_TRANSACTION_RIGHT, ADD_OFFSETS_GROUP_RIGHT = API_RIGHTS[ADD_OFFSETS_TO_TXN]
TXN_COMMIT_TRANSACTION_RIGHT, TXN_COMMIT_GROUP_RIGHT, TXN_COMMIT_TOPIC_RIGHT = API_RIGHTS[TXN_OFFSET_COMMIT]


def judge_add_offsets_to_txn(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    for right, name in (
        (ADD_OFFSETS_TRANSACTION_RIGHT, request.transactional_id),
        (ADD_OFFSETS_GROUP_RIGHT, request.group_id),
    ):
        if not may(call, right, name, api=ADD_OFFSETS_TO_TXN):
            return RefusalAnswer(struct("AddOffsetsToTxnResponse")(error_code=refusal_code(right)))
    return None


def judge_txn_offset_commit(may: AccessCheck, request: Any, call: KafkaCall) -> Verdict:
    for right, name in (
        (TXN_COMMIT_TRANSACTION_RIGHT, request.transactional_id),
        (TXN_COMMIT_GROUP_RIGHT, request.group_id),
    ):
        if not may(call, right, name, api=TXN_OFFSET_COMMIT):
            return RefusalAnswer(
                struct("TxnOffsetCommitResponse")(
                    topics=refused_partition_rows(TXN_OFFSET_COMMIT, request.topics, refusal_code(right))
                )
            )
    allowed, refused = may.split(
        call, TXN_COMMIT_TOPIC_RIGHT, request.topics, lambda topic: str(topic.name), api=TXN_OFFSET_COMMIT
    )
    if not refused:
        return None
    rows = refused_partition_rows(TXN_OFFSET_COMMIT, refused, refusal_code(TXN_COMMIT_TOPIC_RIGHT))
    if not allowed:
        return RefusalAnswer(struct("TxnOffsetCommitResponse")(topics=rows))
    left = copy(request)
    left.topics = allowed
    return PartialRequest(left, lambda answer: append_topics(answer, rows))
