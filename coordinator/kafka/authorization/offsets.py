"""Positions: OffsetCommit, OffsetFetch, OffsetDelete."""

from copy import copy
from typing import Any, Final

from muster.coordinator.kafka.authorization.judging import (
    AccessCheck,
    PartialRequest,
    RefusalAnswer,
    Verdict,
    refusal_code,
)
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, KafkaCall, ThreadedAnswer
from muster.coordinator.kafka.handlers.offset_commit_reader import CommitShape, OffsetCommitRequest
from muster.coordinator.security.rights import API_RIGHTS

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
