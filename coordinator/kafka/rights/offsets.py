"""Positions: OffsetCommit, OffsetFetch, OffsetDelete."""

from copy import copy
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import Aside, KafkaCall, Written
from muster.coordinator.kafka.groups.commits import Commit, Shape
from muster.coordinator.kafka.rights.judging import Instead, May, Partly, Verdict, code_of
from muster.coordinator.security.acl.rights import API_RIGHTS

COMMIT: Final = "OffsetCommit"
FETCH: Final = "OffsetFetch"
DELETE: Final = "OffsetDelete"
INTO_GROUP, OF_TOPIC = API_RIGHTS[COMMIT]
OF_GROUP, LOOKED_UP, SEEN = API_RIGHTS[FETCH]
FROM_GROUP, FORGOTTEN = API_RIGHTS[DELETE]

GROUP_CODE: Final = 2
"""OffsetFetch has a code for the whole group from this version on."""
BATCHED: Final = 8
"""OffsetFetch asks for several groups from this version on."""


# -- commit -----------------------------------------------------------------------------------------------


def offset_commit(may: May, commit: Commit, call: KafkaCall) -> Verdict:
    request = commit.shape.request
    large = commit.made is not None
    if not may(call, INTO_GROUP, request.group_id, api=COMMIT):
        return nothing_committed(request.topics, code_of(INTO_GROUP), call.api_version, large=large)
    if may.all(call, OF_TOPIC, [topic.name for topic in request.topics]):
        return None
    allowed, refused = may.split(call, OF_TOPIC, request.topics, lambda topic: str(topic.name), api=COMMIT)
    code = code_of(OF_TOPIC)
    if not allowed:
        return nothing_committed(refused, code, call.api_version, large=large)
    return Partly(part_of(commit, allowed), lambda answer: with_topics(answer, answers(COMMIT, refused, code)))


def nothing_committed(topics: list[Any], code: int, version: int, *, large: bool) -> Instead:
    """The same code for all; a thread writes it where there are very many."""

    def answer() -> Any:
        return struct("OffsetCommitResponse")(topics=answers(COMMIT, topics, code))

    if not large:
        return Instead(answer())
    return Instead(Aside(lambda: Written(encode("OffsetCommitResponse", version, answer()))))


def part_of(commit: Commit, topics: list[Any]) -> Commit:
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
    left = Commit(Shape(request), offsets)
    return left if commit.made is None else Commit(left.shape, offsets, left.positions())


# -- fetch ------------------------------------------------------------------------------------------------


def offset_fetch(may: May, request: Any, call: KafkaCall) -> Verdict:
    return of_groups(may, request, call) if call.api_version >= BATCHED else of_one_group(may, request, call)


def of_one_group(may: May, request: Any, call: KafkaCall) -> Verdict:
    if not may(call, OF_GROUP, request.group_id, api=FETCH):
        code = code_of(OF_GROUP)
        asked = (request.topics or ()) if call.api_version < GROUP_CODE else ()
        rows = unknown("OffsetFetchResponse.topics", asked, code)
        return Instead(struct("OffsetFetchResponse")(topics=rows, error_code=code))
    if request.topics is None:
        return Partly(request, lambda answer: only_seen(may, call, answer))
    allowed, refused = may.split(call, LOOKED_UP, request.topics, lambda topic: str(topic.name), api=FETCH)
    if not refused:
        return None
    rows = unknown("OffsetFetchResponse.topics", refused, code_of(LOOKED_UP))
    asked = copy(request)
    asked.topics = allowed

    def amend(answer: Any) -> Any:
        return answer if answer.error_code else with_topics(answer, rows)

    return Partly(asked, amend)


def of_groups(may: May, request: Any, call: KafkaCall) -> Verdict:
    """Each group for itself: one that is refused has nothing but its code."""
    allowed, refused = may.split(call, OF_GROUP, request.groups, lambda group: str(group.group_id), api=FETCH)
    made = struct("OffsetFetchResponse.groups")
    codes = [made(group_id=group.group_id, error_code=code_of(OF_GROUP)) for group in refused]
    if not allowed:
        return Instead(struct("OffsetFetchResponse")(groups=codes))
    rows: dict[str, list[Any]] = {}
    everything: set[str] = set()
    asked = [looked_up(may, call, group, rows, everything) for group in allowed]
    if not (codes or rows or everything):
        return None

    def amend(answer: Any) -> Any:
        for group in answer.groups:
            if group.error_code:
                continue
            if group.group_id in everything:
                only_seen(may, call, group)
            elif group.group_id in rows:
                with_topics(group, rows[group.group_id])
        answer.groups = [*answer.groups, *codes]
        return answer

    left = copy(request)
    left.groups = asked
    return Partly(left, amend)


def looked_up(may: May, call: KafkaCall, group: Any, rows: dict[str, list[Any]], everything: set[str]) -> Any:
    """What may be asked of the group; the rest comes into `rows`, by group."""
    if group.topics is None:
        everything.add(group.group_id)
        return group
    allowed, refused = may.split(call, LOOKED_UP, group.topics, lambda topic: str(topic.name), api=FETCH)
    if not refused:
        return group
    rows[group.group_id] = unknown("OffsetFetchResponse.groups.topics", refused, code_of(LOOKED_UP))
    asked = copy(group)
    asked.topics = allowed
    return asked


def only_seen(may: May, call: KafkaCall, answer: Any) -> Any:
    sees = may.each(call, SEEN, len(answer.topics))
    answer.topics = [topic for topic in answer.topics if sees(topic.name)]
    return answer


def unknown(path: str, topics: Any, code: int) -> list[Any]:
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


def offset_delete(may: May, request: Any, call: KafkaCall) -> Verdict:
    if not may(call, FROM_GROUP, request.group_id, api=DELETE):
        return Instead(struct("OffsetDeleteResponse")(error_code=code_of(FROM_GROUP)))
    allowed, refused = may.split(call, FORGOTTEN, request.topics, lambda topic: str(topic.name), api=DELETE)
    if not refused:
        return None
    rows = answers(DELETE, refused, code_of(FORGOTTEN))
    asked = copy(request)
    asked.topics = allowed

    def amend(answer: Any) -> Any:
        return answer if answer.error_code else with_topics(answer, rows)

    return Partly(asked, amend)


# -- rows -------------------------------------------------------------------------------------------------


def answers(api: str, topics: list[Any], code: int) -> list[Any]:
    """A row with this code for each partition asked for."""
    made, row = struct(f"{api}Response.topics"), struct(f"{api}Response.topics.partitions")
    return [
        made(
            name=topic.name,
            partitions=[row(partition_index=one.partition_index, error_code=code) for one in topic.partitions],
        )
        for topic in topics
    ]


def with_topics(answer: Any, rows: list[Any]) -> Any:
    answer.topics = [*answer.topics, *rows]
    return answer
